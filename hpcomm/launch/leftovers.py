"""Files that MPI keeps in /dev/shm and deletes in MPI_Finalize; the standard library only.

A rank that dies, or that outlives a dead one, does not get there. So the files are noted while they
are mapped, and the supervisors delete what is left of them when all ranks have ended.
"""

from __future__ import annotations

from pathlib import Path

__all__ = ["mpi_files"]

# How MPICH and Open MPI call them.
_NAMES = ("mpich_", "sm_segment.", "vader_segment.", "osc_")


def mpi_files(pid: int | str = "self") -> list[str]:
    """Return the files of MPI that a process maps; none if it is gone."""
    try:
        lines = Path(f"/proc/{pid}/maps").read_text().splitlines()
    except OSError:
        return []
    paths = {line.split(None, 5)[5] for line in lines if " /dev/shm/" in line}
    return sorted(path for path in paths if Path(path).name.startswith(_NAMES))
