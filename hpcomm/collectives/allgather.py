"""Every rank's array on every rank."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from hpcomm import buffers, checks
from hpcomm.collectives._call import conclude, destination

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hpcomm.communicator import Communicator

__all__ = ["allgather", "allgatherv"]


def allgather(
    comm: Communicator,
    x: Any,
    out: Any = None,
    *,
    algorithm: str | None = None,
    timeout_s: float | None = None,
    asynchronous: bool = False,
) -> Any:
    """Collect the arrays of all ranks, stacked along a new first axis, on every rank.

    Collective: all ranks must call it, in the same order of operations, with equal shape and dtype.

    Args:
        comm: the communicator (``self`` when called as a method).
        x: array of shape (*S,); dtypes and libraries as in `allreduce`.
        out: array of shape (size, *S) and the dtype of ``x`` to write to; None makes a new one.
        algorithm: name of an algorithm; None lets the selection table choose.
        timeout_s: seconds for the whole operation; None takes the communicator's.
        asynchronous: return at once with a `Work`; ``x`` and ``out`` may not be touched before it
            is complete.

    Returns:
        Array of shape (size, *S) and the kind and dtype of ``x``; row r is what rank r passed. If
        ``asynchronous`` a `Work` that delivers it.

    Raises:
        InvalidArgumentError: an argument cannot be used on this rank.
        MismatchError: the ranks called different operations, dtypes or counts; on every rank,
            nothing was written.
        CommTimeoutError: a rank did not come in time; the message names it, the communicator is
            broken.
        PeerDiedError: a rank died; the communicator is broken.
    """
    source = buffers.readable(x)
    recv, finish = destination(comm, "allgather", source, out, (comm.size, *source.array.shape))
    limit_s = checks.timeout_s(timeout_s, "allgather: timeout_s", comm.timeout_s)
    work = comm._core.allgather(
        source.array, recv, source.code, [], algorithm or "", limit_s, asynchronous
    )
    return conclude(work, limit_s, finish)


def allgatherv(
    comm: Communicator,
    x: Any,
    counts: Sequence[int] | None = None,
    out: Any = None,
    *,
    algorithm: str | None = None,
    timeout_s: float | None = None,
    asynchronous: bool = False,
) -> Any:
    """Collect the rows of all ranks, which may have different numbers of them, on every rank.

    Collective: all ranks must call it, in the same order of operations, with equal dtype and equal
    shape of a row.

    Args:
        comm: the communicator (``self`` when called as a method).
        x: array of shape (n_rank, *S) with n_rank >= 0; dtypes and libraries as in `allreduce`.
        counts: n_rank of every rank, equal on all ranks; None asks the ranks, which blocks also if
            ``asynchronous``.
        out: array of shape (sum of counts, *S) and the dtype of ``x`` to write to; None makes a new
            one.
        algorithm: name of an algorithm; None lets the selection table choose.
        timeout_s: seconds for the whole operation; None takes the communicator's.
        asynchronous: return at once with a `Work`; ``x`` and ``out`` may not be touched before it
            is complete.

    Returns:
        Array of shape (sum of counts, *S) and the kind and dtype of ``x``: the rows of rank 0, of
        rank 1, …. If ``asynchronous`` a `Work` that delivers it.

    Raises:
        InvalidArgumentError: an argument cannot be used on this rank.
        MismatchError: the ranks called different operations, dtypes or counts; on every rank,
            nothing was written.
        CommTimeoutError: a rank did not come in time; the message names it, the communicator is
            broken.
        PeerDiedError: a rank died; the communicator is broken.
    """
    source = buffers.readable(x)
    if source.array.ndim == 0:
        checks.fail(comm, "allgatherv", "x must have rows, got a scalar; use allgather")
    mine = source.array.shape[0]
    limit_s = checks.timeout_s(timeout_s, "allgatherv: timeout_s", comm.timeout_s)
    if counts is None:
        rows = [int(row) for row in allgather(comm, np.array(mine, np.int64), timeout_s=limit_s)]
    else:
        rows = checks.counts(comm, "allgatherv", counts)
        if rows[comm.rank] != mine:
            checks.fail(
                comm,
                "allgatherv",
                f"counts says {rows[comm.rank]} rows for this rank, x has {mine}",
            )
    row_shape = source.array.shape[1:]
    recv, finish = destination(comm, "allgatherv", source, out, (sum(rows), *row_shape))
    row_elements = math.prod(row_shape)
    elements = [row * row_elements for row in rows]
    work = comm._core.allgather(
        source.array, recv, source.code, elements, algorithm or "", limit_s, asynchronous
    )
    return conclude(work, limit_s, finish)
