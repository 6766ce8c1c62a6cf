"""The first communicator of a process."""

from __future__ import annotations

import atexit
import threading

from hpcomm import _core, checks, config
from hpcomm.bootstrap.choose import join
from hpcomm.communicator import Communicator
from hpcomm.launch import hook
from hpcomm.log import configure, logger

__all__ = ["init"]

_lock = threading.Lock()
_world: Communicator | None = None
_source = ""


def init(timeout_s: float | None = None) -> Communicator:
    """Return the communicator of all ranks, made at the first call.

    Collective at the first call: all ranks must make it. Ranks are those that `hpcomm run`, an MPI
    launcher (mpiexec, srun) or torchrun started; a program that was started by none of them gets a
    communicator of one rank. MPI is initialised if the program has not done so, and finalised at
    exit in that case.

    Args:
        timeout_s: seconds that this call, and later every operation that names no time, may wait
            for the other ranks; None takes HPCOMM_TIMEOUT, or leaves what an earlier call set.

    Returns:
        The communicator, the same one at every call until it is closed. It is a context manager.

    Raises:
        LaunchError: launcher and MPI library do not belong together, or no MPI is there.
        CommTimeoutError: not all ranks called in time.
        InvalidArgumentError: an HPCOMM_* variable has a value that cannot be understood.
    """
    global _source, _world
    with _lock:
        if _world is not None and not _world._core.is_closed:
            if timeout_s is not None:
                _world.timeout_s = timeout_s
            return _world
        settings = config.load()
        limit_s = checks.timeout_s(timeout_s, "init: timeout_s", settings.timeout_s)
        if threading.current_thread() is threading.main_thread():
            _core.watch_interrupts()
        membership = join(settings, limit_s)
        hook.install(is_rank=True)
        core = _core.Communicator.create(
            name="world",
            rank=membership.rank,
            size=membership.size,
            timeout_s=limit_s,
            ranks_per_node=settings.ranks_per_node,
            fake_node=-1,
            slot_bytes=settings.slot_bytes,
            ring_bytes=settings.ring_bytes,
            selection_override=settings.tune,
            mpi=None if membership.mpi is None else membership.mpi.binding(),
            exchange=membership.exchange,
        )
        if _world is None:
            atexit.register(_core.shutdown_all)
        _world = Communicator(core, timeout_s=limit_s, mpi=membership.mpi)
        _source = membership.source
        configure(settings.log_level, membership.rank)
        logger.info(
            "rank %d of %d, found by %s; node %d of %d; asynchronous collectives advance %s",
            _world.rank,
            _world.size,
            _source,
            _world.node,
            _world.num_nodes,
            "in the background" if core.has_background_progress else "in calls of hpcomm only",
        )
        logger.debug("algorithms chosen:\n%s", core.selection_map())
        return _world


def source() -> str:
    """Return how the ranks were found, for people; empty before `init`."""
    return _source
