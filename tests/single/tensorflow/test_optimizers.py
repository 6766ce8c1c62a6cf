"""Optimizers that users wrote or changed: the same as in one process, or refused by name."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import keras
import numpy as np
import pytest

from hpcomm import hyparflow
from hpcomm.errors import UnsupportedError
from hpcomm.tensorflow.optimizer import clone_optimizer
from hpcomm.tensorflow.refusals import REFUSALS

pytestmark = pytest.mark.tensorflow
X = np.random.default_rng(0).normal(size=(12, 5)).astype("float32")
Y = X[:, :1]


class Momentum(keras.optimizers.Optimizer):
    """Written as Keras's documentation says; ``pull`` is no argument of its constructor."""

    def __init__(self, learning_rate: float = 0.1, **options: Any) -> None:
        super().__init__(learning_rate=learning_rate, **options)
        self.pull = 0.5

    def build(self, variables: Any) -> None:
        if self.built:
            return
        super().build(variables)
        self.speeds = self.add_optimizer_variables(variables, "speed")

    def update_step(self, gradient: Any, variable: Any, learning_rate: Any) -> None:
        speed = self.speeds[self._get_variable_index(variable)]
        self.assign(speed, speed * self.pull - gradient * learning_rate)
        self.assign_add(variable, speed)


class Signs(keras.optimizers.SGD):
    def apply(self, grads: Any, trainable_variables: Any = None) -> Any:
        return super().apply([keras.ops.sign(g) for g in grads], trainable_variables)


class OwnPairs(keras.optimizers.Adam):
    def apply_gradients(self, grads_and_vars: Any) -> Any:
        return super().apply_gradients((g * 2, v) for g, v in grads_and_vars)


class OwnClip(keras.optimizers.SGD):
    def _clip_gradients(self, grads: Any) -> Any:
        return keras.optimizers.SGD._clip_gradients(self, [g / len(grads) for g in grads])


class Inherits(OwnClip):
    pass


class Wrapper(keras.optimizers.SGD):
    def __init__(self, inner: Any) -> None:
        super().__init__()
        self.inner_optimizer = inner


def patched(name: str) -> Any:
    optimizer = keras.optimizers.SGD()
    setattr(optimizer, name, lambda *arguments: None)
    return optimizer


def changed(make: Callable[..., Any], **attributes: Any) -> Any:
    optimizer = make()
    for name, value in attributes.items():
        setattr(optimizer, name, value)
    return optimizer


def model_of(optimizer: Any) -> Any:
    keras.utils.set_random_seed(0)
    layers = [keras.Input((5,)), keras.layers.Dense(4, "tanh"), keras.layers.Dense(1)]
    model = keras.Sequential(layers)
    model.compile(optimizer, "mse")
    return model


def fit(model: Any) -> Any:
    options: dict[str, Any] = {"batch_size": 6, "epochs": 2, "shuffle": False, "verbose": 0}
    return hyparflow.fit(
        model, X, Y, strategy="model", micro_batches=2, on_table=False, **options
    ).history["loss"]


@pytest.mark.parametrize(
    ("make", "detail"),
    [
        (Signs, "Signs.apply"),
        (OwnPairs, "OwnPairs.apply_gradients"),
        (OwnClip, "OwnClip._clip_gradients"),
        (Inherits, "Inherits._clip_gradients"),
        (lambda: keras.optimizers.LossScaleOptimizer(Signs()), "Signs.apply"),
        (lambda: Wrapper(keras.optimizers.SGD()), "Wrapper.inner_optimizer"),
        (lambda: patched("apply"), "SGD.apply"),
        (lambda: patched("update_step"), "SGD.update_step"),
    ],
)
def test_an_optimizer_that_wants_all_gradients_is_refused(make: Any, detail: str) -> None:
    row = REFUSALS["custom-optimizer"]
    with pytest.raises(UnsupportedError) as caught:
        fit(model_of(make()))
    for part in (row.feature, f"({detail})", row.why, row.remedy):
        assert part in str(caught.value)


@pytest.mark.parametrize(
    "make",
    [
        Momentum,
        lambda: changed(Momentum, pull=0.9),
        lambda: changed(Momentum, pull=np.float32(0.9)),
        lambda: changed(keras.optimizers.Adam, beta_1=0.5),
        lambda: changed(keras.optimizers.SGD, clipvalue=0.01),
    ],
)
def test_others_train_as_keras_does(make: Any) -> None:
    alone = model_of(make())
    expected = alone.fit(X, Y, batch_size=6, epochs=2, shuffle=False, verbose=0).history["loss"]
    expected += alone.fit(X, Y, batch_size=6, epochs=2, shuffle=False, verbose=0).history["loss"]
    model = model_of(make())
    np.testing.assert_allclose(fit(model) + fit(model), expected, rtol=1e-4)
    for got, wanted in zip(model.get_weights(), alone.get_weights(), strict=True):
        np.testing.assert_allclose(got, wanted, rtol=1e-4, atol=1e-6)


def test_a_copy_has_what_was_set_later_and_no_state() -> None:
    values: dict[str, Any] = {
        "pull": 0.9,
        "label": "x",
        "on": True,
        "off": None,
        "pair": (1, (2.0, "y")),
        "rates": [1.0, 2.0],
        "by_name": {"a": 1},
        "function": keras.ops.sign,
    }
    optimizer = changed(Momentum, **values, array=np.ones(3))
    clone = clone_optimizer(optimizer)
    np.testing.assert_array_equal(clone.array, np.ones(3))
    assert {name: getattr(clone, name) for name in values} == values
    assert not clone.built
    optimizer.build([keras.Variable([1.0])])
    again = clone_optimizer(optimizer)
    assert not again.built
    assert {name: getattr(again, name) for name in values} == values
    again.build([keras.Variable([1.0]), keras.Variable([2.0])])
    assert len(again.speeds) == 2


def test_a_copy_of_the_optimizers_of_keras_is_unchanged_by_it() -> None:
    for make in (keras.optimizers.Adam, keras.optimizers.Nadam, keras.optimizers.Adafactor):
        optimizer = make(use_ema=True, ema_overwrite_frequency=2)
        optimizer.build([keras.Variable([[1.0, 2.0]])])
        clone = clone_optimizer(keras.optimizers.LossScaleOptimizer(optimizer))
        assert not clone.built
        assert not clone.inner_optimizer.built
        assert clone.inner_optimizer.get_config() == optimizer.get_config()
