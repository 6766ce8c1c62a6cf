from __future__ import annotations

import numpy as np
import pytest
from support.reduction import DTYPES, OPS, assert_reduced, is_defined, values

import hpcomm
from hpcomm import _core

ALGORITHMS = [row["name"] for row in _core.algorithms() if row["collective"] == "reduce_scatter"]


@pytest.mark.mpi(ranks=[1, 2, 3, 4], timeout=240, unit="s")
def test_reduce_scatter_every_algorithm_type_and_op_matches_numpy(mpi_ranks):
    comm = hpcomm.init()
    for algorithm in [None, *ALGORITHMS]:
        for dtype in DTYPES:
            for op in (op for op in OPS if is_defined(op, dtype)):
                for rows in (0, 1, 3, 1023):
                    parts = [
                        values(dtype, rows * comm.size * 2, rank).reshape(-1, 2)
                        for rank in range(comm.size)
                    ]
                    result = comm.reduce_scatter(parts[comm.rank], op, algorithm=algorithm)
                    mine = slice(comm.rank * rows, (comm.rank + 1) * rows)
                    note = f"{algorithm} {dtype} {op} {rows}"
                    assert_reduced(result, op, [part[mine] for part in parts], note)
    comm.close()


@pytest.mark.mpi(ranks=[2, 3], timeout=60, unit="s")
def test_reduce_scatter_uneven_counts(mpi_ranks):
    comm = hpcomm.init()
    for algorithm in [None, *ALGORITHMS]:
        for counts in (list(range(comm.size)), [0] * (comm.size - 1) + [70_001]):
            parts = [values("float32", sum(counts), rank) for rank in range(comm.size)]
            out = np.empty(counts[comm.rank], np.float32)
            result = comm.reduce_scatter(
                parts[comm.rank], counts=counts, out=out, algorithm=algorithm
            )
            assert result is out
            start = sum(counts[: comm.rank])
            mine = slice(start, start + counts[comm.rank])
            assert_reduced(out, "sum", [part[mine] for part in parts], f"{algorithm} {counts}")
    with pytest.raises(hpcomm.InvalidArgumentError, match="add up"):
        comm.reduce_scatter(np.zeros(5), counts=[1] * comm.size)
    with pytest.raises(hpcomm.InvalidArgumentError, match="dealt equally"):
        comm.reduce_scatter(np.zeros(comm.size + 1))
    comm.close()
