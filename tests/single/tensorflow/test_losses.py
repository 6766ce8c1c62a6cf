"""Losses that need a whole batch are refused in pieces of it; others are those of Keras."""

from __future__ import annotations

from typing import Any

import keras
import numpy as np
import pytest

from hpcomm import hyparflow
from hpcomm.errors import UnsupportedError
from hpcomm.tensorflow.refusals import REFUSALS

pytestmark = pytest.mark.tensorflow
layers, losses, ops = keras.layers, keras.losses, keras.ops

X = np.random.default_rng(0).normal(size=(12, 5)).astype("float32")
Y = np.random.default_rng(1).uniform(size=(12, 3)).astype("float32")
LABELS = np.arange(12) % 3


def total(targets: Any, outputs: Any) -> Any:
    return ops.sum(ops.square(targets - outputs))


def per_column(targets: Any, outputs: Any) -> Any:
    return ops.mean(ops.square(targets - outputs), axis=0)


def per_sample(targets: Any, outputs: Any) -> Any:
    return ops.mean(ops.square(targets - outputs), axis=-1)


class OwnCall(losses.Loss):
    """Computes everything in ``__call__``; there is no ``call``."""

    def __call__(self, y_true: Any, y_pred: Any, sample_weight: Any = None) -> Any:
        del sample_weight
        return ops.sum(ops.square(y_true - y_pred))


class Scalar(losses.Loss):
    def call(self, y_true: Any, y_pred: Any) -> Any:
        return total(y_true, y_pred)


def model_of(loss: Any, outputs: str = "one", **options: Any) -> Any:
    keras.utils.set_random_seed(0)
    inputs = keras.Input((5,))
    first = layers.Dense(3, "sigmoid", name="first")(inputs)
    second = layers.Dense(3, "sigmoid", name="second")(inputs)
    made = {"one": first, "dict": {"first": first}, "dicts": {"first": first, "second": second}}
    model = keras.Model(inputs, made[outputs])
    model.compile(keras.optimizers.SGD(0.5), loss, **options)
    return model


def fit(model: Any, y: Any, micro_batches: int) -> Any:
    return hyparflow.fit(
        model,
        X,
        y,
        strategy="model",
        micro_batches=micro_batches,
        batch_size=12,
        epochs=2,
        shuffle=False,
        verbose=0,
        on_table=False,
    )


REFUSED: dict[str, tuple[str, Any, Any, str]] = {
    "Dice over the batch": ("scalar-loss", losses.Dice(), Y, "one"),
    "Dice over the first axis": ("scalar-loss", losses.Dice(axis=(0, 1)), Y, "one"),
    "Dice per column": ("scalar-loss", losses.Dice(axis=0), Y, "one"),
    "Tversky over the batch": ("scalar-loss", losses.Tversky(), Y, "one"),
    "dice by name": ("scalar-loss", "dice", Y, "one"),
    "Circle": ("comparing-loss", losses.Circle(), LABELS, "one"),
    "circle by name": ("comparing-loss", "circle", LABELS, "one"),
    "a sum": ("scalar-loss", total, Y, "one"),
    "a sum in a class": ("scalar-loss", Scalar(), Y, "one"),
    "a mean per column": ("scalar-loss", per_column, Y, "one"),
    "list of targets, dict of outputs": ("scalar-loss", [total, total], [Y, Y], "dicts"),
    "one loss for a dict": ("scalar-loss", total, [Y, Y], "dicts"),
    "dicts": ("scalar-loss", {"second": total}, {"first": Y, "second": Y}, "dicts"),
    "bare targets, dict of one output": ("scalar-loss", total, Y, "dict"),
    "own __call__": ("loss-call", OwnCall(), Y, "one"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_a_loss_that_needs_the_whole_batch_is_refused_in_pieces(name: str) -> None:
    key, loss, y, outputs = REFUSED[name]
    model = model_of(loss, outputs)
    before = model.get_weights()
    with pytest.raises(UnsupportedError) as caught:
        fit(model, y, 2)
    for part in (REFUSALS[key].feature, REFUSALS[key].why, REFUSALS[key].remedy):
        assert part in str(caught.value)
    for was, now in zip(before, model.get_weights(), strict=True):
        np.testing.assert_array_equal(now, was)


ALONE = ("Dice over the batch", "circle by name", "a sum", "own __call__")
FINE: dict[str, tuple[Any, Any, str]] = {
    "Dice per sample": (losses.Dice(axis=(1,)), Y, "one"),
    "Tversky per sample": (losses.Tversky(axis=-1), Y, "one"),
    "mse": ("mse", Y, "one"),
    "labels": ("sparse_categorical_crossentropy", LABELS, "one"),
    "sum": (losses.Huber(reduction="sum"), Y, "one"),
    "a function": (per_sample, Y, "one"),
    "lists for dicts": (["mse", per_sample], [Y, Y], "dicts"),
    "bare targets": (per_sample, Y, "dict"),
}


@pytest.mark.parametrize("name", [*ALONE, *FINE])
def test_other_losses_are_those_of_keras(name: str) -> None:
    loss, y, outputs = REFUSED[name][1:] if name in ALONE else FINE[name]
    alone = model_of(loss, outputs)
    expected = alone.fit(X, y, batch_size=12, epochs=2, shuffle=False, verbose=0).history["loss"]
    model = model_of(loss, outputs)
    history = fit(model, y, 1 if name in ALONE else 3).history
    np.testing.assert_allclose(history["loss"], expected, rtol=1e-4)
    for got, wanted in zip(model.get_weights(), alone.get_weights(), strict=True):
        np.testing.assert_allclose(got, wanted, rtol=1e-4, atol=1e-6)


def test_an_eager_loss_is_refused_too() -> None:
    with pytest.raises(UnsupportedError, match="reduces over the batch by itself"):
        fit(model_of(total, run_eagerly=True), Y, 2)


def test_such_a_loss_is_refused_where_it_is_evaluated_and_not_where_it_is_not_needed() -> None:
    model = model_of(losses.Dice())
    options: dict[str, Any] = {"strategy": "model", "micro_batches": 2, "verbose": 0}
    with pytest.raises(UnsupportedError, match="reduces over the batch by itself"):
        hyparflow.evaluate(model, X, Y, **options)
    got = hyparflow.predict(model, X, **options)
    np.testing.assert_allclose(got, model.predict(X, verbose=0), rtol=1e-5)


class Penalty(layers.Layer):
    def __init__(self, reduce: Any) -> None:
        super().__init__(name="penalty")
        self.reduce = reduce

    def call(self, inputs: Any) -> Any:
        self.add_loss(self.reduce(ops.square(inputs)))
        return inputs


def penalized(reduce: Any) -> Any:
    keras.utils.set_random_seed(0)
    model = keras.Sequential([keras.Input((5,)), layers.Dense(3), Penalty(reduce)])
    model.compile(keras.optimizers.SGD(0.01), "mse")
    return model


def test_added_losses_count_by_samples_and_are_said(caplog: pytest.LogCaptureFixture) -> None:
    common = {"batch_size": 12, "epochs": 2, "shuffle": False, "verbose": 0}
    expected = penalized(ops.mean).fit(X, Y, **common).history["loss"]
    np.testing.assert_allclose(fit(penalized(ops.mean), Y, 3).history["loss"], expected, rtol=1e-4)
    assert "penalty: what add_loss is given in each of 3 pieces of a batch" in caplog.text
    caplog.clear()
    fit(penalized(ops.sum), Y, 1)
    fit(model_of("mse"), Y, 3)
    assert "add_loss" not in caplog.text
