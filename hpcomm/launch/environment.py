"""What launchers say in the environment of the ranks they start; the standard library only."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["Hint", "hints", "job_size", "local_place", "place", "torchrun_hint", "under_launcher"]


@dataclass(frozen=True, slots=True)
class Hint:
    """A launcher that left its mark.

    Attributes:
        launcher: its name for people.
        vendor: the MPI it belongs to: "mpich", "openmpi", or "" where any may be behind it.
        rank: number of this process; -1 where the launcher does not say.
        size: number of processes it started; 0 where it does not say.
        local_rank: number of this process on its machine; -1 where the launcher does not say.
        local_size: number of processes on this machine; 0 where it does not say.
    """

    launcher: str
    vendor: str
    rank: int
    size: int
    local_rank: int
    local_size: int


# Launcher, vendor, and its variables for rank, size, local rank, local size. The first that is
# there counts: mpiexec of Open MPI inside a Slurm job leaves both its own marks and Slurm's.
_LAUNCHERS: tuple[tuple[str, str, str, str, str, str], ...] = (
    ("hpcomm run", "", "HPCOMM_RANK", "HPCOMM_SIZE", "HPCOMM_LOCAL_RANK", "HPCOMM_LOCAL_SIZE"),
    ("mpiexec of Open MPI", "openmpi", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE",
     "OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_SIZE"),
    ("mpiexec of MPICH", "mpich", "PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS"),
    ("a PMIx launcher", "", "PMIX_RANK", "PMIX_SIZE", "PMIX_LOCAL_RANK", "PMIX_LOCAL_SIZE"),
    ("srun", "", "SLURM_PROCID", "SLURM_STEP_NUM_TASKS", "SLURM_LOCALID", "SLURM_NTASKS_PER_NODE"),
)  # fmt: skip


def _number(environment: Mapping[str, str], name: str, missing: int) -> int:
    text = environment.get(name, "")
    return int(text) if text.isdecimal() else missing


def hints(environment: Mapping[str, str]) -> list[Hint]:
    """Return the launchers that left marks in ``environment``, the most specific first."""
    found = []
    for launcher, vendor, rank, size, local_rank, local_size in _LAUNCHERS:
        if not environment.get(rank, "").isdecimal():
            continue
        if launcher == "srun" and not environment.get(size):
            continue  # an allocation without a step: nothing was started by srun
        found.append(
            Hint(
                launcher,
                vendor,
                _number(environment, rank, -1),
                _number(environment, size, 0),
                _number(environment, local_rank, -1),
                _number(environment, local_size, 0),
            )
        )
    return found


def torchrun_hint(environment: Mapping[str, str]) -> Hint | None:
    """Return what torchrun, or a user in its manner, said; None if nobody did."""
    names = ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")
    if not all(environment.get(name) for name in names) or not environment["RANK"].isdecimal():
        return None
    return Hint(
        "torchrun",
        "",
        int(environment["RANK"]),
        _number(environment, "WORLD_SIZE", 0),
        _number(environment, "LOCAL_RANK", -1),
        _number(environment, "LOCAL_WORLD_SIZE", 0),
    )


def under_launcher(environment: Mapping[str, str] | None = None) -> bool:
    """Return True if some launcher started this process as a rank."""
    where = os.environ if environment is None else environment
    return bool(hints(where)) or torchrun_hint(where) is not None


def place(environment: Mapping[str, str]) -> tuple[int, int]:
    """Return rank and size as the launchers say; (0, 1) without one."""
    for hint in hints(environment):
        if hint.rank >= 0 and hint.size > 0:
            return hint.rank, hint.size
    return 0, 1


def job_size(environment: Mapping[str, str]) -> int:
    """Return the number of ranks of the job that this process belongs to; 0 where unknown."""
    sizes = [hint.size for hint in hints(environment)]
    torchrun = torchrun_hint(environment)
    sizes += [torchrun.size] if torchrun else []
    return next((size for size in sizes if size > 0), 0)


def local_place(environment: Mapping[str, str]) -> tuple[int, int]:
    """Return rank and number of ranks on this machine; those of the whole job where unknown."""
    for hint in hints(environment):
        if hint.local_rank >= 0 and hint.local_size > 0:
            return hint.local_rank, hint.local_size
    return place(environment)
