"""Ranks that torchrun started: they meet at its key-value store, on one machine."""

from __future__ import annotations

import datetime as dt
import functools
import importlib
import itertools
import os
from typing import Any

from hpcomm.bootstrap.membership import Membership
from hpcomm.errors import CommTimeoutError, LaunchError
from hpcomm.launch.environment import torchrun_hint

__all__ = ["join"]

_LONGEST_S = 10.0 * 365 * 86400
_rounds = itertools.count()


@functools.cache
def _store(address: str, port: int, size: int, is_host: bool, timeout_s: float) -> Any:
    try:
        distributed = importlib.import_module("torch.distributed")
    except ImportError as error:
        raise LaunchError(
            "RANK and WORLD_SIZE say that torchrun started this process, but torch cannot be "
            f"imported ({error}); install it, start with hpcomm run, or set HPCOMM_BOOTSTRAP=single"
        ) from error
    timeout = dt.timedelta(seconds=min(timeout_s, _LONGEST_S))
    return distributed.TCPStore(
        address, port, size, is_master=is_host, timeout=timeout, wait_for_workers=False
    )


def join(timeout_s: float) -> Membership:
    """Meet the other ranks."""
    hint = torchrun_hint(os.environ)
    if hint is None:
        raise LaunchError(
            "HPCOMM_BOOTSTRAP=torchrun, but RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT are not "
            "all set; start with torchrun"
        )
    if 0 < hint.local_size < hint.size:
        raise LaunchError(
            f"torchrun started {hint.size} ranks, {hint.local_size} of them on this machine; over "
            "several machines hpcomm needs MPI: start with hpcomm run --hosts or srun"
        )
    agent_hosts = os.environ.get("TORCHELASTIC_USE_AGENT_STORE", "") == "True"
    store = _store(
        os.environ["MASTER_ADDR"],
        int(os.environ["MASTER_PORT"]),
        hint.size,
        hint.rank == 0 and not agent_hosts,
        timeout_s,
    )
    # A restarted job must not read what the previous one left.
    attempt = os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")

    def exchange(mine: bytes) -> list[bytes]:
        prefix = f"hpcomm/{attempt}/{next(_rounds)}"
        store.set(f"{prefix}/{hint.rank}", mine)
        keys = [f"{prefix}/{rank}" for rank in range(hint.size)]
        try:
            store.wait(keys, dt.timedelta(seconds=min(timeout_s, _LONGEST_S)))
        except Exception as error:  # torch raises DistStoreError, in older releases RuntimeError
            missing = [rank for rank, key in enumerate(keys) if not store.check([key])]
            raise CommTimeoutError(
                f"rank {hint.rank} waited {timeout_s:g} s in hpcomm.init() for ranks {missing}"
            ) from error
        return [bytes(store.get(key)) for key in keys]

    return Membership(hint.rank, hint.size, exchange, None, "torchrun")
