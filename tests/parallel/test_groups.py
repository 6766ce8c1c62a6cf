from __future__ import annotations

import numpy as np
import pytest

import hpcomm


def total(comm, value):
    return float(comm.allreduce(np.array([float(value)]))[0])


@pytest.mark.mpi(ranks=[4], timeout=90, unit="s")
@pytest.mark.parametrize("ranks_per_node", ["0", "1", "2"])
def test_split_numbers_by_key_and_keeps_pretended_nodes(mpi_ranks, monkeypatch, ranks_per_node):
    monkeypatch.setenv("HPCOMM_RANKS_PER_NODE", ranks_per_node)
    with hpcomm.init() as world:
        color = world.rank % 2
        part = world.split(color, key=-world.rank, name=f"half{color}")
        assert part.name == f"half{color}"
        assert part.world_ranks == ((2, 0), (3, 1))[color]
        assert part.world_ranks[part.rank] == world.rank
        assert total(part, world.rank) == (2, 4)[color]
        wanted_nodes = {"0": 1, "1": 2, "2": 2}[ranks_per_node]
        assert part.num_nodes == wanted_nodes
        alone = world.split(world.rank)
        assert alone.size == 1
        assert total(alone, 5) == 5
        none = world.split(None if world.rank else 0)
        assert (none is None) == (world.rank != 0)
        deeper = part.split(0, part.rank)
        assert total(deeper, 1) == 2
        assert total(world, 1) == 4


@pytest.mark.mpi(ranks=[2], timeout=60, unit="s")
@pytest.mark.parametrize("ranks_per_node", ["0", "1"])
def test_dup_has_its_own_messages_and_failures(mpi_ranks, monkeypatch, ranks_per_node):
    monkeypatch.setenv("HPCOMM_RANKS_PER_NODE", ranks_per_node)
    with hpcomm.init() as world:
        other = world.dup()
        peer = 1 - world.rank
        first, second = (
            world.irecv(peer, shape=1, dtype="int32"),
            other.irecv(peer, shape=1, dtype="int32"),
        )
        other.send(np.array([2], np.int32), peer)
        world.send(np.array([1], np.int32), peer)
        assert (int(first.wait()[0]), int(second.wait()[0])) == (1, 2)
        # The faster one times out and says so; the other may hear of it before its own time is up.
        with pytest.raises(
            (hpcomm.CommTimeoutError, hpcomm.PeerAbortedError), match=r"waited 0\.[3-9]\d* s"
        ):
            other.recv(peer, dtype="int32", timeout_s=0.3)
        with pytest.raises(hpcomm.CommunicatorBrokenError, match="waited 0"):
            other.barrier()
        assert other.is_broken
        assert not world.is_broken
        assert total(world, 1) == 2


@pytest.mark.mpi(ranks=[4], timeout=90, unit="s")
def test_grid_places_ranks_by_replica_and_partition(mpi_ranks):
    with hpcomm.init() as world:
        grid = world.grid(replicas=2, partitions=2)
        assert (grid.replica, grid.partition) == divmod(world.rank, 2)
        assert grid.pipeline.rank == grid.partition
        assert grid.replicas.rank == grid.replica
        assert grid.world_rank(grid.replica, grid.partition) == world.rank
        assert grid.pipeline.world_ranks == tuple(2 * grid.replica + p for p in range(2))
        assert total(grid.pipeline, world.rank) == (1, 5)[grid.replica]
        assert total(grid.replicas, world.rank) == (2, 4)[grid.partition]
        for replicas, partitions in ((3, 2), (0, 4), (4, 0)):
            with pytest.raises(hpcomm.InvalidArgumentError):
                world.grid(replicas=replicas, partitions=partitions)
        grid.close()
        assert total(world, 1) == 4


@pytest.mark.mpi(ranks=[2], timeout=60, unit="s")
def test_communicators_come_and_go(mpi_ranks):
    with hpcomm.init() as world:
        for round_ in range(40):
            child = world.dup()
            assert total(child, round_) == 2 * round_
            child.close()
            child.close()
            with pytest.raises(hpcomm.CommunicatorBrokenError, match="closed"):
                child.barrier()
        assert total(world, 1) == 2


@pytest.mark.mpi(ranks=[2], timeout=60, unit="s")
def test_init_is_idempotent_and_can_follow_a_close(mpi_ranks):
    first = hpcomm.init(timeout_s=50)
    assert first.timeout_s == 50
    assert hpcomm.init() is first
    assert hpcomm.init(timeout_s=40).timeout_s == 40
    assert total(first, 1) == 2
    first.close()
    with hpcomm.init() as second:
        assert second is not first
        assert total(second, 1) == 2


@pytest.mark.mpi(ranks=[2], timeout=60, unit="s")
def test_exception_in_the_block_reaches_the_other_rank_mpi4py_290(mpi_ranks):
    import time

    world = hpcomm.init()
    other = world.dup()
    if world.rank == 0:
        with pytest.raises(KeyError), other:
            raise KeyError("lost")
    else:
        started_s = time.monotonic()
        with pytest.raises(hpcomm.PeerAbortedError, match=r"rank 0.*KeyError.*lost") as caught:
            other.allreduce(np.zeros(5))
        assert caught.value.rank == 0
        assert time.monotonic() - started_s < 2
    assert total(world, 1) == 2


@pytest.mark.mpi(ranks=[2], timeout=60, unit="s")
def test_counters_count_what_this_rank_sent(mpi_ranks, monkeypatch):
    monkeypatch.setenv("HPCOMM_RANKS_PER_NODE", "1")
    with hpcomm.init() as world:
        comm = world.dup()
        before = comm.counters
        if comm.rank == 0:
            comm.send(np.zeros(100, np.uint8), 1)
        else:
            comm.recv(0, dtype="uint8")
        after = comm.counters
        key = "sent" if comm.rank == 0 else "received"
        assert after[f"bytes_{key}"] - before[f"bytes_{key}"] == 100
        assert after[f"messages_{key}"] - before[f"messages_{key}"] == 1


@pytest.mark.mpi(ranks=[2], timeout=60, unit="s")
def test_split_in_a_thread_that_may_not_call_mpi_is_refused_on_both_ranks(mpi_ranks, monkeypatch):
    import threading

    from mpi4py import MPI

    with hpcomm.init() as world:
        monkeypatch.setattr(MPI, "Query_thread", lambda: MPI.THREAD_FUNNELED)
        caught = []

        def split():
            try:
                world.dup()
            except hpcomm.UnsupportedError as error:
                caught.append(str(error))

        thread = threading.Thread(target=split)
        thread.start()
        thread.join(20)
        assert "thread level" in caught[0]
        monkeypatch.undo()
        assert total(world.dup(), 1) == 2
