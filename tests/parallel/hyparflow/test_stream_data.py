"""Batches read by one rank, over real communicators: every dtype that data may have."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import hpcomm
from hpcomm.errors import DataError
from hpcomm.hyparflow.data import Needs, Rows
from hpcomm.hyparflow.stream_data import StreamSource

DTYPES = ["float32", "float64", "float16", ml_dtypes.bfloat16, "int8", "uint8", "int64", "bool"]


def batch(count: int) -> Rows:
    base = np.arange(count * 6).reshape(count, 2, 3) % 2
    inputs = {f"x{i}": base.astype(dtype) for i, dtype in enumerate(DTYPES)}
    inputs["text"] = np.asarray([f"s{i}" for i in range(count)])
    inputs["strided"] = np.asfortranarray(np.arange(count * 4.0).reshape(count, 4))
    return Rows(inputs, {"b": base, "a": (base[:, 0], None)}, np.arange(count) / 3, count)


class Stream:
    num_batches = None

    def __init__(self, sizes: list[int], fail: bool = False) -> None:
        self.sizes, self.fail = sizes, fail

    def open(self, number: int) -> Iterator[Rows]:
        del number
        yield from (batch(size) for size in self.sizes)
        if self.fail:
            raise RuntimeError("disk gone")

    def begin_epoch(self) -> None: ...

    def end_epoch(self) -> None: ...


def open_source(comm: Any, stream: Stream) -> StreamSource:
    """Every rank is a replica of its own and wants everything; rank 0 keeps the metrics."""
    return StreamSource(
        stream if comm.rank == 0 else None,
        Needs(tuple(batch(1).inputs), targets=True, whole=comm.rank == 0),
        names=tuple(batch(1).inputs),
        group=comm,
        replica=comm.rank,
        num_replicas=comm.size,
        steps_per_epoch=None,
        convert=lambda _, array: array,
    )


@pytest.mark.mpi(ranks=[1, 2, 3], timeout=60, unit="s")
def test_read_batches_arrive_in_every_dtype(mpi_ranks: int) -> None:
    comm = hpcomm.init()
    assert comm.size == mpi_ranks
    sizes = [7, 4, 1]  # with three ranks the last batch leaves two of them without a sample
    source = open_source(comm, Stream(sizes))
    for _ in range(2):
        seen = 0
        for got, size in zip(source.epoch(), sizes, strict=True):
            whole = batch(size)
            step = got.step
            window = slice(step.first_sample, step.first_sample + step.num_samples)
            seen += step.num_samples
            for name, array in whole.inputs.items():
                if step.num_samples:
                    assert step.inputs[name].dtype == array.dtype
                np.testing.assert_array_equal(step.inputs[name], array[window])
            np.testing.assert_array_equal(step.targets["b"], whole.targets["b"][window])
            np.testing.assert_array_equal(step.targets["a"][0], whole.targets["a"][0][window])
            assert step.targets["a"][1] is None
            np.testing.assert_array_equal(step.sample_weight, whole.sample_weight[window])
            if comm.rank == 0:
                np.testing.assert_array_equal(got.targets["b"], whole.targets["b"])
        assert sum(comm.allgather_object(seen)) == sum(sizes)


@pytest.mark.mpi(ranks=[2], timeout=60, unit="s")
def test_a_reader_that_fails_leaves_the_communicator_usable(mpi_ranks: int) -> None:
    comm = hpcomm.init()
    source = open_source(comm, Stream([4, 4], fail=True))
    with pytest.raises(DataError, match="reading the data failed on rank 0: RuntimeError: disk"):
        list(source.epoch())
    assert comm.allgather_object(comm.rank) == list(range(mpi_ranks))
