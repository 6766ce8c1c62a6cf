"""Which way of starting ranks this process came by."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

from hpcomm.bootstrap.membership import Membership, single
from hpcomm.launch.environment import hints, torchrun_hint

if TYPE_CHECKING:
    from collections.abc import Mapping

    from hpcomm.config import Config

__all__ = ["choose", "join"]


def choose(config: Config, environment: Mapping[str, str], *, is_mpi_running: bool) -> str:
    """Return "launcher", "mpi", "torchrun" or "single".

    Args:
        config: settings; ``bootstrap`` other than "auto" decides.
        environment: where launchers leave their marks.
        is_mpi_running: the program has initialised MPI already.
    """
    if config.bootstrap != "auto":
        return config.bootstrap
    if config.rendezvous:
        return "launcher"
    if is_mpi_running or hints(environment):
        return "mpi"
    if torchrun_hint(environment) is not None:
        return "torchrun"
    return "single"


def join(config: Config, timeout_s: float) -> Membership:
    """Find the other ranks; blocks until all of them do the same.

    Raises:
        LaunchError: the launcher and the libraries do not fit together.
        CommTimeoutError: not all ranks came in time.
    """
    way = choose(config, os.environ, is_mpi_running=_is_mpi_running())
    if way == "launcher":
        from hpcomm.bootstrap import launcher

        return launcher.join(config, timeout_s)
    if way == "mpi":
        from hpcomm.bootstrap import mpi

        return mpi.join(config, timeout_s)
    if way == "torchrun":
        from hpcomm.bootstrap import torchrun

        return torchrun.join(timeout_s)
    return single()


def _is_mpi_running() -> bool:
    module = sys.modules.get("mpi4py.MPI")
    return module is not None and module.Is_initialized() and not module.Is_finalized()
