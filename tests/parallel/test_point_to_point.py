from __future__ import annotations

import os

import numpy as np
import pytest
from support.reduction import DTYPES, values

import hpcomm


def _ring_of_sends(comm):
    right, left = (comm.rank + 1) % comm.size, (comm.rank - 1) % comm.size
    for dtype in DTYPES:
        for count in (0, 1, 1000, 400_001):
            out = values(dtype, count, comm.rank)
            into = np.empty_like(out)
            receive = comm.irecv(left, 3, into)
            comm.isend(out, right, 3).wait()
            assert receive.wait() is into
            np.testing.assert_array_equal(into, values(dtype, count, left))


@pytest.mark.mpi(ranks=[2, 3], timeout=120, unit="s")
def test_send_recv_every_type_over_shared_memory(mpi_ranks):
    with hpcomm.init() as comm:
        assert comm.num_nodes == 1
        _ring_of_sends(comm)


@pytest.mark.mpi(ranks=[2, 3], timeout=120, unit="s")
def test_send_recv_every_type_over_mpi_gloo_458(mpi_ranks, monkeypatch):
    monkeypatch.setenv("HPCOMM_RANKS_PER_NODE", "1")
    with hpcomm.init() as comm:
        assert comm.num_nodes == comm.size
        assert comm.local_size == 1
        assert comm._core.transport_name(1 - min(comm.rank, 1)) == "mpi"
        _ring_of_sends(comm)


@pytest.mark.mpi(ranks=[2], timeout=120, unit="s")
@pytest.mark.parametrize("ranks_per_node", ["0", "1"])
def test_messages_longer_than_the_chunk_limit_plato_26(mpi_ranks, monkeypatch, ranks_per_node):
    monkeypatch.setenv("HPCOMM_CHUNK_LIMIT", "4096")
    monkeypatch.setenv("HPCOMM_RANKS_PER_NODE", ranks_per_node)
    with hpcomm.init() as comm:
        for nbytes in (4095, 4096, 4097, 100_003):
            sent = np.arange(nbytes, dtype=np.uint32).astype(np.uint8)
            if comm.rank == 0:
                comm.send(sent, 1)
            else:
                np.testing.assert_array_equal(comm.recv(0, dtype="uint8"), sent)
            result = comm.allreduce(sent.astype(np.int64))
            np.testing.assert_array_equal(result, 2 * sent.astype(np.int64))
            everything = list(range(50_000))
            assert comm.broadcast_object(everything if comm.rank == 1 else None, 1) == everything


@pytest.mark.mpi(ranks=[2], timeout=60, unit="s")
def test_recv_without_shape_takes_what_comes_and_refuses_half_elements(mpi_ranks):
    with hpcomm.init() as comm:
        if comm.rank == 0:
            comm.send(np.arange(5, dtype=np.int16), 1)
            comm.send(np.arange(6, dtype=np.float32).reshape(2, 3), 1, tag=9)
            comm.send(np.zeros(0), 1)
        else:
            with pytest.raises(hpcomm.InvalidArgumentError, match="10 bytes"):
                comm.recv(0, dtype="float32")
            np.testing.assert_array_equal(comm.recv(0, dtype="int16"), np.arange(5))
            got = comm.recv(0, 9, shape=(2, 3), dtype=np.float32)
            np.testing.assert_array_equal(got, np.arange(6).reshape(2, 3))
            assert comm.recv(0, dtype="float64").shape == (0,)
            with pytest.raises(hpcomm.InvalidArgumentError, match="nothing says"):
                comm.recv(0)
        comm.barrier()


@pytest.mark.mpi(ranks=[2], timeout=60, unit="s")
@pytest.mark.parametrize("ranks_per_node", ["0", "1"])
def test_recv_of_another_length_is_a_mismatch_and_the_group_stays_usable(
    mpi_ranks, monkeypatch, ranks_per_node
):
    monkeypatch.setenv("HPCOMM_RANKS_PER_NODE", ranks_per_node)
    with hpcomm.init(timeout_s=20) as comm:
        if comm.rank == 0:
            comm.send(np.arange(10.0), 1)
            comm.send(np.arange(3.0), 1)
        else:
            out = np.full(4, -1.0)
            with pytest.raises(hpcomm.MismatchError, match="80"):
                comm.recv(0, out=out)
            np.testing.assert_array_equal(comm.recv(0, dtype="float64"), np.arange(3.0))
        assert comm.allreduce(np.ones(1))[0] == 2


@pytest.mark.mpi(ranks=[2], timeout=60, unit="s")
def test_messages_of_one_tag_keep_their_order_and_tags_do_not_mix(mpi_ranks):
    with hpcomm.init() as comm:
        if comm.rank == 0:
            works = [comm.isend(np.array([i]), 1, tag=i % 3) for i in range(30)]
            for work in works:
                work.wait()
        else:
            for tag in (2, 0, 1):
                got = [int(comm.recv(0, tag, dtype="int64")[0]) for _ in range(10)]
                assert got == list(range(tag, 30, 3))


@pytest.mark.mpi(ranks=[1, 2], timeout=60, unit="s")
def test_a_rank_may_send_to_itself(mpi_ranks):
    with hpcomm.init() as comm:
        receive = comm.irecv(comm.rank, shape=3, dtype="int32")
        comm.isend(np.arange(3, dtype=np.int32), comm.rank).wait()
        np.testing.assert_array_equal(receive.wait(), np.arange(3))


@pytest.mark.mpi(ranks=[2], timeout=60, unit="s")
def test_strided_arrays_travel_by_their_elements_pytorch_192920(mpi_ranks):
    import torch

    with hpcomm.init() as comm:
        base = np.arange(24.0).reshape(4, 6) + 100 * comm.rank
        other = np.arange(24.0).reshape(4, 6) + 100 * (1 - comm.rank)
        views = [lambda a: a[:, 1], lambda a: a.T, lambda a: a[::-1, ::2], lambda a: a[1:3, 2:5]]
        for view in views:
            sent, wanted = view(base), view(other)
            target = np.zeros_like(base)
            receive = comm.irecv(1 - comm.rank, out=view(target))
            comm.isend(sent, 1 - comm.rank).wait()
            receive.wait()
            np.testing.assert_array_equal(view(target), wanted)
            total = (
                comm.allreduce(view(torch.from_numpy(base.copy()))) if view is views[1] else None
            )
            if total is not None:
                np.testing.assert_array_equal(total.numpy(), sent + wanted)
            in_place = base.copy()
            comm.allreduce(view(in_place), out=view(in_place))
            np.testing.assert_array_equal(view(in_place), sent + wanted)
            untouched = np.ones_like(base, bool)
            view(untouched)[...] = False
            np.testing.assert_array_equal(in_place[untouched], base[untouched])


@pytest.mark.mpi(ranks=[2], timeout=60, unit="s")
def test_bad_arguments_are_refused_before_anything_is_sent(mpi_ranks):
    with hpcomm.init() as comm:
        x = np.zeros(3)
        for call in (
            lambda: comm.send(x, 2),
            lambda: comm.send(x, -1),
            lambda: comm.send(x, 1.0),
            lambda: comm.send(x, 0, tag=16384),
            lambda: comm.send(x, 0, tag="a"),
            lambda: comm.send(x, 0, timeout_s=0),
            lambda: comm.send([1, 2], 0),
            lambda: comm.irecv(0, dtype="float32"),
            lambda: comm.recv(0, out=x, dtype="float64"),
            lambda: comm.recv(0, out=np.broadcast_to(x, (2, 3))),
            lambda: comm.send(np.zeros(2, complex), 0),
            lambda: comm.send(np.array([object()]), 0),
            lambda: comm.send(np.zeros(2, ">f8"), 0),
        ):
            with pytest.raises(hpcomm.InvalidArgumentError):
                call()
        assert comm.allreduce(np.ones(1))[0] == 2
    assert os.environ.get("HPCOMM_TIMEOUT") is None
