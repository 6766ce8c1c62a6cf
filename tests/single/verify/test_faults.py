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

    def slice_micro_batch(self, array, index):
        return np.array_split(array, self.micro_batches)[index]


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


def test_order_swaps_two_micro_batches_where_the_loss_is():
    trainer = _Trainer(micro_batches=3)
    acted = plant("order", trainer)
    array = np.arange(6)
    assert trainer.slice_micro_batch(array, 2).tolist() == [4, 5]
    assert not acted()
    assert trainer.slice_micro_batch(array, 0).tolist() == [2, 3]
    assert trainer.slice_micro_batch(array, 1).tolist() == [0, 1]
    assert acted()


@pytest.mark.parametrize("values", [{"micro_batches": 1}, {"is_loss_stage": False}])
def test_order_without_anything_to_swap_has_no_effect(values):
    trainer = _Trainer(**values)
    acted = plant("order", trainer)
    trainer.slice_micro_batch(np.arange(6), 0)
    assert not acted()


def test_unknown_fault_is_refused():
    assert FAULTS == ("scale", "skip", "order")
    with pytest.raises(InvalidArgumentError, match="known are scale, skip, order"):
        plant("loss", _Trainer())
