from __future__ import annotations

import keras
import numpy as np
import pytest

from hpcomm.errors import UnsupportedError
from hpcomm.tensorflow.optimizer import clone_optimizer
from hpcomm.tensorflow.slots import build_recorded, layout

pytestmark = pytest.mark.tensorflow
optimizers = keras.optimizers

OPTIMIZERS = {
    "sgd": lambda: optimizers.SGD(0.1, momentum=0.9),
    "adam": lambda: optimizers.Adam(amsgrad=True),
    "adamw with averages": lambda: optimizers.AdamW(use_ema=True),
    "nadam": optimizers.Nadam,
    "rmsprop": lambda: optimizers.RMSprop(momentum=0.5, centered=True),
    "adagrad": optimizers.Adagrad,
    "adadelta": optimizers.Adadelta,
    "adafactor": optimizers.Adafactor,
    "ftrl": optimizers.Ftrl,
    "lion": optimizers.Lion,
    "lamb": optimizers.Lamb,
    "muon": optimizers.Muon,
    "accumulating": lambda: optimizers.Adam(gradient_accumulation_steps=3),
    "scaled": lambda: optimizers.LossScaleOptimizer(optimizers.Adam()),
}


def weights():
    shapes = {"a": (3, 4), "b": (4,), "c": (2, 2, 3), "d": (5, 2)}
    return [keras.Variable(np.ones(s, "float32"), name=n) for n, s in shapes.items()]


@pytest.mark.parametrize("name", sorted(OPTIMIZERS))
def test_slots_of_a_part_are_those_of_the_whole(name):
    """Keys from an optimizer of two weights must name the same things as keys from all four."""
    all_weights = weights()
    keys = [f"model/{v.name}" for v in all_weights]
    whole = build_recorded(OPTIMIZERS[name](), all_weights, keys)
    assert len({slot.key for slot in whole}) == len(whole)
    by_key = {slot.key: slot for slot in whole}
    covered = {slot.key for slot in whole if slot.owner is None}
    for part in ([0, 2], [1], [3]):
        found = build_recorded(
            OPTIMIZERS[name](), [all_weights[i] for i in part], [keys[i] for i in part]
        )
        for slot in found:
            same = by_key[slot.key]
            assert tuple(slot.variable.shape) == tuple(same.variable.shape)
            if slot.owner is not None:
                assert same.owner == part[slot.owner]
        covered.update(slot.key for slot in found)
    assert covered == set(by_key)


@pytest.mark.parametrize("name", sorted(OPTIMIZERS))
def test_layout_without_memory_has_the_same_keys(name):
    all_weights = weights()
    keys = [f"model/{v.name}" for v in all_weights]
    built = build_recorded(OPTIMIZERS[name](), all_weights, keys)
    planned = layout(OPTIMIZERS[name](), all_weights, keys)
    assert [s.key for s in planned] == [s.key for s in built]
    assert [s.owner for s in planned] == [s.owner for s in built]


def test_clone_keeps_settings_exclusions_and_schedules():
    schedule = optimizers.schedules.ExponentialDecay(0.1, 10, 0.5)
    original = optimizers.AdamW(schedule, weight_decay=0.3, clipnorm=2.0, beta_1=0.7)
    original.exclude_from_weight_decay(var_names=["bias"])
    clone = clone_optimizer(original)
    assert clone is not original
    assert clone.get_config() == original.get_config()
    assert clone._learning_rate is schedule
    bias, kernel = (keras.Variable(np.zeros(2), name=n) for n in ("bias", "kernel"))
    clone.build([bias, kernel])
    assert not clone._use_weight_decay(bias)
    assert clone._use_weight_decay(kernel)


def test_clone_takes_the_current_learning_rate():
    original = optimizers.SGD(0.1)
    original.learning_rate = 0.025
    assert float(clone_optimizer(original).learning_rate) == pytest.approx(0.025)


def test_clone_of_an_optimizer_that_cannot_describe_itself_is_refused():
    class Odd(optimizers.SGD):
        def __init__(self, needed):
            super().__init__(0.1)

    with pytest.raises(UnsupportedError, match=r"Odd .* get_config"):
        clone_optimizer(Odd(1))
