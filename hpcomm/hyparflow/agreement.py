"""Failures and arguments that all ranks must know of before anything is sent."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any, TypeVar

from hpcomm import errors
from hpcomm.errors import HpcommError, MismatchError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from hpcomm.communicator import Communicator

__all__ = [
    "PATIENCE_S",
    "agree",
    "closing_on_failure",
    "demand_equal",
    "describe",
    "tell",
]

PATIENCE_S = 24 * 3600.0
"""Deadline in seconds of waits for the user's own code on another rank (a callback, a data source).

Such code may take as long as it likes: a process that dies is noticed without any deadline.
"""

T = TypeVar("T")


def agree(comm: Communicator, work: Callable[[], T]) -> T:
    """Run local work on every rank; if it fails on one, raise on all.

    Collective over ``comm``. ``work`` itself must not communicate.

    Args:
        comm: all ranks concerned.
        work: what to do.

    Returns:
        This rank's result, once every rank has one.

    Raises:
        HpcommError: the failure of the first rank that failed, in its class if that is one of
            hpcomm's, so that every rank says the same.
        Exception: this rank's own failure, if it is none of hpcomm's errors.
    """
    value: Any = None
    failure: Exception | None = None
    try:
        value = work()
    except Exception as error:
        failure = error
    report = None if failure is None else (type(failure).__name__, describe(failure))
    reports = comm.allgather_object(report)
    for rank, other in enumerate(reports):
        if other is None:
            continue
        if failure is not None and (other == report or not isinstance(failure, HpcommError)):
            raise failure
        kind, text = other
        raise rebuild(kind, text, rank) from failure
    result: T = value
    return result


def demand_equal(comm: Communicator, call: str, arguments: Mapping[str, Any]) -> None:
    """Raise on every rank unless all ranks passed equal arguments.

    Collective over ``comm``.

    Args:
        comm: all ranks concerned.
        call: name of the public function, for the message.
        arguments: name → plain value (compared with ``==`` after a round of pickling).

    Raises:
        MismatchError: some differ; the message names each with both values.
    """
    everyone = comm.allgather_object(dict(arguments))
    reference = everyone[0]
    for rank, theirs in enumerate(everyone):
        different = [
            f"{name} is {theirs.get(name)!r} on rank {rank} but {reference.get(name)!r} on rank 0"
            for name in sorted(reference.keys() | theirs.keys())
            if theirs.get(name) != reference.get(name)
        ]
        if different:
            raise MismatchError(
                f"{call}: all ranks must pass the same arguments; " + "; ".join(different),
                rank=rank,
            )


def describe(error: BaseException) -> str:
    """Return one line that says what happened: hpcomm's errors speak for themselves."""
    text = " ".join(str(error).split()) or "no message"
    return text if isinstance(error, HpcommError) else f"{type(error).__name__}: {text}"


def rebuild(kind: str, text: str, rank: int) -> HpcommError:
    """Make an error of the named class, or the base class for one that hpcomm does not know."""
    cls = getattr(errors, kind, None)
    if isinstance(cls, type) and issubclass(cls, HpcommError):
        return cls(text, rank=rank)
    return HpcommError(f"rank {rank} failed: {text}", rank=rank)


def must_be_told(error: BaseException) -> bool:
    """Tell whether ``error`` is one that the other ranks do not raise too, all of them."""
    if isinstance(error, errors.PeerDiedError):
        return True  # one communicator knows; others may wait for this rank on another one
    together = (
        errors.InvalidArgumentError,
        errors.UnsupportedError,
        errors.CallbackError,
        errors.DataError,
        errors.NonFiniteLossError,
        errors.TransportError,
        errors.CommTimeoutError,
        errors.CommunicatorBrokenError,
    )
    return not isinstance(error, together) and type(error) is not HpcommError


def tell(comms: Iterable[Communicator | None], error: BaseException) -> None:
    """Tell the other ranks what made this one fail, if they do not know, wherever they wait."""
    if not must_be_told(error):
        return
    for comm in comms:
        if comm is not None and not comm.is_broken:
            comm.abort(describe(error), cause=error)


@contextlib.contextmanager
def closing_on_failure(comms: Iterable[Communicator]) -> Iterator[None]:
    """Close communicators of something whose making, in the block, fails.

    A failure of this rank alone is told to the others first, whichever of them they wait in.

    Args:
        comms: those that were made; read when the block fails, so it may be a list that grows.
    """
    try:
        yield
    except BaseException as error:
        made = list(comms)
        tell(made, error)
        for comm in made:
            comm.close()
        raise
