from __future__ import annotations

import numpy as np
import pytest
from support.reduction import DTYPES, sizes, values

import hpcomm
from hpcomm import _core

ALGORITHMS = [row["name"] for row in _core.algorithms() if row["collective"] == "allgather"]


@pytest.mark.mpi(ranks=[1, 2, 3, 4], timeout=120, unit="s")
def test_allgather_every_algorithm_and_type_stacks(mpi_ranks):
    comm = hpcomm.init()
    for algorithm in [None, *ALGORITHMS]:
        for dtype in DTYPES:
            for count in sizes(comm.size):
                parts = [values(dtype, count, rank) for rank in range(comm.size)]
                result = comm.allgather(parts[comm.rank], algorithm=algorithm)
                note = f"{algorithm} {dtype} {count}"
                np.testing.assert_array_equal(result, np.stack(parts), err_msg=note)
                assert result.dtype == parts[0].dtype
    comm.close()


@pytest.mark.mpi(ranks=[1, 2, 3, 4], timeout=120, unit="s")
def test_allgatherv_rows_of_all_ranks_follow_each_other(mpi_ranks):
    comm = hpcomm.init()
    layouts = (
        [0] * comm.size,
        [1] * comm.size,
        list(range(comm.size)),
        [7 if rank == comm.size - 1 else 0 for rank in range(comm.size)],
        [5003 + 17 * rank for rank in range(comm.size)],
    )
    for algorithm in [None, *ALGORITHMS]:
        for dtype in ("bool", "bfloat16", "float64"):
            for rows in layouts:
                parts = [values(dtype, 3 * n, rank).reshape(n, 3) for rank, n in enumerate(rows)]
                wanted = np.concatenate(parts)
                for counts in (rows, None):
                    result = comm.allgatherv(parts[comm.rank], counts, algorithm=algorithm)
                    np.testing.assert_array_equal(result, wanted, err_msg=f"{algorithm} {rows}")
                out = np.zeros_like(wanted)
                assert comm.allgatherv(parts[comm.rank], rows, out) is out
                np.testing.assert_array_equal(out, wanted)
    comm.close()


@pytest.mark.mpi(ranks=[2], timeout=60, unit="s")
def test_allgather_into_the_row_of_a_larger_array(mpi_ranks):
    comm = hpcomm.init()
    table = np.zeros((2, 4), np.int32)
    table[comm.rank] = comm.rank + 1
    assert comm.allgather(table[comm.rank], out=table) is table
    np.testing.assert_array_equal(table, [[1] * 4, [2] * 4])
    with pytest.raises(hpcomm.InvalidArgumentError, match="shape"):
        comm.allgather(table, out=table)
    with pytest.raises(hpcomm.InvalidArgumentError, match="rows for this rank"):
        comm.allgatherv(table, counts=[3, 3])
    comm.barrier()
    comm.close()
