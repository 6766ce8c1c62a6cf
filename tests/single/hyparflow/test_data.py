from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from support.thread_ranks import ThreadCommunicator, run_ranks

from hpcomm.errors import DataError
from hpcomm.hyparflow.data import ArraySource, IndexStream, Needs, Rows, count_rows
from hpcomm.hyparflow.shard_data import ShardSource
from hpcomm.hyparflow.stream_data import StreamSource


def rows(count: int, first: int = 0) -> Rows:
    number = np.arange(first, first + count)
    return Rows(
        inputs={"a": number[:, None] * 1.0, "b": number * 2},
        targets={"p": number + 100, "q": [number + 200]},
        sample_weight=number / 10,
        count=count,
    )


def keep(_: str, array: Any) -> Any:
    return array


def needs_of(partition: int, partitions: int, replica: int) -> Needs:
    last = partition == partitions - 1
    return Needs(
        inputs=("a",) if partition == 0 else ("b",) if last else (),
        targets=last,
        whole=last and replica == 0,
    )


def array_source(replica: int, replicas: int, needs: Needs, **how: Any) -> ArraySource:
    options = {"batch_size": 4, "steps_per_epoch": None, "shuffle": False, "seed": 1}
    return ArraySource(
        rows(10), needs, replica=replica, replicas=replicas, convert=keep, **(options | how)
    )


def test_count_rows_refuses_arrays_that_do_not_fit() -> None:
    assert count_rows(np.zeros((3, 2)), {"y": np.zeros(3)}, None) == 3
    with pytest.raises(ValueError, match=r"same number of samples, got \[2, 3\]"):
        count_rows(np.zeros(3), np.zeros(2))
    with pytest.raises(ValueError, match="without a sample axis"):
        count_rows(np.float32(3))
    with pytest.raises(ValueError, match="no data"):
        count_rows(None)


def test_index_stream_is_the_same_for_the_same_seed_and_pass() -> None:
    def order(seed: int, number: int, shuffle: Any = True) -> list[Any]:
        return [
            np.asarray(i) for i in IndexStream(10, 4, shuffle=shuffle, seed=(seed,)).open(number)
        ]

    first = np.concatenate(order(1, 0))
    assert sorted(first) == list(range(10))
    np.testing.assert_array_equal(first, np.concatenate(order(1, 0)))
    assert any((first != np.concatenate(order(1, 1))).tolist())
    assert any((first != np.concatenate(order(2, 0))).tolist())
    within = order(1, 0, "batch")
    assert [sorted(batch) for batch in within] == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9]]


@pytest.mark.parametrize("shuffle", [False, True])
@pytest.mark.parametrize("replicas", [1, 2, 3])
def test_replicas_cover_each_global_batch_in_order(replicas: int, shuffle: bool) -> None:
    sources = [
        array_source(r, replicas, needs_of(0, 1, r), shuffle=shuffle) for r in range(replicas)
    ]
    for _ in range(2):
        for batches in zip(*(source.epoch() for source in sources), strict=True):
            steps = [batch.step for batch in batches]
            assert len({step.global_samples for step in steps}) == 1
            assert [s.first_sample for s in steps] == [
                sum(other.num_samples for other in steps[:r]) for r in range(replicas)
            ]
            joined = np.concatenate([step.targets["p"] for step in steps])
            np.testing.assert_array_equal(joined, batches[0].targets["p"])
            np.testing.assert_array_equal(
                np.concatenate([step.sample_weight for step in steps]), batches[0].sample_weight
            )
            assert batches[0].step.global_samples == len(joined)


def test_a_rank_keeps_only_what_its_stage_needs() -> None:
    source = array_source(0, 1, needs_of(0, 3, 0))
    batch = next(source.epoch())
    assert set(batch.step.inputs) == {"a"}
    assert batch.step.targets is None
    assert batch.targets is None
    middle = next(array_source(0, 1, needs_of(1, 3, 0)).epoch())
    assert middle.step.inputs == {}
    assert middle.step.num_samples == 4


def test_a_replica_may_get_nothing_of_the_last_batch() -> None:
    source = array_source(2, 3, needs_of(0, 1, 2), batch_size=8)
    sizes = [batch.step.num_samples for batch in source.epoch()]
    assert sizes == [2, 0]


class ListStream:
    """A data set of given batches; its length may be unknown; it may fail."""

    def __init__(self, batches: list[Rows], known: bool = True, fail_at: int | None = None) -> None:
        self.batches, self.fail_at = batches, fail_at
        self.num_batches = len(batches) if known else None

    def open(self, number: int) -> Iterator[Rows]:
        del number
        for i, batch in enumerate(self.batches):
            if i == self.fail_at:
                raise RuntimeError("disk gone")
            yield batch

    def begin_epoch(self) -> None: ...

    def end_epoch(self) -> None: ...


def check_equal(left: Any, right: Any) -> None:
    if isinstance(left, dict):
        assert left.keys() == right.keys()
        for key in left:
            check_equal(left[key], right[key])
    elif isinstance(left, list):
        for one, other in zip(left, right, strict=True):
            check_equal(one, other)
    else:
        np.testing.assert_array_equal(left, right)


@pytest.mark.parametrize(("partitions", "replicas"), [(1, 1), (3, 1), (1, 3), (2, 2)])
@pytest.mark.parametrize("known", [True, False])
def test_a_read_stream_gives_what_local_arrays_give(
    partitions: int, replicas: int, known: bool
) -> None:
    parts = [rows(4, 0), rows(4, 4), rows(2, 8)]

    def rank(comm: ThreadCommunicator) -> Any:
        replica, partition = divmod(comm.rank, partitions)
        needs = needs_of(partition, partitions, replica)
        if partitions == 1:
            needs = Needs(("a", "b"), True, replica == 0)
        streamed = StreamSource(
            ListStream(parts, known) if comm.rank == 0 else None,
            needs,
            names=("a", "b"),
            group=comm,
            replica=replica,
            num_replicas=replicas,
            steps_per_epoch=None,
            convert=keep,
        )
        local = array_source(replica, replicas, needs)
        for _ in range(2):
            for got, expected in zip(streamed.epoch(), local.epoch(), strict=True):
                for field in ("inputs", "targets", "sample_weight", "num_samples", "first_sample"):
                    left, right = getattr(got.step, field), getattr(expected.step, field)
                    if left is not None or right is not None:
                        check_equal(left, right)
                assert got.step.global_samples == expected.step.global_samples
                if needs.whole:
                    check_equal(got.targets, expected.targets)
                    check_equal(got.sample_weight, expected.sample_weight)
        return "ok"

    assert run_ranks(partitions * replicas, rank) == ["ok"] * (partitions * replicas)


def test_ranks_may_call_the_inputs_differently() -> None:
    def rank(comm: ThreadCommunicator) -> Any:
        names = [f"a_{comm.rank}", f"b_{comm.rank}"]
        batch = rows(5)
        batch.inputs = dict(zip(names, batch.inputs.values(), strict=True))
        source = StreamSource(
            ListStream([batch]) if comm.rank == 0 else None,
            Needs((names[1],)),
            names=names,
            group=comm,
            replica=0,
            num_replicas=1,
            steps_per_epoch=None,
            convert=keep,
        )
        return [batch.step.inputs[names[1]].tolist() for batch in source.epoch()]

    assert run_ranks(3, rank) == [[[0, 2, 4, 6, 8]]] * 3


def test_a_reader_that_fails_fails_everywhere_alike() -> None:
    def rank(comm: ThreadCommunicator) -> Any:
        source = StreamSource(
            ListStream([rows(4), rows(4)], fail_at=1) if comm.rank == 0 else None,
            Needs(("a",)),
            names=("a", "b"),
            group=comm,
            replica=0,
            num_replicas=1,
            steps_per_epoch=None,
            convert=keep,
        )
        return list(source.epoch())

    errors = run_ranks(3, rank)
    assert {type(error) for error in errors} == {DataError}
    assert {str(error) for error in errors} == {
        "reading the data failed on rank 0: RuntimeError: disk gone"
    }


@pytest.mark.parametrize("streamed", [False, True])
def test_shards_make_up_one_global_batch(streamed: bool) -> None:
    """Two replicas of two partitions; replica 1 has fewer samples and runs dry."""
    counts = (7, 3)

    def rank(comm: ThreadCommunicator) -> Any:
        replica, partition = divmod(comm.rank, 2)
        pipeline = comm.split(replica, partition)
        replicas = comm.split(partition, replica)
        needs = needs_of(partition, 2, replica)
        mine = rows(counts[replica], 50 * replica)
        if streamed:
            batches = [mine.take(slice(i, min(i + 2, mine.count))) for i in range(0, mine.count, 2)]
            source: Any = StreamSource(
                ListStream(batches) if partition == 0 else None,
                needs,
                names=("a", "b"),
                group=pipeline,
                replica=replica,
                num_replicas=2,
                steps_per_epoch=None,
                convert=keep,
                replicas=replicas,
            )
        else:
            source = ShardSource(
                mine,
                needs,
                replicas=replicas,
                counts=counts,
                batch_size=4,
                steps_per_epoch=None,
                shuffle=False,
                seed=0,
                convert=keep,
            )
        return [
            (
                batch.step.num_samples,
                batch.step.first_sample,
                batch.step.global_samples,
                None if batch.targets is None else batch.targets["p"].tolist(),
                None if batch.step.targets is None else batch.step.targets["q"][0].tolist(),
            )
            for batch in source.epoch()
        ]

    first, loss, other, other_loss = run_ranks(4, rank)
    assert [step[:3] for step in first] == [(2, 0, 4), (2, 0, 3), (2, 0, 2), (1, 0, 1)]
    assert [step[:3] for step in other] == [(2, 2, 4), (1, 2, 3), (0, 2, 2), (0, 1, 1)]
    assert [step[3] for step in loss] == [
        [100, 101, 150, 151],
        [102, 103, 152],
        [104, 105],
        [106],
    ]
    assert [step[4] for step in other_loss] == [[250, 251], [252], [], []]


def test_a_shard_whose_reader_fails_fails_everywhere() -> None:
    def rank(comm: ThreadCommunicator) -> Any:
        replica = comm.rank
        source = StreamSource(
            ListStream([rows(2), rows(2)], fail_at=1 if replica else None),
            Needs(("a",)),
            names=("a", "b"),
            group=comm.split(replica),
            replica=replica,
            num_replicas=2,
            steps_per_epoch=None,
            convert=keep,
            replicas=comm,
        )
        return list(source.epoch())

    errors = run_ranks(2, rank)
    assert {type(error) for error in errors} == {DataError}
    assert {str(error) for error in errors} == {
        "reading the data failed on rank 1: RuntimeError: disk gone"
    }
