from __future__ import annotations

import threading

import pytest

from hpcomm import CommTimeoutError, LaunchError
from hpcomm.launch.rendezvous import Client, Server


@pytest.fixture
def server():
    server = Server(3)
    yield server
    server.close()


def together(*calls):
    """Run calls on threads and return their results or errors."""
    results = [None] * len(calls)

    def run(i):
        try:
            results[i] = calls[i]()
        except Exception as error:
            results[i] = error

    threads = [threading.Thread(target=run, args=(i,)) for i in range(len(calls))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
    return results


def test_everyone_gets_everything_round_after_round(server):
    clients = [Client(server.address, rank, 3) for rank in range(3)]
    for size in (0, 1, 100_000):
        parts = [bytes([rank]) * size * (rank + 1) for rank in range(3)]
        calls = [lambda c=c, parts=parts: c.exchange(parts[c.rank], 10) for c in clients]
        assert together(*calls) == [parts] * 3
    for client in clients:
        client.close()


def test_a_later_program_of_the_same_rank_takes_its_place(server):
    first = [Client(server.address, rank, 3) for rank in range(3)]
    assert together(*[lambda c=c: c.exchange(b"a", 10) for c in first]) == [[b"a"] * 3] * 3
    for client in first:
        client.close()
    second = [Client(server.address, rank, 3) for rank in range(3)]
    assert together(*[lambda c=c: c.exchange(b"b", 10) for c in second]) == [[b"b"] * 3] * 3


def test_missing_rank_is_a_timeout(server):
    client = Client(server.address, 0, 3)
    with pytest.raises(CommTimeoutError, match=r"0\.2 s"):
        client.exchange(b"x", 0.2)


def test_failure_reaches_those_who_wait_and_those_who_come_later(server):
    early, late = Client(server.address, 0, 3), Client(server.address, 1, 3)

    def fail():
        server.fail("rank 2 is gone")

    answer, _ = together(lambda: early.exchange(b"x", 10), fail)
    assert isinstance(answer, LaunchError)
    assert "rank 2 is gone" in str(answer)
    with pytest.raises(LaunchError, match="rank 2 is gone"):
        late.exchange(b"x", 10)


def test_launcher_that_is_gone(server):
    other = Server(1)
    client = Client(other.address, 0, 1)
    other.close()
    with pytest.raises(LaunchError, match="lost its launcher"):
        client.exchange(b"x", 5)
    with pytest.raises(LaunchError, match="cannot reach"):
        Client(other.address, 0, 1)
