"""Launcher and MPI library must belong together: else N ranks become N jobs of one rank each."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from hpcomm.errors import LaunchError
from hpcomm.launch.environment import hints
from hpcomm.launch.mpiexec import vendor_of

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["check_size", "check_vendor"]

_REMEDY = (
    "start with `hpcomm run -n N -- …`, which takes the mpiexec of this Python's MPI, or with the "
    "full path of that mpiexec; HPCOMM_ALLOW_SINGLETON=1 goes on regardless"
)


def check_vendor(
    library: str, *, allow_singleton: bool, environment: Mapping[str, str] | None = None
) -> None:
    """Refuse to initialise a library that would end the process under this launcher.

    Args:
        library: version text of the MPI library.
        allow_singleton: accept everything.
        environment: None for this process's.

    Raises:
        LaunchError: ranks of Open MPI's mpiexec that load another MPI.
    """
    found = hints(os.environ if environment is None else environment)
    if allow_singleton or not any(hint.vendor == "openmpi" for hint in found):
        return
    if vendor_of(library) == "mpich":
        raise LaunchError(
            f"these ranks were started by {found[0].launcher}, but mpi4py loads {library!r}, which "
            f"cannot talk to it; {_REMEDY}"
        )


def check_size(
    rank: int,
    size: int,
    library: str,
    *,
    allow_singleton: bool,
    environment: Mapping[str, str] | None = None,
) -> None:
    """Compare what MPI says about the job with what the launcher said.

    Args:
        rank: of COMM_WORLD.
        size: of COMM_WORLD.
        library: version text of the MPI library.
        allow_singleton: accept everything.
        environment: None for this process's.

    Raises:
        LaunchError: the launcher started more ranks than MPI sees.
    """
    found = hints(os.environ if environment is None else environment)
    if allow_singleton or not found:
        return
    hint = found[0]
    started = hint.size or (hint.rank + 1)  # PMIx names no size; a rank beyond it is proof enough
    if started > size or (hint.size and hint.size != size):
        raise LaunchError(
            f"{hint.launcher} started this process as rank {hint.rank} of "
            f"{hint.size or 'several'}, but {library!r} sees {size} rank{'s' if size > 1 else ''} "
            f"and is rank {rank}: launcher and library do not belong together; {_REMEDY}",
            rank=hint.rank,
        )
