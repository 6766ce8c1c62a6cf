from __future__ import annotations

import numpy as np
import pytest

from hpcomm.errors import InvalidArgumentError
from hpcomm.hyparflow.arguments import (
    Layout,
    check_choice,
    check_fraction,
    check_layers,
    check_whole,
    resolve_layout,
    resolve_micro_batches,
)


@pytest.mark.parametrize(
    ("strategy", "partitions", "replicas", "world", "nodes", "expected"),
    [
        ("data", None, None, 4, 1, (1, 4)),
        ("data", 1, 4, 4, 1, (1, 4)),
        ("model", None, None, 3, 1, (3, 1)),
        ("model", 3, 1, 3, 1, (3, 1)),
        ("hybrid", 2, 3, 6, 1, (2, 3)),
        ("hybrid", 2, None, 6, 1, (2, 3)),
        ("hybrid", None, 2, 6, 1, (3, 2)),
        ("hybrid", None, None, 6, 2, (3, 2)),
        ("data", None, None, 1, 1, (1, 1)),
    ],
)
def test_layout_follows_from_strategy_and_ranks(
    strategy: str, partitions: int, replicas: int, world: int, nodes: int, expected: tuple[int, int]
) -> None:
    layout = resolve_layout(strategy, partitions, replicas, world_size=world, num_nodes=nodes)
    assert (layout.partitions, layout.replicas) == expected


@pytest.mark.parametrize(
    ("strategy", "partitions", "replicas", "world", "message"),
    [
        ("pipeline", None, None, 2, "strategy must be one of 'data', 'model', 'hybrid'"),
        ("data", 2, None, 2, "num_partitions must be 1"),
        ("model", 2, 2, 4, "num_replicas must be 1"),
        ("model", 3, None, 2, "3 partitions x 1 replicas need 3 ranks, but 2 were started"),
        ("hybrid", 2, 2, 3, "need 4 ranks, but 3 were started"),
        ("hybrid", 2, None, 5, "need 4 ranks, but 5 were started"),
        ("hybrid", None, None, 4, "needs num_partitions or num_replicas"),
        ("hybrid", 0, 2, 4, "num_partitions must be a whole number >= 1, got 0"),
        ("hybrid", 2.0, 2, 4, "num_partitions must be a whole number >= 1, got 2.0"),
        ("hybrid", True, 2, 2, "num_partitions must be a whole number >= 1, got True"),
    ],
)
def test_contradictions_are_refused(
    strategy: str, partitions: int, replicas: int, world: int, message: str
) -> None:
    with pytest.raises(InvalidArgumentError, match=message):
        resolve_layout(strategy, partitions, replicas, world_size=world)


def test_micro_batches_default_and_limits() -> None:
    pipeline, copies = Layout("hybrid", 4, 2), Layout("data", 1, 4)
    assert resolve_micro_batches(None, layout=copies, batch_size=64) == 1
    assert resolve_micro_batches(None, layout=pipeline, batch_size=64) == 8
    assert resolve_micro_batches(None, layout=pipeline, batch_size=9) == 4
    assert resolve_micro_batches(None, layout=pipeline, batch_size=None) == 8
    assert resolve_micro_batches(3, layout=pipeline, batch_size=7) == 3
    with pytest.raises(InvalidArgumentError, match=r"leaves 3 sample.* batch_size of at least 8"):
        resolve_micro_batches(4, layout=pipeline, batch_size=7)
    with pytest.raises(InvalidArgumentError, match="gives 4 replicas no sample each"):
        resolve_micro_batches(1, layout=copies, batch_size=3)


def test_single_checks() -> None:
    assert check_whole("epochs", np.int64(3)) == 3
    assert check_choice("gather", "all", ("root", "all")) == "all"
    assert check_fraction("validation_split", None) == 0.0
    for bad in (1.0, -0.1, "0.2", True):
        with pytest.raises(InvalidArgumentError, match="validation_split"):
            check_fraction("validation_split", bad)
    with pytest.raises(InvalidArgumentError, match=r"evaluate: steps must be .* got '3'"):
        check_whole("steps", "3", call="evaluate")


def test_layers_per_partition_are_whole_numbers() -> None:
    assert check_layers(None) is None
    assert check_layers([1, np.int64(3)]) == (1, 3)
    for bad in (3, "12", {1: 2}):
        with pytest.raises(InvalidArgumentError, match="fit: lpp must be a list with the number"):
            check_layers(bad)
    with pytest.raises(InvalidArgumentError, match="fit: lpp must be a whole number >= 1, got 0"):
        check_layers([1, 0])
