"""Waiting for everyone."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from hpcomm import checks
from hpcomm.collectives._call import conclude

if TYPE_CHECKING:
    from hpcomm.communicator import Communicator

__all__ = ["barrier"]


def barrier(
    comm: Communicator, *, timeout_s: float | None = None, asynchronous: bool = False
) -> Any:
    """Return when all ranks have called.

    Collective: all ranks must call it, in the same order of operations.

    Args:
        comm: the communicator (``self`` when called as a method).
        timeout_s: seconds to wait; None takes the communicator's.
        asynchronous: return at once with a `Work`.

    Returns:
        None; if ``asynchronous`` a `Work` that is complete when all ranks have called.

    Raises:
        MismatchError: the ranks called different operations; on every rank.
        CommTimeoutError: a rank did not come in time; the message names it, the communicator is
            broken.
        PeerDiedError: a rank died; the communicator is broken.
    """
    limit_s = checks.timeout_s(timeout_s, "barrier: timeout_s", comm.timeout_s)
    return conclude(comm._core.barrier(limit_s, asynchronous), limit_s)
