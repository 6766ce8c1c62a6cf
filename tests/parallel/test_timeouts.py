from __future__ import annotations

import contextlib
import re
import time

import numpy as np
import pytest

import hpcomm


@pytest.mark.mpi(ranks=[2, 3], timeout=60, unit="s")
@pytest.mark.parametrize("ranks_per_node", ["0", "1"])
def test_timeout_names_who_did_not_come_horovod_100_gloo_511(
    mpi_ranks, monkeypatch, ranks_per_node
):
    monkeypatch.setenv("HPCOMM_RANKS_PER_NODE", ranks_per_node)
    world = hpcomm.init()
    comm = world.dup(name="gradients")
    absent = comm.size - 1
    if comm.rank != absent:
        started_s = time.monotonic()
        with pytest.raises((hpcomm.CommTimeoutError, hpcomm.PeerAbortedError)) as caught:
            comm.allreduce(np.zeros(1000, np.float32), timeout_s=0.5)
        assert time.monotonic() - started_s < 3
        text = str(caught.value)
        for word in ("allreduce", "gradients", "4000 bytes", f"rank {absent}"):
            assert word in text, (word, text)
        assert re.search(r"waited 0\.[5-9]\d* s", text)
        with pytest.raises(hpcomm.CommunicatorBrokenError, match="allreduce"):
            comm.barrier()
    world.barrier()
    if comm.rank == absent:
        # What the others had contributed may still be there; but nobody will answer any more.
        with contextlib.suppress(hpcomm.HpcommError):
            comm.allreduce(np.zeros(1000, np.float32), timeout_s=5)
        with pytest.raises(hpcomm.HpcommError, match="allreduce"):
            comm.allreduce(np.zeros(1000, np.float32), timeout_s=5)
    world.barrier()
    world.close()


@pytest.mark.mpi(ranks=[2], timeout=60, unit="s")
@pytest.mark.parametrize("ranks_per_node", ["0", "1"])
def test_timeout_of_messages_names_peer_tag_and_bytes(mpi_ranks, monkeypatch, ranks_per_node):
    monkeypatch.setenv("HPCOMM_RANKS_PER_NODE", ranks_per_node)
    world = hpcomm.init()
    calls = {
        "recv": lambda comm: comm.recv(1, 5, out=np.zeros(10), timeout_s=0.3),
        "probe": lambda comm: comm.recv(1, 5, dtype="float64", timeout_s=0.3),
        "wait": lambda comm: comm.irecv(1, 5, out=np.zeros(10)).wait(timeout_s=0.3),
        "send": lambda comm: comm.send(np.zeros(1 << 24), 1, 5, timeout_s=0.3),
    }
    for name, call in calls.items():
        comm = world.dup(name=name)
        if comm.rank == 0:
            with pytest.raises(hpcomm.CommTimeoutError, match=r"0\.[3-9]\d* s") as caught:
                call(comm)
            text = str(caught.value)
            assert "rank 1" in text
            assert "tag 5" in text
            assert ("80 bytes" in text) == (name in ("recv", "wait"))
            assert comm.is_broken
        world.barrier()
    world.close()


@pytest.mark.mpi(ranks=[2], timeout=60, unit="s")
def test_test_is_true_for_a_failed_operation_and_exception_says_why(mpi_ranks):
    world = hpcomm.init()
    comm = world.dup()
    if comm.rank == 0:
        work = comm.irecv(1, out=np.zeros(3))
        assert not work.test()
        assert work.exception() is None
        with pytest.raises(hpcomm.CommTimeoutError):
            work.wait(timeout_s=0.2)
        assert work.test()
        assert isinstance(work.exception(), hpcomm.CommTimeoutError)
        with pytest.raises(hpcomm.CommTimeoutError):
            work.wait()
    world.barrier()
    world.close()
