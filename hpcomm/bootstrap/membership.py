"""What a way of starting ranks has to supply to make the first communicator."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from hpcomm.bootstrap.mpi import MpiGroup

__all__ = ["Membership"]


@dataclass(frozen=True, slots=True)
class Membership:
    """A process's place among the ranks of its job.

    Attributes:
        rank: number of this process.
        size: number of processes.
        exchange: allgather of one byte string per rank; all ranks call it equally often.
        mpi: the MPI communicator of these ranks; None where there is no MPI.
        source: how the ranks were found, for `hpcomm info`.
    """

    rank: int
    size: int
    exchange: Callable[[bytes], list[bytes]]
    mpi: MpiGroup | None
    source: str


def single() -> Membership:
    """Return the membership of a process that nobody else belongs to."""
    return Membership(0, 1, lambda mine: [mine], None, "single process")
