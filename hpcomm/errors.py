"""The exception tree. Every failure of the compiled core arrives as one of these classes.

Two families matter to a caller. After an `InvalidArgumentError` (with `MismatchError` and
`ModelError`) or an `UnsupportedError` the communicator is as usable as before. After a
`CommTimeoutError` or a `TransportError` (with `PeerDiedError` and `PeerAbortedError`) it is broken,
and every later call raises `CommunicatorBrokenError`, which quotes the first failure.
"""

from __future__ import annotations

__all__ = [
    "CallbackError",
    "CommTimeoutError",
    "CommunicatorBrokenError",
    "DataError",
    "HpcommError",
    "InternalError",
    "InvalidArgumentError",
    "LaunchError",
    "MismatchError",
    "ModelError",
    "NonFiniteLossError",
    "PeerAbortedError",
    "PeerDiedError",
    "TransportError",
    "UnsupportedError",
]


class HpcommError(Exception):
    """Base of all errors that hpcomm raises on purpose.

    Attributes:
        rank: the rank, in the communicator concerned, that the message speaks about; -1 for none.
    """

    rank: int = -1

    def __init__(self, *args: object, rank: int = -1) -> None:
        """Keep the message in ``args`` and the rank beside it."""
        super().__init__(*args)
        self.rank = rank

    def __reduce__(self) -> tuple[object, ...]:
        """Pickle with the rank, so that an error can be sent to another rank."""
        return (type(self), self.args, {"rank": self.rank})


class InvalidArgumentError(HpcommError, ValueError):
    """An argument of this call is wrong; nothing was sent and the communicator stays usable."""


class MismatchError(InvalidArgumentError):
    """The ranks passed arguments that do not fit together; on every rank, nothing was written."""


class ModelError(InvalidArgumentError):
    """A model cannot be split, or cannot be trained, as asked."""


class UnsupportedError(HpcommError, NotImplementedError):
    """A valid wish that this build, transport or algorithm cannot serve."""


class CommTimeoutError(HpcommError, TimeoutError):
    """A peer did not answer before the deadline; the communicator is broken afterwards."""


class TransportError(HpcommError, ConnectionError):
    """The medium failed; the communicator is broken afterwards."""


class PeerDiedError(TransportError):
    """The process of a peer is gone; ``rank`` says which peer, -1 for none of this communicator.

    All survivors raise it, also those that waited for another survivor and were told by that one.
    """


class PeerAbortedError(TransportError):
    """A peer reported a failure of its own, which the message quotes; ``rank`` says which peer.

    Whatever the failure was: an exception in the program there, a deadline that passed there.
    """


class CommunicatorBrokenError(HpcommError):
    """The communicator failed earlier, or was closed; the message quotes the first failure."""


class LaunchError(HpcommError):
    """Ranks could not be started, or do not see each other as they should."""


class CallbackError(HpcommError):
    """A user's callback failed on rank 0; raised with the same text on every rank."""


class DataError(HpcommError):
    """A user's source of data failed on rank 0; raised with the same text on every rank."""


class NonFiniteLossError(HpcommError, ArithmeticError):
    """Training produced a loss that is not a number or infinite."""


class InternalError(HpcommError):
    """A defect of hpcomm itself."""
