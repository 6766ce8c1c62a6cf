"""Reduction of which every rank gets its own rows."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from hpcomm import buffers, checks
from hpcomm.collectives._call import conclude, destination

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hpcomm.communicator import Communicator

__all__ = ["reduce_scatter"]


def reduce_scatter(
    comm: Communicator,
    x: Any,
    op: str = "sum",
    counts: Sequence[int] | None = None,
    out: Any = None,
    *,
    algorithm: str | None = None,
    timeout_s: float | None = None,
    asynchronous: bool = False,
) -> Any:
    """Reduce ``x`` over all ranks and deal the rows of the result out, rank by rank.

    Collective: all ranks must call it, in the same order of operations, with equal shape, dtype,
    ``op`` and ``counts``.

    Args:
        comm: the communicator (``self`` when called as a method).
        x: array of shape (n, *S); dtypes and libraries as in `allreduce`.
        op: "sum", "avg" (floating point only), "min", "max" or "prod".
        counts: rows that each rank gets, together n; None deals equally, for which the size must
            divide n.
        out: array of shape (rows of this rank, *S) and the dtype of ``x`` to write to; None makes a
            new one.
        algorithm: name of an algorithm; None lets the selection table choose.
        timeout_s: seconds for the whole operation; None takes the communicator's.
        asynchronous: return at once with a `Work`; ``x`` and ``out`` may not be touched before it
            is complete.

    Returns:
        Array of shape (rows of this rank, *S) and the kind and dtype of ``x``. If ``asynchronous``
        a `Work` that delivers it.

    Raises:
        InvalidArgumentError: an argument cannot be used on this rank.
        MismatchError: the ranks called different operations, dtypes, counts or ops; on every rank,
            nothing was written.
        CommTimeoutError: a rank did not come in time; the message names it, the communicator is
            broken.
        PeerDiedError: a rank died; the communicator is broken.
    """
    source = buffers.readable(x)
    code = checks.op(comm, "reduce_scatter", op, source.dtype)
    if source.array.ndim == 0:
        checks.fail(comm, "reduce_scatter", "x must have rows to deal out, got a scalar")
    total, row_shape = source.array.shape[0], source.array.shape[1:]
    if counts is None:
        if total % comm.size != 0:
            checks.fail(
                comm,
                "reduce_scatter",
                f"{total} rows cannot be dealt equally to {comm.size} ranks; pass counts= or pad x",
            )
        rows = [total // comm.size] * comm.size
    else:
        rows = checks.counts(comm, "reduce_scatter", counts)
        if sum(rows) != total:
            checks.fail(comm, "reduce_scatter", f"counts add up to {sum(rows)} rows, x has {total}")
    recv, finish = destination(comm, "reduce_scatter", source, out, (rows[comm.rank], *row_shape))
    row_elements = math.prod(row_shape)
    elements = [] if counts is None else [row * row_elements for row in rows]
    limit_s = checks.timeout_s(timeout_s, "reduce_scatter: timeout_s", comm.timeout_s)
    work = comm._core.reduce_scatter(
        source.array, recv, source.code, code, elements, algorithm or "", limit_s, asynchronous
    )
    return conclude(work, limit_s, finish)
