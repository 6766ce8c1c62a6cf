"""Reduction whose result every rank gets."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from hpcomm import buffers, checks
from hpcomm.collectives._call import conclude, destination

if TYPE_CHECKING:
    from hpcomm.communicator import Communicator

__all__ = ["allreduce"]


def allreduce(
    comm: Communicator,
    x: Any,
    op: str = "sum",
    out: Any = None,
    *,
    algorithm: str | None = None,
    timeout_s: float | None = None,
    asynchronous: bool = False,
) -> Any:
    """Reduce ``x`` over all ranks; every rank gets the result.

    Collective: all ranks must call it, in the same order of operations, with equal shape, dtype and
    ``op``.

    Args:
        comm: the communicator (``self`` when called as a method).
        x: array of any shape; float16, bfloat16, float32, float64, (u)int8-64, bool; host memory of
            NumPy, torch, TensorFlow, DLPack or the buffer protocol.
        op: "sum", "avg" (floating point only), "min", "max" or "prod"; "min" and "max" carry NaN
            on.
        out: array of the shape and dtype of ``x`` to write to; ``out=x`` works in place. None makes
            a new one.
        algorithm: name of an algorithm (`hpcomm info` lists them); None lets the selection table
            choose.
        timeout_s: seconds for the whole operation; None takes the communicator's.
        asynchronous: return at once with a `Work`; ``x`` and ``out`` may not be touched before it
            is complete.

    Returns:
        ``out``, or an array of the kind, shape and dtype of ``x``; if ``asynchronous`` a `Work`
        that delivers it.

    Raises:
        InvalidArgumentError: an argument cannot be used on this rank.
        MismatchError: the ranks called different operations, dtypes, counts or ops; on every rank,
            nothing was written.
        CommTimeoutError: a rank did not come in time; the message names it, the communicator is
            broken.
        PeerDiedError: a rank died; the communicator is broken.

    Cost:
        See the chosen algorithm: `hpcomm info` prints the selection, csrc/collectives/allreduce the
        steps and bytes.
    """
    source = buffers.readable(x)
    code = checks.op(comm, "allreduce", op, source.dtype)
    recv, finish = destination(comm, "allreduce", source, out, source.array.shape)
    limit_s = checks.timeout_s(timeout_s, "allreduce: timeout_s", comm.timeout_s)
    work = comm._core.allreduce(
        source.array, recv, source.code, code, algorithm or "", limit_s, asynchronous
    )
    return conclude(work, limit_s, finish)
