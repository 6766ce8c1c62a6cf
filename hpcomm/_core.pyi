"""The compiled core. Sizes are bytes or elements as named, times are seconds."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, final

from numpy.typing import NDArray

COMPILER: str
DTYPES: tuple[str, ...]
OPS: tuple[str, ...]
TAG_BOOTSTRAP: int
TAG_OBJECT: int

@final
class MpiBinding:
    library_path: str
    pointer_handles: bool
    comm: int
    byte_type: int
    request_null: int
    errors_return: int
    any_source: int
    max_error_string: int
    thread_multiple: bool
    chunk_limit: int
    session_folder: str
    job_ranks: list[int]
    description: str
    def __init__(self) -> None: ...

@final
class Work:
    @property
    def what(self) -> str: ...
    @property
    def submitted_ns(self) -> int: ...
    @property
    def completed_ns(self) -> int: ...
    def test(self) -> bool: ...
    def wait(self, timeout_s: float) -> None: ...
    def exception(self) -> BaseException | None: ...

@final
class Communicator:
    @staticmethod
    def create(
        *,
        name: str,
        rank: int,
        size: int,
        timeout_s: float,
        ranks_per_node: int,
        fake_node: int,
        slot_bytes: int,
        ring_bytes: int,
        selection_override: str,
        mpi: MpiBinding | None,
        exchange: Callable[[bytes], list[bytes]],
    ) -> Communicator: ...
    @property
    def rank(self) -> int: ...
    @property
    def size(self) -> int: ...
    @property
    def name(self) -> str: ...
    @property
    def nodes(self) -> list[int]: ...
    @property
    def is_broken(self) -> bool: ...
    @property
    def is_closed(self) -> bool: ...
    @property
    def broken_reason(self) -> str: ...
    @property
    def counters(self) -> dict[str, int]: ...
    @property
    def pending(self) -> int: ...
    @property
    def has_background_progress(self) -> bool: ...
    def transport_name(self, peer: int) -> str: ...
    def selection_map(self) -> str: ...
    def abort(self, message: str, lost_rank: bool = False) -> None: ...
    def close(self, grace_s: float = 1.0) -> bool: ...
    def send(self, array: NDArray[Any], peer: int, tag: int, timeout_s: float) -> None: ...
    def recv(self, array: NDArray[Any], peer: int, tag: int, timeout_s: float) -> None: ...
    def isend(self, array: NDArray[Any], peer: int, tag: int) -> Work: ...
    def irecv(self, array: NDArray[Any], peer: int, tag: int) -> Work: ...
    def probe(self, peer: int, tag: int, timeout_s: float) -> int: ...
    def allreduce(
        self,
        send: NDArray[Any],
        recv: NDArray[Any],
        dtype: int,
        op: int,
        algorithm: str,
        timeout_s: float,
        asynchronous: bool,
    ) -> Work | None: ...
    def allgather(
        self,
        send: NDArray[Any],
        recv: NDArray[Any],
        dtype: int,
        counts: Sequence[int],
        algorithm: str,
        timeout_s: float,
        asynchronous: bool,
    ) -> Work | None: ...
    def reduce_scatter(
        self,
        send: NDArray[Any],
        recv: NDArray[Any],
        dtype: int,
        op: int,
        counts: Sequence[int],
        algorithm: str,
        timeout_s: float,
        asynchronous: bool,
    ) -> Work | None: ...
    def broadcast(
        self,
        array: NDArray[Any],
        dtype: int,
        root: int,
        algorithm: str,
        timeout_s: float,
        asynchronous: bool,
    ) -> Work | None: ...
    def barrier(self, timeout_s: float, asynchronous: bool) -> Work | None: ...

def abort_all(message: str, lost_rank: bool = False) -> None: ...
def algorithms() -> list[dict[str, Any]]: ...
def has_failed() -> bool: ...
def leave_mpi_at_exit(library_path: str, is_ours: bool, session: str) -> None: ...
def mark_lost() -> None: ...
def note_exit_code(code: int) -> None: ...
def selection_map(override_text: str = "") -> str: ...
def shutdown_all() -> None: ...
def watch_interrupts() -> None: ...
