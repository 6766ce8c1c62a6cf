"""One rank's array on every rank."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from hpcomm import buffers, checks
from hpcomm.collectives._call import conclude, destination

if TYPE_CHECKING:
    from hpcomm.communicator import Communicator

__all__ = ["broadcast"]


def broadcast(
    comm: Communicator,
    x: Any,
    root: int = 0,
    out: Any = None,
    *,
    algorithm: str | None = None,
    timeout_s: float | None = None,
    asynchronous: bool = False,
) -> Any:
    """Give every rank the array of rank ``root``.

    Collective: all ranks must call it, in the same order of operations, with equal shape, dtype and
    ``root``.

    Args:
        comm: the communicator (``self`` when called as a method).
        x: on ``root`` the data; on the others an array of the same shape and dtype whose values do
            not matter. Dtypes and libraries as in `allreduce`.
        root: whose data everyone gets.
        out: array of the shape and dtype of ``x`` to write to; ``out=x`` works in place. None makes
            a new one.
        algorithm: name of an algorithm; None lets the selection table choose.
        timeout_s: seconds for the whole operation; None takes the communicator's.
        asynchronous: return at once with a `Work`; ``x`` and ``out`` may not be touched before it
            is complete.

    Returns:
        ``out``; without it ``x`` itself on ``root`` and a new array of the kind of ``x`` on the
        others. If ``asynchronous`` a `Work` that delivers it.

    Raises:
        InvalidArgumentError: an argument cannot be used on this rank.
        MismatchError: the ranks called different operations, dtypes, counts or roots; on every
            rank, nothing was written.
        CommTimeoutError: a rank did not come in time; the message names it, the communicator is
            broken.
        PeerDiedError: a rank died; the communicator is broken.
    """
    source = buffers.readable(x)
    checks.peer(comm, "broadcast", "root", root)
    limit_s = checks.timeout_s(timeout_s, "broadcast: timeout_s", comm.timeout_s)
    if comm.rank == root and out is None:
        array, finish = source.array, lambda: x
    else:
        array, finish = destination(comm, "broadcast", source, out, source.array.shape)
        if comm.rank == root and array is not source.array:
            np.copyto(array, source.array)
    work = comm._core.broadcast(array, source.code, root, algorithm or "", limit_s, asynchronous)
    return conclude(work, limit_s, finish)
