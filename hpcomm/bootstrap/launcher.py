"""Ranks that `hpcomm run` started without MPI: they meet at its socket."""

from __future__ import annotations

import atexit
import functools
from typing import TYPE_CHECKING

from hpcomm.bootstrap.membership import Membership
from hpcomm.errors import LaunchError
from hpcomm.launch.rendezvous import Client

if TYPE_CHECKING:
    from hpcomm.config import Config

__all__ = ["join"]


@functools.cache
def _client(address: str, rank: int, size: int) -> Client:
    client = Client(address, rank, size)
    atexit.register(client.close)
    return client


def join(config: Config, timeout_s: float) -> Membership:
    """Meet the other ranks."""
    rank, size = config.launch_rank, config.launch_size
    if not config.rendezvous or not 0 <= rank < size:
        raise LaunchError(
            "HPCOMM_BOOTSTRAP=launcher, but this process was not started by hpcomm run --no-mpi; "
            "unset it"
        )
    client = _client(config.rendezvous, rank, size)
    return Membership(
        rank, size, lambda mine: client.exchange(mine, timeout_s), None, "hpcomm run without MPI"
    )
