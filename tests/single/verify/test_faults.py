from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest

from hpcomm.errors import InvalidArgumentError
from hpcomm.verify.faults import FAULTS, spoil


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
    trainer = spoil(_Trainer, "scale")()
    assert trainer.micro_batch_weight(5, 10) == 0.5
    assert not trainer.fault_has_acted
    assert trainer.micro_batch_weight(6, 10) == 0.5
    assert trainer.fault_has_acted


def test_skip_drops_all_but_the_first_error():
    trainer = spoil(_Trainer, "skip")()
    assert trainer.sum_partial_errors([4.0]) == 4.0
    assert not trainer.fault_has_acted
    assert trainer.sum_partial_errors([4.0, 1.0, 2.0]) == 4.0
    assert trainer.fault_has_acted


def test_order_swaps_two_micro_batches_of_the_same_size_where_the_loss_is():
    trainer = spoil(_Trainer, "order")()
    array, ranges = np.arange(10), [(0, 4), (4, 7), (7, 10)]
    assert trainer.slice_micro_batch(array, 0, ranges).tolist() == [0, 1, 2, 3]
    assert not trainer.fault_has_acted
    assert trainer.slice_micro_batch(array, 1, ranges).tolist() == [7, 8, 9]
    assert trainer.slice_micro_batch(array, 2, ranges).tolist() == [4, 5, 6]
    assert trainer.fault_has_acted


@pytest.mark.parametrize(
    ("is_loss_stage", "ranges"),
    [(True, [(0, 6)]), (False, [(0, 3), (3, 6)]), (True, [(0, 4), (4, 6)])],
    ids=["one", "other stage", "sizes"],
)
def test_order_without_anything_to_swap_has_no_effect(is_loss_stage, ranges):
    trainer = spoil(_Trainer, "order")(is_loss_stage=is_loss_stage)
    start, stop = ranges[0]
    assert trainer.slice_micro_batch(np.arange(6), 0, ranges).tolist() == list(range(start, stop))
    assert not trainer.fault_has_acted


def test_unknown_fault_is_refused():
    assert FAULTS == ("scale", "skip", "order")
    with pytest.raises(InvalidArgumentError, match="known are scale, skip, order"):
        spoil(_Trainer, "loss")


def test_the_engine_has_the_methods_that_faults_replace():
    from hpcomm.hyparflow.trainer import HybridTrainer

    for name in FAULTS:
        (method,) = {"micro_batch_weight", "sum_partial_errors", "slice_micro_batch"} & set(
            vars(spoil(HybridTrainer, name))
        )
        assert callable(getattr(HybridTrainer, method))
