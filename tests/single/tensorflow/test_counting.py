"""Layers whose state advances with every call: it does so per micro-batch, and that is said."""

from __future__ import annotations

from typing import Any

import keras
import numpy as np
import pytest

from hpcomm import hyparflow

pytestmark = pytest.mark.tensorflow
layers = keras.layers
X = np.random.default_rng(0).normal(size=(12, 5)).astype("float32")


class Counter(layers.Layer):
    """Counts its calls in training."""

    def build(self, shape: Any) -> None:
        del shape
        self.count = self.add_weight(shape=(), dtype="int32", initializer="zeros", trainable=False)

    def call(self, inputs: Any, training: bool = False) -> Any:
        if training:
            self.count.assign(self.count + 1)
        return inputs


class Block(layers.Layer):
    """Holds layers whose state needs no notice."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = layers.BatchNormalization()
        self.drop = layers.Dropout(0.5)

    def call(self, inputs: Any, training: bool = False) -> Any:
        return self.drop(self.norm(inputs, training=training), training=training)


def train(layer: Any, micro_batches: int) -> None:
    keras.utils.set_random_seed(0)
    model = keras.Sequential([keras.Input((5,)), layers.Dense(5), layer, layers.Dense(1)])
    model.compile("sgd", "mse")
    options: dict[str, Any] = {"batch_size": 6, "epochs": 1, "verbose": 0, "on_table": False}
    hyparflow.fit(model, X, X[:, :1], strategy="model", micro_batches=micro_batches, **options)


def test_state_advances_once_per_micro_batch_and_is_said(caplog: pytest.LogCaptureFixture) -> None:
    counter = Counter(name="counter")
    train(counter, 3)
    assert int(counter.count) == 6
    assert "counter: state that a layer changes whenever it runs is changed once per" in caplog.text
    caplog.clear()
    train(layers.SpectralNormalization(layers.Dense(5), name="spectral"), 2)
    assert "spectral: state that a layer changes" in caplog.text


def test_nothing_is_said_where_nothing_differs(caplog: pytest.LogCaptureFixture) -> None:
    train(Counter(), 1)
    for layer in (layers.BatchNormalization(), layers.Dropout(0.5), Block(), layers.Dense(5)):
        train(layer, 2)
    assert "state that a layer changes" not in caplog.text
