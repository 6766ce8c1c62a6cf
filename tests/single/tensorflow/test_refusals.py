"""Every row of the table of refusals: raised where it is used, and named in the message."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

from hpcomm import hyparflow
from hpcomm.errors import (
    CallbackError,
    HpcommError,
    InvalidArgumentError,
    ModelError,
    UnsupportedError,
)
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


def string_input() -> Any:
    inputs = keras.Input((), dtype="string", name="words")
    model = keras.Model(inputs, layers.TextVectorization(vocabulary=["a", "b"])(inputs))
    model.compile("sgd", "mse")
    return model


class OwnApply(keras.optimizers.SGD):
    def apply(self, grads: Any, trainable_variables: Any = None) -> Any:
        return super().apply(grads, trainable_variables)


def own_optimizer() -> Any:
    model = functional()
    model.compile(OwnApply(), "mse")
    return model


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
    "string input": ("string-input", string_input, "'words'"),
    "optimizer": ("custom-optimizer", own_optimizer, "OwnApply.apply"),
}


def train(
    loss: Any = "mse", y: Any = None, callbacks: Any = None, batch: int | None = None
) -> None:
    """Fit a model of two outputs in two pieces per batch."""
    inputs = keras.Input((4,), batch_size=batch)
    model = keras.Model(inputs, [layers.Dense(2)(inputs), layers.Dense(2)(inputs)])
    model.compile("sgd", loss)
    x = np.ones((8, 4), "float32")
    hyparflow.fit(
        model,
        x,
        [np.ones((8, 2), "float32")] * 2 if y is None else y,
        strategy="model",
        micro_batches=2,
        batch_size=8,
        verbose=0,
        on_table=False,
        callbacks=callbacks,
    )


def train_on_distributed_data() -> None:
    data = tf.data.Dataset.from_tensor_slices((np.ones((8, 4)), np.ones((8, 2)))).batch(4)
    data = tf.distribute.MirroredStrategy(["/cpu:0"]).experimental_distribute_dataset(data)
    hyparflow.fit(functional(), data, strategy="model", verbose=0, on_table=False)


def in_callback(act: Callable[[Any], Any]) -> Callable[[], None]:
    class Acts(keras.callbacks.Callback):
        def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
            act(self.model)

    return lambda: train(callbacks=[Acts()])


def gather_nothing() -> None:
    options: dict[str, Any] = {"strategy": "model", "gather": "none", "on_table": False}
    with hyparflow.Session(functional(), **options) as session:
        session.gather_whole()


def with_backend(name: str) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(keras.backend, "backend", lambda: name)
        refuse_unsupported(functional(), call="fit", needs_loss=True)


def total(targets: Any, outputs: Any) -> Any:
    return keras.ops.sum(keras.ops.square(targets - outputs))


class OwnReduction(keras.losses.Loss):
    def __call__(self, y_true: Any, y_pred: Any, sample_weight: Any = None) -> Any:
        del sample_weight
        return total(y_true, y_pred)


def mse(reduction: str | None) -> Any:
    return keras.losses.MeanSquaredError(reduction=reduction)


SCHEDULE = keras.optimizers.schedules.ExponentialDecay(0.1, 10, 0.9)
LABELS = [np.arange(8) % 2] * 2

CALLS: dict[str, tuple[str, Callable[[], None], str]] = {
    "distributed data": ("distributed-dataset", train_on_distributed_data, ""),
    "another backend": ("jax-or-torch-backend", lambda: with_backend("jax"), "jax"),
    "training": (
        "training-inside-callback",
        in_callback(lambda model: model.fit),
        "self.model.fit",
    ),
    "a schedule": (
        "schedule-in-callback",
        in_callback(lambda model: setattr(model.optimizer, "learning_rate", SCHEDULE)),
        "",
    ),
    "momentum": (
        "optimizer-attribute",
        in_callback(lambda model: setattr(model.optimizer, "momentum", 0.5)),
        "self.model.optimizer.momentum",
    ),
    "fixed batch": ("fixed-batch", lambda: train(batch=8), "(8, 4)"),
    "a sum": ("scalar-loss", lambda: train(total), "2 micro-batches"),
    "pairs": ("comparing-loss", lambda: train(keras.losses.Circle(), LABELS), "circle"),
    "own __call__": ("loss-call", lambda: train(OwnReduction()), "OwnReduction"),
    "no reduction": ("loss-without-reduction", lambda: train(mse(None)), "mean_squared_error"),
    "two reductions": ("mixed-reductions", lambda: train([mse("sum"), "mse"]), "sum"),
    "two weighted means": (
        "weighted-mean-of-several-losses",
        lambda: train([mse("mean_with_sample_weight")] * 2),
        "mean_squared_error",
    ),
    "all weights": ("whole-model", gather_nothing, ""),
}


def test_every_row_has_a_case() -> None:
    assert {key for key, _, _ in [*MODELS.values(), *CALLS.values()]} == set(REFUSALS)


@pytest.mark.parametrize("name", CALLS)
def test_what_is_not_seen_in_the_model_is_refused_in_the_call(name: str) -> None:
    key, run, detail = CALLS[name]
    row = REFUSALS[key]
    with pytest.raises((UnsupportedError, CallbackError)) as caught:
        run()
    for part in (row.feature, row.why, row.remedy, detail):
        assert part in str(caught.value)


def test_a_subclassed_model_from_a_function_gets_its_row() -> None:
    row = REFUSALS["subclassed-model"]
    x = np.ones((8, 4), "float32")
    with pytest.raises(ModelError) as caught:
        hyparflow.fit(lambda: Subclassed(), x, x, strategy="model")
    for part in (row.feature, "(Subclassed)", row.why, row.remedy):
        assert part in str(caught.value)


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
