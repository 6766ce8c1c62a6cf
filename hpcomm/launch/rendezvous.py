"""How the ranks of one machine meet without MPI: a socket of the launcher, for small messages.

The only operation is an allgather of byte strings, used while communicators are made. The socket
has an abstract address, which is no file and vanishes with the launcher, and takes connections of
this user alone.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import selectors
import socket
import struct
import threading

from hpcomm.errors import CommTimeoutError, LaunchError

__all__ = ["Client", "Server"]

_HELLO = struct.Struct("!I")  # rank
_LENGTH = struct.Struct("!Q")
_LOST = (1 << 64) - 1  # instead of a length: the rest of the message says why there is none


def _receive(connection: socket.socket, nbytes: int) -> bytes:
    data = bytearray()
    while len(data) < nbytes:
        block = connection.recv(min(nbytes - len(data), 1 << 20))
        if not block:
            raise ConnectionResetError("the launcher closed the connection")
        data += block
    return bytes(data)


class Client:
    """A rank's connection; made at the first use and kept."""

    def __init__(self, address: str, rank: int, size: int) -> None:
        self.rank = rank
        self.size = size
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            self._socket.connect("\0" + address)
            self._socket.sendall(_HELLO.pack(rank))
        except OSError as error:
            self._socket.close()
            raise LaunchError(
                f"rank {rank} cannot reach the launcher that started it ({error}); it has ended, "
                "or HPCOMM_RENDEZVOUS was inherited from another job: unset it"
            ) from error

    def exchange(self, mine: bytes, timeout_s: float) -> list[bytes]:
        """Return the byte strings of all ranks; all must call it equally often."""
        self._socket.settimeout(None if timeout_s == float("inf") else timeout_s)
        try:
            self._socket.sendall(_LENGTH.pack(len(mine)) + mine)
            return [self._take() for _ in range(self.size)]
        except TimeoutError:
            raise CommTimeoutError(
                f"rank {self.rank} waited {timeout_s:g} s for all {self.size} ranks to call "
                "hpcomm.init(); some did not"
            ) from None
        except OSError as error:
            raise LaunchError(f"rank {self.rank} lost its launcher: {error}") from error

    def _take(self) -> bytes:
        (nbytes,) = _LENGTH.unpack(_receive(self._socket, _LENGTH.size))
        if nbytes == _LOST:
            (length,) = _LENGTH.unpack(_receive(self._socket, _LENGTH.size))
            raise LaunchError(_receive(self._socket, length).decode())
        return _receive(self._socket, nbytes)

    def close(self) -> None:
        """Hang up."""
        self._socket.close()


class Server:
    """The launcher's end; serves all ranks on one thread until `close`."""

    def __init__(self, size: int) -> None:
        self.size = size
        self.address = f"hpcomm-{secrets.token_hex(16)}"
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._listener.bind("\0" + self.address)
        self._listener.listen(size + 16)
        self._wake_reader, self._wake_writer = os.pipe()
        self._failure = ""
        self._connections: dict[int, socket.socket] = {}
        self._received: dict[socket.socket, bytearray] = {}
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._listener, selectors.EVENT_READ)
        self._selector.register(self._wake_reader, selectors.EVENT_READ)
        self._thread = threading.Thread(target=self._serve, name="hpcomm-rendezvous", daemon=True)
        self._thread.start()

    def fail(self, message: str) -> None:
        """Answer all ranks that wait, now or later, with a `LaunchError` that says ``message``."""
        self._failure = message
        os.write(self._wake_writer, b"f")

    def close(self) -> None:
        """Stop serving."""
        os.write(self._wake_writer, b"c")
        self._thread.join()
        for connection in [*self._received, self._listener]:
            connection.close()
        self._selector.close()
        os.close(self._wake_reader)
        os.close(self._wake_writer)

    def _serve(self) -> None:
        while True:
            for key, _ in self._selector.select():
                if key.fileobj is self._listener:
                    self._accept()
                elif key.fileobj == self._wake_reader:
                    if b"c" in os.read(self._wake_reader, 64):
                        return
                else:
                    self._read(key.fileobj)  # type: ignore[arg-type]
            self._answer()

    def _accept(self) -> None:
        connection, _ = self._listener.accept()
        credentials = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12)
        if struct.unpack("3i", credentials)[1] != os.geteuid():
            connection.close()
            return
        self._received[connection] = bytearray()
        self._selector.register(connection, selectors.EVENT_READ)

    def _read(self, connection: socket.socket) -> None:
        block = b""
        with contextlib.suppress(OSError):
            block = connection.recv(1 << 20)
        if not block:
            self._drop(connection)
            return
        data = self._received[connection]
        data += block
        if connection not in self._connections.values() and len(data) >= _HELLO.size:
            (rank,) = _HELLO.unpack(data[: _HELLO.size])
            del data[: _HELLO.size]
            self._connections[rank] = connection  # a later program of the same rank replaces it

    def _drop(self, connection: socket.socket) -> None:
        self._selector.unregister(connection)
        del self._received[connection]
        for rank in [rank for rank, other in self._connections.items() if other is connection]:
            del self._connections[rank]
        connection.close()

    def _message(self, rank: int) -> bytes | None:
        """Return what a rank sent, with its length, or None while it is not all there."""
        connection = self._connections.get(rank)
        data = self._received.get(connection) if connection is not None else None
        if data is None or len(data) < _LENGTH.size:
            return None
        (nbytes,) = _LENGTH.unpack(data[: _LENGTH.size])
        whole = _LENGTH.size + nbytes
        return bytes(data[:whole]) if len(data) >= whole else None

    def _answer(self) -> None:
        """Reply to all ranks once all have sent, or to those that wait once the job has failed."""
        while True:
            messages = [self._message(rank) for rank in range(self.size)]
            if all(message is not None for message in messages):
                reply = b"".join(message for message in messages if message is not None)
            elif self._failure and any(message is not None for message in messages):
                text = self._failure.encode()
                reply = _LENGTH.pack(_LOST) + _LENGTH.pack(len(text)) + text
            else:
                return
            for rank, message in enumerate(messages):
                if message is not None:
                    connection = self._connections[rank]
                    del self._received[connection][: len(message)]
                    with contextlib.suppress(OSError):
                        connection.sendall(reply)
