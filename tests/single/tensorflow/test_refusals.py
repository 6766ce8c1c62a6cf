"""Every row of the table of refusals: found in a model that uses it, and named in the message."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

from hpcomm.errors import HpcommError, InvalidArgumentError, ModelError, UnsupportedError
from hpcomm.hyparflow.framework import find_framework
from hpcomm.tensorflow.adapter import KerasAdapter
from hpcomm.tensorflow.arrays import to_array
from hpcomm.tensorflow.refusals import REFUSALS, find_refusals, refuse, refuse_unsupported

pytestmark = pytest.mark.tensorflow
layers = keras.layers


def functional(cls: Any = keras.Model, *hidden: Any, **options: Any) -> Any:
    inputs = keras.Input((4,), **options)
    x = inputs
    for layer in hidden:
        x = layer(x)
    model = cls(inputs, layers.Dense(2)(x))
    model.compile("sgd", "mse")
    return model


class Subclassed(keras.Model):
    def __init__(self) -> None:
        super().__init__()
        self.top = layers.Dense(1)

    def call(self, inputs: Any) -> Any:
        return self.top(inputs)


class OwnCall(keras.Model):
    def call(self, inputs: Any, training: Any = None, mask: Any = None) -> Any:
        return super().call(inputs, training=training, mask=mask) * 2


class OwnStep(keras.Model):
    def train_step(self, data: Any) -> Any:
        return super().train_step(data)


class OwnLoss(keras.Model):
    def compute_loss(self, *arguments: Any, **keywords: Any) -> Any:
        return super().compute_loss(*arguments, **keywords)


class Measuring(layers.Layer):
    def __init__(self) -> None:
        super().__init__()
        self.seen = keras.metrics.Mean(name="seen")

    def call(self, inputs: Any) -> Any:
        return inputs


def under_a_strategy() -> Any:
    with tf.distribute.OneDeviceStrategy("/cpu:0").scope():
        return functional()


def patched(name: str) -> Any:
    model = functional()
    setattr(model, name, lambda *arguments, **keywords: {"loss": 0.0})
    return model


def stateful() -> Any:
    model = keras.Sequential(
        [keras.Input((3, 4), batch_size=2), layers.LSTM(3, stateful=True), layers.Dense(1)]
    )
    model.compile("sgd", "mse")
    return model


def float8() -> Any:
    layer = layers.Dense(4)
    layer.build((None, 4))
    layer.quantize("float8")
    return functional(keras.Model, layer)


def nested(layer: Any) -> Any:
    inner = keras.Sequential([keras.Input((4,)), layer])
    return functional(keras.Model, inner)


MODELS: dict[str, tuple[str, Callable[[], Any], str]] = {
    "subclassed": ("subclassed-model", Subclassed, "Subclassed"),
    "own call": ("subclassed-model", lambda: functional(OwnCall), "OwnCall"),
    "train_step": ("custom-step", lambda: functional(OwnStep), "OwnStep.train_step"),
    "compute_loss": ("custom-loss-method", lambda: functional(OwnLoss), "OwnLoss.compute_loss"),
    "train_step of the object": ("custom-step", lambda: patched("train_step"), "train_step"),
    "compute_loss of the object": (
        "custom-loss-method",
        lambda: patched("compute_loss"),
        "compute_loss",
    ),
    "metric of a layer": ("layer-metrics", lambda: functional(keras.Model, Measuring()), "'seen'"),
    "metric of an inner layer": ("layer-metrics", lambda: nested(Measuring()), "'seen'"),
    "sparse input": (
        "sparse-input",
        lambda: functional(sparse=True, name="odd"),
        "'odd'",
    ),
    "optional input": ("optional-input", lambda: functional(optional=True, name="odd"), "'odd'"),
    "stateful recurrence": ("stateful-rnn", stateful, "lstm"),
    "float8": ("float8", float8, "dense"),
    "tf.distribute": ("distribution", under_a_strategy, "OneDeviceStrategy"),
}


@pytest.mark.parametrize("name", MODELS)
def test_a_refused_feature_is_named_with_reason_and_remedy(name: str) -> None:
    key, make, detail = MODELS[name]
    row = REFUSALS[key]
    with pytest.raises((UnsupportedError, ModelError)) as caught:
        refuse_unsupported(make(), call="fit", needs_loss=True)
    text = str(caught.value)
    assert text.startswith("fit: ")
    for part in (row.feature, row.why, row.remedy, detail):
        assert part in text


def test_a_model_of_another_framework_is_refused_by_its_name() -> None:
    torch = pytest.importorskip("torch")
    linear = torch.nn.Linear(4, 1)
    for model, name in (
        (linear, "torch.nn.modules.linear.Linear"),
        (torch.nn.Sequential(linear), "torch.nn.modules.container.Sequential"),
        (torch.nn.Identity, "the class torch.nn.modules.linear.Identity"),
        (layers.Dense, "the class keras.src.layers.core.dense.Dense"),
        (None, "builtins.NoneType"),
    ):
        with pytest.raises(InvalidArgumentError) as caught:
            find_framework(model, call="fit")
        assert str(caught.value) == (
            "fit: model must be a compiled Keras model, or a function without arguments that "
            f"returns one; got {name}"
        )
    with pytest.raises(ModelError) as refused:
        KerasAdapter().open(lambda: linear, random.getstate())
    assert str(refused.value) == (
        "the model function returned torch.nn.modules.linear.Linear; it must return a compiled "
        "Keras model"
    )


def test_a_string_input_is_refused() -> None:
    inputs = keras.Input((), dtype="string", name="words")
    model = keras.Model(inputs, layers.TextVectorization(vocabulary=["a", "b"])(inputs))
    assert ("string-input", "'words'") in list(find_refusals(model))


@pytest.mark.parametrize(
    ("value", "key"),
    [
        (tf.sparse.from_dense([[1.0, 0.0]]), "sparse-input"),
        (tf.ragged.constant([[1.0], [1.0, 2.0]]), "sparse-input"),
        (np.asarray(["a", "b"]), "string-input"),
        (np.asarray([object()]), "string-input"),
    ],
)
def test_refused_data_are_named(value: Any, key: str) -> None:
    with pytest.raises(UnsupportedError, match=r"^fit: ") as caught:
        to_array(value, call="fit")
    assert REFUSALS[key].feature in str(caught.value)


def test_what_is_fine_is_not_refused() -> None:
    inner = keras.Sequential([keras.Input((4,)), layers.Dense(4), layers.Dropout(0.5)])
    model = functional(keras.Model, inner, layers.BatchNormalization())
    model.compile("adam", "mse", metrics=["mae"], weighted_metrics=["mse"])
    refuse_unsupported(model, call="fit", needs_loss=True)
    assert list(find_refusals(model)) == []


def test_an_uncompiled_model_may_predict_but_not_train() -> None:
    inputs = keras.Input((4,))
    model = keras.Model(inputs, layers.Dense(1)(inputs), name="raw")
    refuse_unsupported(model, call="predict", needs_loss=False)
    with pytest.raises(ModelError, match=r"the model 'raw' is not compiled; call model\.compile"):
        refuse_unsupported(model, call="fit", needs_loss=True)


def test_every_row_says_why_and_what_instead() -> None:
    for key, row in REFUSALS.items():
        error = refuse(key, "detail", call="evaluate")
        assert isinstance(error, HpcommError)
        text = str(error)
        assert text.startswith(f"evaluate: {row.feature} (detail) is not supported: ")
        for part in (row.feature, row.why, row.remedy):
            assert part.strip() == part
            assert not part.endswith(".")
    texts = [row.feature for row in REFUSALS.values()]
    assert all(a not in b for a, b in itertools.permutations(texts, 2))
