"""Small Keras models, one per feature that training may carry, with data and arguments of fit."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import keras
import numpy as np
import tensorflow as tf

layers = keras.layers
SAMPLES = 23


@dataclass
class Case:
    """One feature.

    ``make`` returns a compiled model; ``data`` what fit gets as x, y; ``options`` more of its
    arguments. ``tolerance`` is relative, for float64 unless the case lowers the precision.
    """

    make: Callable[[], Any]
    data: Callable[[], tuple[Any, ...]]
    options: dict[str, Any] = field(default_factory=dict)
    tolerance: float = 1e-9
    micro_batches: int = 3


def numbers(*shape: int, seed: int = 0) -> Any:
    return np.random.default_rng(seed).normal(size=(SAMPLES, *shape)).astype(keras.config.floatx())


def classes(count: int, seed: int = 5) -> Any:
    return np.random.default_rng(seed).integers(0, count, SAMPLES)


def xy() -> tuple[Any, Any]:
    return numbers(6), classes(3)


def mlp(
    *, optimizer: Any = "sgd", loss: Any = "sparse_categorical_crossentropy", **compile_: Any
) -> Any:
    return build([layers.Dense(7, "tanh"), layers.Dense(5, "tanh")], optimizer, loss, **compile_)


def build(
    hidden: list[Any],
    optimizer: Any = "sgd",
    loss: Any = "sparse_categorical_crossentropy",
    *,
    activation: str | None = "softmax",
    width: int = 6,
    **compile_: Any,
) -> Any:
    model = keras.Sequential(
        [keras.Input((width,)), *hidden, layers.Dense(3, activation, name="top")]
    )
    model.compile(optimizer, loss, **compile_)
    return model


class PenaltyLayer(layers.Layer):
    """Adds the mean square of what passes through to the loss."""

    def call(self, inputs: Any) -> Any:
        self.add_loss(0.1 * keras.ops.mean(keras.ops.square(inputs)))
        return inputs

    def compute_output_shape(self, shape: Any) -> Any:
        return shape


def regularized() -> Any:
    return build(
        [
            layers.Dense(7, "tanh", kernel_regularizer="l2", bias_regularizer="l1"),
            layers.Dense(5, "tanh", activity_regularizer="l2"),
            layers.Dense(4, kernel_constraint=keras.constraints.MaxNorm(0.5)),
        ]
    )


def added_losses() -> Any:
    return build([layers.Dense(7, "tanh"), PenaltyLayer(), layers.Dense(5), PenaltyLayer()])


def two_outputs(**compile_: Any) -> Any:
    left, right = keras.Input((6,), name="left"), keras.Input((4,), name="right")
    a = layers.Dense(5, "tanh")(left)
    early = layers.Dense(3, "softmax", name="early")(a)
    b = layers.Concatenate()([layers.Dense(5, "tanh")(a), right])
    late = layers.Dense(1, name="late")(layers.Dense(4, "tanh")(b))
    model = keras.Model({"left": left, "right": right}, {"early": early, "late": late})
    options = {
        "loss": {"early": "sparse_categorical_crossentropy", "late": "mse"},
        "loss_weights": {"early": 0.3, "late": 2.0},
        "metrics": {"early": ["accuracy"], "late": ["mae"]},
    }
    model.compile("sgd", **(options | compile_))
    return model


def two_data() -> tuple[Any, Any]:
    return (
        {"left": numbers(6), "right": numbers(4, seed=1)},
        {"early": classes(3), "late": numbers(1, seed=2)},
    )


def frozen() -> Any:
    hidden = [layers.Dense(7, "tanh"), layers.Dense(5, "tanh"), layers.Dense(5, "tanh")]
    hidden[0].trainable = False
    hidden[2].trainable = False
    return build(hidden, "adam")


def lora() -> Any:
    model = build([layers.Dense(7, "tanh"), layers.Dense(5, "tanh")])
    for layer in model.layers[:2]:
        layer.enable_lora(2)
    model.compile("adam", "sparse_categorical_crossentropy")
    return model


def mixed(policy: str) -> Callable[[], Any]:
    def make() -> Any:
        before = keras.config.dtype_policy()
        keras.config.set_dtype_policy(policy)
        try:
            hidden = [layers.Dense(8, "tanh"), layers.Dense(8, "tanh")]
            model = keras.Sequential(
                [keras.Input((6,)), *hidden, layers.Dense(3, "softmax", dtype="float32")]
            )
            model.compile("sgd", "sparse_categorical_crossentropy", metrics=["accuracy"])
        finally:
            keras.config.set_dtype_policy(before)
        return model

    return make


def stateful_metrics() -> Any:
    return mlp(
        loss="categorical_crossentropy",
        metrics=[
            keras.metrics.AUC(num_thresholds=20, name="auc"),
            keras.metrics.F1Score(name="f1"),
            keras.metrics.Precision(name="precision"),
            "accuracy",
        ],
        weighted_metrics=[keras.metrics.CategoricalAccuracy(name="weighted")],
    )


def one_hot() -> tuple[Any, Any]:
    return numbers(6), np.eye(3)[classes(3)].astype(keras.config.floatx())


def recurrent(*, sequences: bool) -> Callable[[], Any]:
    def make() -> Any:
        model = keras.Sequential(
            [
                keras.Input((5,), dtype="int32"),
                layers.Embedding(9, 6, mask_zero=True),
                layers.GRU(5, return_sequences=True),
                layers.LSTM(4, return_sequences=sequences),
                layers.Dense(3, "softmax"),
            ]
        )
        model.compile("sgd", "sparse_categorical_crossentropy", metrics=["accuracy"])
        return model

    return make


def tokens(*, sequences: bool) -> Callable[[], tuple[Any, Any]]:
    def make() -> tuple[Any, Any]:
        generator = np.random.default_rng(3)
        x = generator.integers(1, 9, (SAMPLES, 5))
        x[:, 3:][generator.uniform(size=(SAMPLES, 2)) < 0.5] = 0
        y = generator.integers(0, 3, (SAMPLES, 5)) if sequences else classes(3)
        return x, y

    return make


def shared() -> Any:
    inputs = keras.Input((6,))
    tied = layers.Dense(6, "tanh", kernel_regularizer="l2")
    hidden = tied(layers.Dense(6, "tanh")(tied(inputs)))
    model = keras.Model(inputs, layers.Dense(3, "softmax")(tied(hidden)))
    model.compile(keras.optimizers.SGD(0.1, global_clipnorm=0.2), "sparse_categorical_crossentropy")
    return model


def images() -> Any:
    model = keras.Sequential(
        [
            keras.Input((6, 6, 3)),
            layers.Rescaling(1 / 255.0),
            layers.Conv2D(4, 3, activation="relu"),
            layers.BatchNormalization(),
            layers.GlobalAveragePooling2D(),
            layers.Dense(3, "softmax"),
        ]
    )
    model.compile("sgd", "sparse_categorical_crossentropy", metrics=["accuracy"])
    return model


def bytes_and_classes() -> tuple[Any, Any]:
    generator = np.random.default_rng(4)
    return generator.integers(0, 256, (SAMPLES, 6, 6, 3)).astype("uint8"), classes(3)


def accumulating() -> Any:
    return mlp(optimizer=keras.optimizers.Adam(0.01, gradient_accumulation_steps=2))


def scheduled() -> Any:
    schedule = keras.optimizers.schedules.ExponentialDecay(0.1, 3, 0.5)
    return mlp(optimizer=keras.optimizers.SGD(schedule, momentum=0.9, nesterov=True))


def custom_loss(y_true: Any, y_pred: Any) -> Any:
    return keras.ops.mean(keras.ops.abs(y_pred - keras.ops.cast(y_true, y_pred.dtype)), axis=-1)


def of_optimizer(name: str, **options: Any) -> Callable[[], Any]:
    return lambda: mlp(optimizer=getattr(keras.optimizers, name)(**options))


def dataset() -> tuple[Any]:
    x, y = xy()
    return (tf.data.Dataset.from_tensor_slices((x, y)).batch(8),)


class Batches(keras.utils.PyDataset):
    """Batches of several sizes, with sample weights; counts its epochs."""

    def __init__(self) -> None:
        super().__init__()
        self.x, self.y = xy()
        self.ended = 0

    def __len__(self) -> int:
        return 3

    def __getitem__(self, index: int) -> Any:
        window = slice((0, 4, 12)[index], (4, 12, SAMPLES)[index])
        return self.x[window], self.y[window], np.abs(self.x[window, 0])

    def on_epoch_end(self) -> None:
        self.ended += 1


def generator() -> Any:
    x, y = xy()
    while True:
        yield x[:9], y[:9]
        yield x[9:], y[9:]


WEIGHTS = {"sample_weight": np.linspace(0.1, 2.0, SAMPLES)}

CASES: dict[str, Case] = {
    "regularizers and constraints": Case(regularized, xy),
    "add_loss": Case(added_losses, xy),
    "sample weights": Case(
        lambda: mlp(metrics=["accuracy"], weighted_metrics=["accuracy"]), xy, WEIGHTS
    ),
    "class weights": Case(mlp, xy, {"class_weight": {0: 2.0, 2: 0.5}}),
    "loss weights, dicts in and out": Case(two_outputs, two_data),
    "one weight per output": Case(
        two_outputs,
        two_data,
        {"sample_weight": {"early": WEIGHTS["sample_weight"], "late": WEIGHTS["sample_weight"]}},
    ),
    "an output without loss": Case(
        lambda: two_outputs(loss={"early": None, "late": "mse"}, loss_weights=None, metrics=None),
        two_data,
    ),
    "clipnorm": Case(of_optimizer("SGD", learning_rate=0.1, clipnorm=0.05), xy),
    "clipvalue": Case(of_optimizer("SGD", learning_rate=0.1, clipvalue=0.01), xy),
    "global clipnorm, tied weights": Case(shared, xy),
    "frozen layers": Case(frozen, xy),
    "moving averages": Case(
        of_optimizer("Adam", use_ema=True, ema_momentum=0.8, ema_overwrite_frequency=3), xy
    ),
    "stateful metrics": Case(stateful_metrics, one_hot, WEIGHTS),
    "masks": Case(recurrent(sequences=False), tokens(sequences=False)),
    # In several pieces a mean over what is not masked is taken in each, which is announced.
    "masks that reach the loss": Case(
        recurrent(sequences=True), tokens(sequences=True), micro_batches=1
    ),
    "batch normalization": Case(images, bytes_and_classes, micro_batches=1),
    "run_eagerly": Case(lambda: mlp(run_eagerly=True, metrics=["accuracy"]), xy),
    "steps_per_execution": Case(lambda: mlp(steps_per_execution=2), xy),
    "gradient accumulation": Case(accumulating, xy),
    "learning-rate schedule": Case(scheduled, xy),
    "weight decay": Case(of_optimizer("AdamW", weight_decay=0.1), xy),
    "sum as reduction": Case(
        lambda: mlp(loss=keras.losses.SparseCategoricalCrossentropy(reduction="sum")), xy
    ),
    "loss function": Case(lambda: mlp(loss=custom_loss), one_hot),
    "lora": Case(lora, xy),
    "mixed_bfloat16": Case(mixed("mixed_bfloat16"), xy, tolerance=3e-2),
    "mixed_float16 with loss scaling": Case(mixed("mixed_float16"), xy, tolerance=1e-2),
    "RMSprop": Case(of_optimizer("RMSprop", centered=True, momentum=0.5), xy),
    "Adafactor": Case(of_optimizer("Adafactor"), xy),
    "Lamb": Case(of_optimizer("Lamb"), xy),
    "Nadam": Case(of_optimizer("Nadam"), xy),
    "tf.data": Case(mlp, dataset),
    "PyDataset": Case(mlp, lambda: (Batches(),)),
    "generator": Case(mlp, lambda: (generator(),), {"steps_per_epoch": 3}),
}


def seeded(case: Case) -> Any:
    """Return the case's model, the same on every rank and every call."""
    keras.utils.set_random_seed(11)
    return case.make()
