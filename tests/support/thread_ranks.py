"""Ranks as threads of this process, with the object calls of a communicator: for pure logic."""

from __future__ import annotations

import pickle
import queue
import threading
from collections.abc import Callable
from typing import Any

WAIT_S = 20.0


class ThreadGroup:
    """The mailboxes that the ranks of one group share."""

    def __init__(self, size: int) -> None:
        self.size = size
        self.boxes = {(a, b): queue.Queue() for a in range(size) for b in range(size)}
        self.children: dict[tuple[int, Any], ThreadGroup] = {}
        self.lock = threading.Lock()
        self.sent = 0


class ThreadCommunicator:
    """Stands for ``hpcomm.Communicator`` where only objects and small arrays travel."""

    is_broken = False
    num_nodes = 1

    def __init__(self, group: ThreadGroup, rank: int, world_ranks: tuple[int, ...]) -> None:
        self.group = group
        self.rank = rank
        self.size = group.size
        self.world_ranks = world_ranks
        self.splits = 0

    def send_object(self, obj: Any, dst: int, **_: Any) -> None:
        with self.group.lock:
            self.group.sent += 1
        self.group.boxes[self.rank, dst].put(pickle.dumps(obj))

    def recv_object(self, src: int, **_: Any) -> Any:
        return pickle.loads(self.group.boxes[src, self.rank].get(timeout=WAIT_S))

    def send(self, x: Any, dst: int, tag: int = 0, **_: Any) -> None:
        self.send_object((tag, x), dst)

    def recv(self, src: int, tag: int = 0, shape: Any = None, dtype: Any = None, **_: Any) -> Any:
        got, x = self.recv_object(src)
        assert (got, x.shape, x.dtype) == (tag, tuple(shape), dtype)
        return x

    def broadcast_object(self, obj: Any, root: int = 0, **_: Any) -> Any:
        if self.rank != root:
            return self.recv_object(root)
        for other in range(self.size):
            if other != root:
                self.send_object(obj, other)
        return obj

    def broadcast(self, x: Any, root: int = 0, **_: Any) -> Any:
        return self.broadcast_object(x, root)

    def allgather_object(self, obj: Any, **_: Any) -> list[Any]:
        for other in range(self.size):
            self.send_object(obj, other)
        return [self.recv_object(other) for other in range(self.size)]

    def split(self, color: int, key: int = 0, name: str | None = None) -> ThreadCommunicator:
        del name
        self.splits += 1
        everyone = self.allgather_object((color, key, self.rank))
        mine = sorted((k, r) for c, k, r in everyone if c == color)
        with self.group.lock:
            group = self.group.children.setdefault((self.splits, color), ThreadGroup(len(mine)))
        ranks = [r for _, r in mine]
        return ThreadCommunicator(
            group, ranks.index(self.rank), tuple(self.world_ranks[r] for r in ranks)
        )

    def dup(self, name: str | None = None) -> ThreadCommunicator:
        return self.split(0, self.rank, name)

    def close(self) -> None: ...


def run_ranks(size: int, work: Callable[[ThreadCommunicator], Any]) -> list[Any]:
    """Run ``work`` on every rank and return what each returned, or the exception it raised."""
    group = ThreadGroup(size)
    results: list[Any] = [None] * size

    def run(rank: int) -> None:
        try:
            results[rank] = work(ThreadCommunicator(group, rank, tuple(range(size))))
        except Exception as error:
            results[rank] = error

    threads = [threading.Thread(target=run, args=(rank,), daemon=True) for rank in range(size)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(WAIT_S * 2)
        assert not thread.is_alive(), "a rank hangs"
    left = sum(box.qsize() for box in group.boxes.values())
    assert left == 0 or any(isinstance(result, Exception) for result in results), "unread messages"
    return results
