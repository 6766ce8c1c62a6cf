"""What the collectives share: where a result goes, and how a call becomes a result or a `Work`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from hpcomm import buffers, checks
from hpcomm.work import Work

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from hpcomm import _core
    from hpcomm.buffers import View
    from hpcomm.communicator import Communicator


def destination(
    comm: Communicator, call: str, source: View, out: Any, shape: tuple[int, ...]
) -> tuple[NDArray[Any], Callable[[], Any]]:
    """Return the memory for a result of ``shape``, and what makes the user's object of it."""
    if out is None:
        array = buffers.empty(shape, source.array.dtype, source.kind)
        return array, lambda: source.wrap(array)
    view = buffers.writable(out)
    if view.array.shape != shape or view.code != source.code:
        checks.fail(
            comm,
            call,
            f"out must have shape {shape} and dtype {source.dtype} to hold the result, "
            f"got shape {view.array.shape} and dtype {view.dtype}",
        )
    if out is not source.origin and view.target is None and _overlap(source.array, view.array):
        source.array = source.array.copy()
    return view.array, view.commit


def _overlap(send: NDArray[Any], recv: NDArray[Any]) -> bool:
    """Return True where the two share memory but are not the same, as algorithms demand."""
    if not np.may_share_memory(send, recv):  # the usual case, and the cheaper question
        return False
    return send.nbytes != recv.nbytes or send.ctypes.data != recv.ctypes.data


def conclude(
    work: _core.Work | None, limit_s: float, finish: Callable[[], Any] | None = None
) -> Any:
    """Return the result of a blocking call, or the `Work` of an asynchronous one."""
    if work is not None:
        return Work(work, limit_s, finish)
    return None if finish is None else finish()
