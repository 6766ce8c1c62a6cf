from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest

from hpcomm.errors import InvalidArgumentError
from hpcomm.verify.faults import FAULTS, plant


class _Trainer:
    """The three documented methods that faults replace, as the engine has them."""

    def __init__(self, micro_batches=2, is_loss_stage=True):
        self.micro_batches = micro_batches
        self.is_loss_stage = is_loss_stage
        self.grid = SimpleNamespace(replicas=SimpleNamespace(size=1))

    def micro_batch_weight(self, num_samples, global_samples):
        return num_samples / global_samples

    def sum_partial_errors(self, parts):
        return sum(parts)

    def slice_micro_batch(self, array, index, ranges):
        start, stop = ranges[index]
        return array[start:stop]


def test_scale_counts_micro_batches_equally():
    trainer = _Trainer()
    acted = plant("scale", trainer)
    assert trainer.micro_batch_weight(5, 10) == 0.5
    assert not acted()
    assert trainer.micro_batch_weight(6, 10) == 0.5
    assert acted()


def test_skip_drops_all_but_the_first_error():
    trainer = _Trainer()
    acted = plant("skip", trainer)
    assert trainer.sum_partial_errors([4.0]) == 4.0
    assert not acted()
    assert trainer.sum_partial_errors([4.0, 1.0, 2.0]) == 4.0
    assert acted()


def test_order_swaps_two_micro_batches_of_the_same_size_where_the_loss_is():
    trainer = _Trainer()
    acted = plant("order", trainer)
    array, ranges = np.arange(10), [(0, 4), (4, 7), (7, 10)]
    assert trainer.slice_micro_batch(array, 0, ranges).tolist() == [0, 1, 2, 3]
    assert not acted()
    assert trainer.slice_micro_batch(array, 1, ranges).tolist() == [7, 8, 9]
    assert trainer.slice_micro_batch(array, 2, ranges).tolist() == [4, 5, 6]
    assert acted()


@pytest.mark.parametrize(
    ("is_loss_stage", "ranges"),
    [(True, [(0, 6)]), (False, [(0, 3), (3, 6)]), (True, [(0, 4), (4, 6)])],
    ids=["one", "other stage", "sizes"],
)
def test_order_without_anything_to_swap_has_no_effect(is_loss_stage, ranges):
    trainer = _Trainer(is_loss_stage=is_loss_stage)
    acted = plant("order", trainer)
    start, stop = ranges[0]
    assert trainer.slice_micro_batch(np.arange(6), 0, ranges).tolist() == list(range(start, stop))
    assert not acted()


def test_unknown_fault_is_refused():
    assert FAULTS == ("scale", "skip", "order")
    with pytest.raises(InvalidArgumentError, match="known are scale, skip, order"):
        plant("loss", _Trainer())
