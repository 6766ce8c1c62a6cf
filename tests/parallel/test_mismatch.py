"""Ranks that disagree get the same error, nothing is written, and the group goes on."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

import hpcomm


def provoke(comm, calls, words):
    """Let rank r make ``calls[r]``; all must fail alike, and the next collective must work."""
    with pytest.raises(hpcomm.MismatchError) as caught:
        calls[comm.rank]()
    texts = comm.allgather_object(str(caught.value))
    assert len(set(texts)) == 1, texts
    for word in words:
        assert word in texts[0], (word, texts[0])
    assert not comm.is_broken
    assert comm.allreduce(np.ones(1))[0] == comm.size


@pytest.mark.mpi(ranks=[2], timeout=60, unit="s")
@pytest.mark.parametrize("ranks_per_node", ["0", "1"])
class TestTwoRanks:
    @pytest.fixture
    def comm(self, mpi_ranks, monkeypatch, ranks_per_node):
        monkeypatch.setenv("HPCOMM_RANKS_PER_NODE", ranks_per_node)
        with hpcomm.init(timeout_s=20) as comm:
            yield comm

    def test_lengths_nccl_1417(self, mpi_ranks, comm, ranks_per_node):
        for lengths in ((100, 200), (1000, 1001), (100_000, 200_000), (0, 1)):
            mine = np.full(lengths[comm.rank], 3.0, np.float32)
            provoke(comm, [lambda m=mine: comm.allreduce(m, out=m)] * 2, [str(n) for n in lengths])
            assert (mine == 3).all()

    def test_types_of_equal_size(self, mpi_ranks, comm, ranks_per_node):
        for types in ((np.float32, np.int32), (np.float16, ml_dtypes.bfloat16)):
            mine = np.ones(8, types[comm.rank])
            names = [np.dtype(kind).name for kind in types]
            provoke(comm, [lambda m=mine: comm.allreduce(m, out=m)] * 2, names)
            assert (mine == 1).all()

    def test_operations_nccl_296(self, mpi_ranks, comm, ranks_per_node):
        x = np.ones(8)
        provoke(
            comm, [lambda: comm.allreduce(x), lambda: comm.allgather(x)], ["allreduce", "allgather"]
        )
        provoke(comm, [lambda: comm.barrier(), lambda: comm.broadcast(x)], ["barrier", "broadcast"])
        provoke(
            comm,
            [lambda: comm.allreduce(x, "sum"), lambda: comm.allreduce(x, "max")],
            ["sum", "max"],
        )

    def test_roots_and_counts(self, mpi_ranks, comm, ranks_per_node):
        x = np.ones(8)
        provoke(comm, [lambda: comm.broadcast(x, 0), lambda: comm.broadcast(x, 1)], ["root"])
        rows = [[3, 5], [4, 4]][comm.rank]
        provoke(comm, [lambda: comm.allgatherv(np.ones(rows[comm.rank]), rows)] * 2, ["allgather"])

    def test_asynchronous_calls(self, mpi_ranks, comm, ranks_per_node):
        works = [comm.allreduce(np.ones(4 + i * comm.rank), asynchronous=True) for i in range(3)]
        assert (works[0].wait() == 2).all()
        for work in works[1:]:
            with pytest.raises(hpcomm.MismatchError):
                work.wait()
            assert isinstance(work.exception(), hpcomm.MismatchError)
        assert comm.allreduce(np.ones(1))[0] == 2

    def test_algorithms_named_differently(self, mpi_ranks, comm, ranks_per_node):
        names = ["ring", "recursive_doubling"]
        provoke(comm, [lambda: comm.allreduce(np.ones(8), algorithm=names[comm.rank])] * 2, names)


@pytest.mark.mpi(ranks=[3, 4], timeout=60, unit="s")
@pytest.mark.parametrize("ranks_per_node", ["0", "2"])
def test_one_of_several_ranks_differs(mpi_ranks, monkeypatch, ranks_per_node):
    monkeypatch.setenv("HPCOMM_RANKS_PER_NODE", ranks_per_node)
    with hpcomm.init(timeout_s=20) as comm:
        for odd_one in range(comm.size):
            mine = np.ones(5 if comm.rank == odd_one else 4)
            provoke(comm, [lambda m=mine: comm.allreduce(m)] * comm.size, ["4", "5", str(odd_one)])


@pytest.mark.mpi(ranks=[2], timeout=60, unit="s")
def test_unknown_algorithm_is_refused_with_the_names(mpi_ranks):
    with hpcomm.init() as comm:
        with pytest.raises(hpcomm.InvalidArgumentError, match="recursive_doubling"):
            comm.allreduce(np.ones(4), algorithm="fastest")
        assert comm.allreduce(np.ones(1))[0] == 2
