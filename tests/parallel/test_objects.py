from __future__ import annotations

import threading

import numpy as np
import pytest

import hpcomm


class Unpicklable:
    def __reduce__(self):
        raise RuntimeError("not this one")


@pytest.mark.mpi(ranks=[2, 3], timeout=60, unit="s")
@pytest.mark.parametrize("ranks_per_node", ["0", "1"])
def test_objects_arrive_as_they_were(mpi_ranks, monkeypatch, ranks_per_node):
    monkeypatch.setenv("HPCOMM_RANKS_PER_NODE", ranks_per_node)
    with hpcomm.init() as comm:
        right, left = (comm.rank + 1) % comm.size, (comm.rank - 1) % comm.size
        things = [
            None,
            0,
            "ä",
            {"a": [1, (2, 3)]},
            ValueError("x"),
            np.arange(10)[::2],
            np.zeros((0, 3)),
        ]
        for thing in things:
            if comm.rank == 0:
                comm.send_object(thing, right)
                got = comm.recv_object(left)
            else:
                got = comm.recv_object(left)
                comm.send_object(got, right)
            assert repr(got) == repr(thing)
            shared = comm.broadcast_object(thing if comm.rank == 1 else None, root=1)
            assert repr(shared) == repr(thing)
        gathered = comm.allgather_object(list(range(comm.rank * 1000)))
        assert [len(part) for part in gathered] == [1000 * rank for rank in range(comm.size)]


@pytest.mark.mpi(ranks=[2], timeout=60, unit="s")
def test_large_arrays_travel_beside_the_pickle_mpi4py_23(mpi_ranks, monkeypatch):
    monkeypatch.setenv("HPCOMM_RANKS_PER_NODE", "1")
    monkeypatch.setenv("HPCOMM_CHUNK_LIMIT", "64k")
    with hpcomm.init() as comm:
        thing = {"w": np.arange(500_000.0), "b": np.zeros(3, np.int8), "name": "x"}
        got = comm.broadcast_object(thing if comm.rank == 0 else None)
        np.testing.assert_array_equal(got["w"], thing["w"])
        assert got["w"].flags.writeable
        if comm.rank == 0:
            comm.send_object(thing, 1)
        else:
            np.testing.assert_array_equal(comm.recv_object(0)["w"], thing["w"])


@pytest.mark.mpi(ranks=[2, 3], timeout=60, unit="s")
def test_what_cannot_be_pickled_fails_on_every_rank_alike(mpi_ranks):
    with hpcomm.init(timeout_s=20) as comm:
        last = comm.size - 1
        for bad in (Unpicklable(), threading.Lock()):
            for call in (
                lambda bad=bad: comm.broadcast_object(bad if comm.rank == last else 0, root=last),
                lambda bad=bad: comm.allgather_object(bad if comm.rank == last else 0),
            ):
                with pytest.raises(hpcomm.InvalidArgumentError, match=f"of rank {last}") as caught:
                    call()
                assert caught.value.rank == last
        if comm.rank == 0:
            with pytest.raises(hpcomm.InvalidArgumentError, match="not this one"):
                comm.send_object(Unpicklable(), 1)
        assert comm.allgather_object(comm.rank) == list(range(comm.size))


@pytest.mark.mpi(ranks=[2], timeout=60, unit="s")
def test_errors_keep_their_rank_when_they_travel(mpi_ranks):
    with hpcomm.init() as comm:
        error = hpcomm.PeerDiedError("rank 3 is gone", rank=3)
        got = comm.broadcast_object(error if comm.rank == 0 else None)
        assert type(got) is hpcomm.PeerDiedError
        assert (str(got), got.rank) == ("rank 3 is gone", 3)
        with pytest.raises(hpcomm.InvalidArgumentError, match="pickled"):
            comm.allgather_object(comm)
