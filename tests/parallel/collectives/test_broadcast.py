from __future__ import annotations

import numpy as np
import pytest
from support.reduction import DTYPES, sizes, values

import hpcomm
from hpcomm import _core

ALGORITHMS = [row["name"] for row in _core.algorithms() if row["collective"] == "broadcast"]


@pytest.mark.mpi(ranks=[1, 2, 3, 4], timeout=120, unit="s")
def test_broadcast_every_algorithm_type_and_root(mpi_ranks):
    comm = hpcomm.init()
    for algorithm in [None, *ALGORITHMS]:
        for dtype in DTYPES:
            for count in sizes(comm.size):
                for root in range(comm.size):
                    wanted = values(dtype, count, root)
                    mine = values(dtype, count, comm.rank)
                    before = mine.copy()
                    result = comm.broadcast(mine, root, algorithm=algorithm)
                    note = f"{algorithm} {dtype} {count} from {root}"
                    np.testing.assert_array_equal(result, wanted, err_msg=note)
                    np.testing.assert_array_equal(mine, before, err_msg=note)
                    assert (result is mine) == (comm.rank == root)
                    assert comm.broadcast(mine, root, out=mine, algorithm=algorithm) is mine
                    np.testing.assert_array_equal(mine, wanted, err_msg=note)
    comm.close()


@pytest.mark.mpi(ranks=[2], timeout=60, unit="s")
def test_broadcast_read_only_root_and_separate_out(mpi_ranks):
    comm = hpcomm.init()
    x = np.arange(7, dtype=np.int16) * (1 - comm.rank)
    x.flags.writeable = False
    np.testing.assert_array_equal(comm.broadcast(x), np.arange(7))
    out = np.zeros(7, np.int16)
    assert comm.broadcast(x, out=out) is out
    np.testing.assert_array_equal(out, np.arange(7))
    with pytest.raises(hpcomm.InvalidArgumentError, match="no rank"):
        comm.broadcast(x, root=2)
    comm.close()


@pytest.mark.mpi(ranks=[1, 2, 3, 4], timeout=60, unit="s")
def test_barrier_nobody_leaves_before_the_last_has_come(mpi_ranks):
    import time

    comm = hpcomm.init()
    for algorithm_round in range(3):
        last = algorithm_round % comm.size
        if comm.rank == last:
            time.sleep(0.05)
        came_s = time.monotonic()
        comm.barrier()
        left_s = time.monotonic()
        times = comm.allgather(np.array([came_s, left_s]))
        assert times[:, 1].min() >= times[:, 0].max()
    comm.close()
