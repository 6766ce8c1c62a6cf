"""Messages from one rank to another."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from hpcomm import buffers, checks
from hpcomm.work import Work

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hpcomm.communicator import Communicator

__all__ = ["irecv", "isend", "recv", "send"]


def send(
    comm: Communicator, x: Any, dst: int, tag: int = 0, *, timeout_s: float | None = None
) -> None:
    """Send ``x`` to rank ``dst`` and return when ``x`` may be changed again.

    A large message waits for the receiver: two ranks that send to each other first and receive then
    wait for ever, or until the deadline; use `isend`, or let one of them receive first.

    Args:
        comm: the communicator (``self`` when called as a method).
        x: array of any shape; float16, bfloat16, float32, float64, (u)int8-64, bool; host memory of
            NumPy, torch, TensorFlow, DLPack or the buffer protocol. Only the elements travel, not
            shape and dtype.
        dst: receiving rank.
        tag: 0 … 16383; messages of one sender and one tag arrive in the order they were sent.
        timeout_s: seconds to wait; None takes the communicator's.

    Raises:
        InvalidArgumentError: an argument cannot be used.
        CommTimeoutError: the receiver did not take it in time; the communicator is broken.
        PeerDiedError: the receiver died; the communicator is broken.
    """
    source = buffers.readable(x)
    peer = checks.peer(comm, "send", "dst", dst)
    limit_s = checks.timeout_s(timeout_s, "send: timeout_s", comm.timeout_s)
    comm._core.send(source.array, peer, checks.tag(comm, "send", tag), limit_s)


def recv(
    comm: Communicator,
    src: int,
    tag: int = 0,
    out: Any = None,
    shape: Sequence[int] | int | None = None,
    dtype: Any = None,
    *,
    timeout_s: float | None = None,
) -> Any:
    """Receive the next message of rank ``src`` with ``tag``.

    Say where it goes (``out``), or what it is (``dtype``, and ``shape`` unless one dimension of
    unknown length is meant).

    Args:
        comm: the communicator (``self`` when called as a method).
        src: sending rank.
        tag: 0 … 16383.
        out: writable array of exactly the bytes that were sent.
        shape: shape of a new NumPy array; None takes as many elements as come, in one dimension.
        dtype: element type of a new NumPy array: NumPy's, torch's, TensorFlow's or a name.
        timeout_s: seconds to wait; None takes the communicator's.

    Returns:
        ``out``, or a new NumPy array.

    Raises:
        InvalidArgumentError: an argument cannot be used.
        MismatchError: the message has another length than ``out`` or ``shape``; the communicator
            stays usable.
        CommTimeoutError: no message in time; the communicator is broken.
        PeerDiedError: the sender died; the communicator is broken.
    """
    peer = checks.peer(comm, "recv", "src", src)
    number = checks.tag(comm, "recv", tag)
    limit_s = checks.timeout_s(timeout_s, "recv: timeout_s", comm.timeout_s)
    if out is None and shape is None and dtype is not None:
        element = buffers.dtype_of(dtype)
        nbytes = comm._core.probe(peer, number, limit_s)
        if nbytes % element.itemsize != 0:
            checks.fail(
                comm,
                "recv",
                f"rank {peer} sent {nbytes} bytes, no whole number of {element}; the message is "
                "still there, receive it with another dtype",
            )
        shape = nbytes // element.itemsize
    view = _target(comm, "recv", out, shape, dtype)
    comm._core.recv(view.array, peer, number, limit_s)
    return view.commit()


def isend(comm: Communicator, x: Any, dst: int, tag: int = 0) -> Work:
    """Start sending ``x`` to rank ``dst``.

    Args:
        comm: the communicator (``self`` when called as a method).
        x: as for `send`; may not be changed before the `Work` is complete.
        dst: receiving rank.
        tag: 0 … 16383.

    Returns:
        `Work` that delivers None.

    Raises:
        InvalidArgumentError: an argument cannot be used.
    """
    source = buffers.readable(x)
    peer = checks.peer(comm, "isend", "dst", dst)
    number = checks.tag(comm, "isend", tag)
    return Work(comm._core.isend(source.array, peer, number), comm.timeout_s)


def irecv(
    comm: Communicator,
    src: int,
    tag: int = 0,
    out: Any = None,
    shape: Sequence[int] | int | None = None,
    dtype: Any = None,
) -> Work:
    """Start receiving the next message of rank ``src`` with ``tag``.

    Args:
        comm: the communicator (``self`` when called as a method).
        src: sending rank.
        tag: 0 … 16383.
        out: writable array of exactly the bytes that are sent; may not be touched before the `Work`
            is complete.
        shape: without ``out``, shape of a new NumPy array.
        dtype: without ``out``, its element type.

    Returns:
        `Work` that delivers ``out`` or the new array.

    Raises:
        InvalidArgumentError: an argument cannot be used, or neither ``out`` nor both of ``shape``
            and ``dtype`` are given.
    """
    peer = checks.peer(comm, "irecv", "src", src)
    number = checks.tag(comm, "irecv", tag)
    view = _target(comm, "irecv", out, shape, dtype)
    return Work(comm._core.irecv(view.array, peer, number), comm.timeout_s, view.commit)


def _target(
    comm: Communicator, call: str, out: Any, shape: Sequence[int] | int | None, dtype: Any
) -> buffers.View:
    if out is not None:
        if shape is not None or dtype is not None:
            checks.fail(comm, call, "out= already says shape and dtype; pass one or the other")
        return buffers.writable(out)
    if shape is None or dtype is None:
        checks.fail(comm, call, "nothing says what to receive; pass out=, or shape= and dtype=")
    lengths = tuple(
        checks.whole(n, f"{call}: shape") for n in ((shape,) if isinstance(shape, int) else shape)
    )
    if any(length < 0 for length in lengths):
        checks.fail(comm, call, f"shape must be >= 0, got {lengths}")
    return buffers.writable(np.empty(lengths, buffers.dtype_of(dtype)))
