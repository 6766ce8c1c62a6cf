"""The handle of an asynchronous operation."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from hpcomm import checks

if TYPE_CHECKING:
    from collections.abc import Callable

    from hpcomm import _core

__all__ = ["Work"]


class Work:
    """One pending operation of a communicator.

    The handle keeps the arrays of the operation alive until it is complete, also if the handle
    itself is dropped. An input may not be changed, and an output may not be read, before `wait` has
    returned or `test` has said True.
    """

    __slots__ = ("_finish", "_limit_s", "_pending", "_result")

    def __init__(
        self, pending: _core.Work, limit_s: float, finish: Callable[[], Any] | None = None
    ) -> None:
        """Wrap the core's handle; ``finish`` makes the user's result once the data are there."""
        self._pending = pending
        self._limit_s = limit_s
        self._finish = finish
        self._result: Any = None

    def wait(self, timeout_s: float | None = None) -> Any:
        """Block until the operation is complete.

        Args:
            timeout_s: seconds to wait from now; None takes the time limit of the operation.

        Returns:
            What the blocking form returns: an array of the same kind as the input, or None for
            sends and barriers. Later calls return the same object.

        Raises:
            CommTimeoutError: not complete in time; the operation is given up, and the communicator
                is broken.
            TransportError: a peer died, aborted or cannot be reached.
            MismatchError: the ranks passed arguments that do not fit together.
        """
        self._pending.wait(checks.timeout_s(timeout_s, "wait: timeout_s", self._limit_s))
        return self._deliver()

    def test(self) -> bool:
        """Return True once the operation is complete, without blocking.

        Returns:
            Whether `wait` would return, or raise, at once.
        """
        return self._pending.test()

    def exception(self) -> BaseException | None:
        """Return the error the operation ended with; None while pending and after success."""
        return self._pending.exception()

    @property
    def submitted_ns(self) -> int:
        """When the operation was submitted, in nanoseconds of CLOCK_MONOTONIC."""
        return self._pending.submitted_ns

    @property
    def completed_ns(self) -> int:
        """When it was complete, in nanoseconds of CLOCK_MONOTONIC; 0 while pending."""
        return self._pending.completed_ns

    def _deliver(self) -> Any:
        if self._finish is not None:
            finish, self._finish = self._finish, None
            self._result = finish()
        return self._result

    def __repr__(self) -> str:
        """Show the state."""
        return f"<hpcomm.Work {'complete' if self._pending.test() else 'pending'}>"
