from __future__ import annotations

import hashlib

import numpy as np
import pytest
from support.reduction import DTYPES, OPS, assert_reduced, is_defined, sizes, values

import hpcomm
from hpcomm import _core

ALGORITHMS = [row["name"] for row in _core.algorithms() if row["collective"] == "allreduce"]


@pytest.mark.mpi(ranks=[1, 2, 3, 4], timeout=240, unit="s")
def test_allreduce_every_algorithm_type_and_op_matches_numpy(mpi_ranks):
    comm = hpcomm.init()
    for algorithm in [None, *ALGORITHMS]:
        for dtype in DTYPES:
            for op in (op for op in OPS if is_defined(op, dtype)):
                for count in sizes(comm.size):
                    if count > 10_000 and dtype not in ("float16", "float32", "int64"):
                        continue
                    parts = [values(dtype, count, rank) for rank in range(comm.size)]
                    mine = parts[comm.rank].copy()
                    note = f"{algorithm} {dtype} {op} {count}"
                    # Ranks of one node: there is no algorithm that may refuse.
                    result = comm.allreduce(mine, op, algorithm=algorithm)
                    np.testing.assert_array_equal(mine, parts[comm.rank], err_msg=note)
                    assert_reduced(result, op, parts, note)
                    assert comm.allreduce(mine, op, out=mine, algorithm=algorithm) is mine
                    np.testing.assert_array_equal(mine, result, err_msg=f"{note} in place")
    comm.close()


@pytest.mark.mpi(ranks=[3, 4], timeout=60, unit="s")
def test_ranks_agree_bitwise_vllm(mpi_ranks):
    comm = hpcomm.init()
    for dtype in ("float16", "bfloat16", "float32", "float64"):
        mine = values(dtype, 4099, comm.rank, seed=7)
        digest = hashlib.sha256(comm.allreduce(mine).tobytes()).hexdigest()
        assert len(set(comm.allgather_object(digest))) == 1
    comm.close()


@pytest.mark.mpi(ranks=[3], timeout=60, unit="s")
def test_result_does_not_depend_on_fusion_nccl_157(mpi_ranks):
    comm = hpcomm.init()
    mine = values("float32", 300_001, comm.rank, seed=1)
    whole = comm.allreduce(mine)
    for pieces in (2, 7, 300):
        parts = [comm.allreduce(part) for part in np.array_split(mine, pieces)]
        assert np.concatenate(parts).tobytes() == whole.tobytes()
    comm.close()


@pytest.mark.mpi(ranks=[2], timeout=60, unit="s")
def test_average_is_taken_before_rounding_and_refused_for_integers_horovod_2054(mpi_ranks):
    comm = hpcomm.init()
    large = np.full(9, 60000, np.float16)  # their sum overflows
    np.testing.assert_array_equal(comm.allreduce(large, "avg"), large)
    for dtype in ("int32", "uint8", "bool"):
        with pytest.raises(hpcomm.InvalidArgumentError, match="round"):
            comm.allreduce(np.ones(2, dtype), "avg")
    comm.close()


@pytest.mark.mpi(ranks=[2], timeout=60, unit="s")
def test_bfloat16_is_reduced_on_every_path_gloo_454(mpi_ranks):
    torch = pytest.importorskip("torch")
    comm = hpcomm.init()
    for dtype in (torch.bfloat16, torch.float16):
        mine = torch.arange(1, 6).to(dtype) + comm.rank
        for op, wanted in (("sum", [3, 5, 7, 9, 11]), ("max", [2, 3, 4, 5, 6])):
            result = comm.allreduce(mine, op)
            assert result.dtype == dtype
            assert result.tolist() == wanted
        assert comm.broadcast(mine, root=1).tolist() == [2, 3, 4, 5, 6]
        assert comm.allgather(mine)[1].tolist() == [2, 3, 4, 5, 6]
    comm.close()


@pytest.mark.mpi(ranks=[2, 4], timeout=60, unit="s")
def test_nan_is_carried_on(mpi_ranks):
    comm = hpcomm.init()
    mine = np.array([1.0, np.nan if comm.rank == 1 else 2.0, np.inf], np.float32)
    for op in ("sum", "min", "max", "prod", "avg"):
        result = comm.allreduce(mine, op)
        assert np.isnan(result[1])
        assert result[2] == np.inf
    comm.close()
