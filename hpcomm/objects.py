"""Any Python object, pickled, between ranks that trust each other.

An object travels as a header of two 64-bit numbers (bytes of the pickle stream, number of buffers
beside it), the stream, and, for objects such as NumPy arrays whose memory pickle protocol 5 keeps
out of the stream, that memory itself without a copy. A rank that cannot pickle its object says so
in the header, so that a collective fails on every rank alike.
"""

from __future__ import annotations

import pickle
from typing import TYPE_CHECKING, Any

import numpy as np

from hpcomm import _core, checks
from hpcomm.errors import InvalidArgumentError

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from hpcomm.communicator import Communicator

__all__ = ["allgather_object", "broadcast_object", "recv_object", "send_object"]

_FAILED = (1 << 64) - 1  # in the place of the number of buffers: the stream is a text that says why
_BYTE = 5  # the core's number of uint8
_WORD = 11  # and of uint64


def _pickled(obj: Any, *, apart: bool) -> tuple[NDArray[np.uint8], list[NDArray[np.uint8]]]:
    """Return the stream and the memory beside it, as bytes."""
    beside: list[pickle.PickleBuffer] = []
    stream = pickle.dumps(obj, protocol=5, buffer_callback=beside.append if apart else None)
    return np.frombuffer(stream, np.uint8), [
        np.frombuffer(buffer.raw(), np.uint8) for buffer in beside
    ]


def _complaint(call: str, comm: Communicator, obj: Any, error: Exception) -> str:
    what = f"{type(obj).__name__} of rank {comm.rank}"
    return f"{call}: {what} cannot be pickled: {type(error).__name__}: {error}"


def _words(*values: int) -> NDArray[np.uint64]:
    return np.array(values, np.uint64)


def send_object(comm: Communicator, obj: Any, dst: int, *, timeout_s: float | None = None) -> None:
    """Send any object that can be pickled to rank ``dst``.

    Args:
        comm: the communicator (``self`` when called as a method).
        obj: the object.
        dst: receiving rank.
        timeout_s: seconds to wait; None takes the communicator's.

    Raises:
        InvalidArgumentError: ``obj`` cannot be pickled; nothing was sent.
        CommTimeoutError: the receiver did not take it in time; the communicator is broken.
    """
    peer = checks.peer(comm, "send_object", "dst", dst)
    limit_s = checks.timeout_s(timeout_s, "send_object: timeout_s", comm.timeout_s)
    try:
        stream, beside = _pickled(obj, apart=True)
    except Exception as error:
        raise InvalidArgumentError(
            _complaint("send_object", comm, obj, error), rank=comm.rank
        ) from error
    core, tag = comm._core, _core.TAG_OBJECT
    core.send(_words(stream.nbytes, len(beside)), peer, tag, limit_s)
    core.send(stream, peer, tag, limit_s)
    if beside:
        core.send(_words(*(buffer.nbytes for buffer in beside)), peer, tag, limit_s)
    for buffer in beside:
        core.send(buffer, peer, tag, limit_s)


def recv_object(comm: Communicator, src: int, *, timeout_s: float | None = None) -> Any:
    """Receive the next object of rank ``src``.

    The data are unpickled, which runs what the sender says; ranks of one job trust each other.

    Args:
        comm: the communicator (``self`` when called as a method).
        src: sending rank.
        timeout_s: seconds to wait; None takes the communicator's.

    Returns:
        The object.

    Raises:
        CommTimeoutError: no object in time; the communicator is broken.
    """
    peer = checks.peer(comm, "recv_object", "src", src)
    limit_s = checks.timeout_s(timeout_s, "recv_object: timeout_s", comm.timeout_s)

    def take(array: NDArray[Any]) -> NDArray[Any]:
        comm._core.recv(array, peer, _core.TAG_OBJECT, limit_s)
        return array

    nbytes, num_beside = take(np.empty(2, np.uint64)).tolist()
    stream = take(np.empty(nbytes, np.uint8))
    lengths = take(np.empty(num_beside, np.uint64)).tolist() if num_beside else []
    beside = [take(np.empty(length, np.uint8)) for length in lengths]
    return pickle.loads(stream.data, buffers=beside)


def broadcast_object(
    comm: Communicator, obj: Any = None, root: int = 0, *, timeout_s: float | None = None
) -> Any:
    """Give every rank the object of rank ``root``.

    Collective: all ranks must call it, in the same order of operations, with equal ``root``.

    Args:
        comm: the communicator (``self`` when called as a method).
        obj: on ``root`` the object; ignored on the others.
        root: whose object everyone gets.
        timeout_s: seconds for each message; None takes the communicator's.

    Returns:
        ``obj`` itself on ``root``, a copy on the others.

    Raises:
        InvalidArgumentError: the object cannot be pickled; on every rank, the communicator stays
            usable.
        CommTimeoutError: a rank did not come in time; the communicator is broken.
    """
    checks.peer(comm, "broadcast_object", "root", root)
    limit_s = checks.timeout_s(timeout_s, "broadcast_object: timeout_s", comm.timeout_s)

    def share(array: NDArray[Any], code: int) -> NDArray[Any]:
        comm._core.broadcast(array, code, root, "", limit_s, False)
        return array

    failure: Exception | None = None
    if comm.rank == root:
        try:
            stream, beside = _pickled(obj, apart=True)
            head = _words(stream.nbytes, len(beside))
        except Exception as error:
            failure = error
            text = _complaint("broadcast_object", comm, obj, error)
            stream, beside = np.frombuffer(text.encode(), np.uint8), []
            head = _words(stream.nbytes, _FAILED)
        share(head, _WORD)
        share(stream, _BYTE)
        if beside:
            share(_words(*(buffer.nbytes for buffer in beside)), _WORD)
        for buffer in beside:
            share(buffer, _BYTE)
        if failure is not None:
            raise InvalidArgumentError(stream.tobytes().decode(), rank=root) from failure
        return obj
    nbytes, num_beside = share(np.empty(2, np.uint64), _WORD).tolist()
    stream = share(np.empty(nbytes, np.uint8), _BYTE)
    if num_beside == _FAILED:
        raise InvalidArgumentError(stream.tobytes().decode(), rank=root)
    lengths = share(np.empty(num_beside, np.uint64), _WORD).tolist() if num_beside else []
    received = [share(np.empty(length, np.uint8), _BYTE) for length in lengths]
    return pickle.loads(stream.data, buffers=received)


def allgather_object(comm: Communicator, obj: Any, *, timeout_s: float | None = None) -> list[Any]:
    """Collect the objects of all ranks on every rank.

    Collective: all ranks must call it, in the same order of operations.

    Args:
        comm: the communicator (``self`` when called as a method).
        obj: this rank's object.
        timeout_s: seconds for each message; None takes the communicator's.

    Returns:
        One object per rank; ``obj`` itself in this rank's place.

    Raises:
        InvalidArgumentError: an object cannot be pickled; on every rank, the communicator stays
            usable.
        CommTimeoutError: a rank did not come in time; the communicator is broken.
    """
    limit_s = checks.timeout_s(timeout_s, "allgather_object: timeout_s", comm.timeout_s)
    failure: Exception | None = None
    try:
        stream, _ = _pickled(obj, apart=False)
    except Exception as error:
        failure = error
        stream = np.frombuffer(_complaint("allgather_object", comm, obj, error).encode(), np.uint8)
    heads = np.empty((comm.size, 2), np.uint64)
    mine = _words(stream.nbytes, 0 if failure is None else _FAILED)
    comm._core.allgather(mine, heads, _WORD, [], "", limit_s, False)
    lengths = [int(length) for length in heads[:, 0]]
    everything = np.empty(sum(lengths), np.uint8)
    comm._core.allgather(stream, everything, _BYTE, lengths, "", limit_s, False)
    parts = np.split(everything, np.cumsum(lengths)[:-1])
    for rank, part in enumerate(parts):
        if heads[rank, 1] == _FAILED:
            raise InvalidArgumentError(part.tobytes().decode(), rank=rank) from failure
    return [
        obj if rank == comm.rank else pickle.loads(part.data) for rank, part in enumerate(parts)
    ]
