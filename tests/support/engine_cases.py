"""Small models that each exercise one thing the engine must get right, with batches for them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import keras
import numpy as np

layers = keras.layers
ops = keras.ops


@dataclass
class EngineCase:
    """A compiled model and what one step trains on.

    ``batches`` are (inputs by name, targets, sample weights) with leaves of equal length.
    """

    make: Callable[[], Any]
    batches: Callable[[], list[tuple[dict[str, Any], Any, Any]]]
    tolerance: float = 1e-9


def random(*shape: int, seed: int = 0) -> Any:
    return np.random.default_rng(seed).normal(size=shape).astype(keras.config.floatx())


def whole(high: int, *shape: int, seed: int = 0) -> Any:
    return np.random.default_rng(seed).integers(0, high, shape).astype("int32")


def simple_batches(samples: tuple[int, ...] = (10, 10, 7), weighted: bool = False):
    def batches():
        return [
            (
                {"x": random(n, 6, seed=i)},
                random(n, 3, seed=50 + i),
                abs(random(n, seed=90 + i)) if weighted else None,
            )
            for i, n in enumerate(samples)
        ]

    return batches


def chain(*hidden: Any, optimizer: Any = None, loss: Any = "mse", **compile_: Any) -> Any:
    model = keras.Sequential([keras.Input((6,), name="x"), *hidden, layers.Dense(3)])
    model.compile(optimizer or keras.optimizers.SGD(0.1, momentum=0.9), loss, **compile_)
    return model


def skips_over_three_stages() -> Any:
    left, right = keras.Input((6,), name="left"), keras.Input((4,), name="right")
    a = layers.Dense(5, "tanh", name="a")(left)
    b = layers.Dense(5, "tanh", name="b")(a)
    c = layers.Dense(5, "tanh", name="c")(layers.Concatenate()([b, right]))
    d = layers.Dense(5, "tanh", name="d")(layers.Add()([c, a]))
    early = layers.Dense(2, name="early")(b)
    late = layers.Dense(3, name="late")(layers.Concatenate()([d, a, b]))
    model = keras.Model({"left": left, "right": right}, {"early": early, "late": late})
    model.compile("adam", {"early": "mae", "late": "mse"}, loss_weights={"early": 0.4, "late": 1.5})
    return model


def skip_batches():
    return [
        (
            {"left": random(n, 6, seed=n), "right": random(n, 4, seed=n + 1)},
            {"early": random(n, 2, seed=n + 2), "late": random(n, 3, seed=n + 3)},
            None,
        )
        for n in (11, 8)
    ]


def shared_layers() -> Any:
    x = keras.Input((6,), name="x")
    tied = layers.Dense(6, "tanh", kernel_regularizer="l2", name="tied")
    y = tied(x)
    y = layers.Dense(6, "tanh")(tied(y))
    model = keras.Model(x, layers.Dense(3)(layers.Dense(6)(tied(y))))
    model.compile(keras.optimizers.Adam(0.01, global_clipnorm=0.05), "mse")
    return model


def regularized_weighted_clipped() -> Any:
    return chain(
        layers.Dense(7, "tanh", kernel_regularizer="l2", bias_regularizer="l1"),
        layers.Dense(5, "tanh", activity_regularizer="l2"),
        layers.Dense(5, kernel_constraint=keras.constraints.MaxNorm(0.5)),
        optimizer=keras.optimizers.AdamW(0.01, weight_decay=0.1, clipnorm=0.1),
    )


def batch_norm() -> Any:
    return chain(
        layers.Dense(8, "relu"),
        layers.BatchNormalization(),
        layers.Dense(5),
        layers.BatchNormalization(),
    )


def frozen() -> Any:
    hidden = [layers.Dense(7, "tanh") for _ in range(4)]
    hidden[0].trainable = hidden[1].trainable = hidden[3].trainable = False
    return chain(*hidden)


def integers_across_boundaries() -> Any:
    x = keras.Input((6,), name="x")
    y = layers.Dense(6, "tanh", name="scores")(x)
    order = layers.Dense(5, name="order")(y)
    z = layers.Flatten()(layers.Embedding(5, 2)(ops.argsort(order, axis=-1)))
    model = keras.Model(x, layers.Dense(3)(layers.Concatenate()([z, y, order])))
    model.compile("sgd", "mse")
    return model


def masked() -> Any:
    x = keras.Input((7,), dtype="int32", name="x")
    y = layers.Embedding(9, 4, mask_zero=True)(x)
    y = layers.LSTM(5, return_sequences=True)(layers.Dropout(0.0)(y))
    y = layers.GRU(4, return_sequences=True)(layers.Dense(4)(y))
    model = keras.Model(x, layers.Dense(3)(y))
    model.compile("sgd", "mse")
    return model


def embedding() -> Any:
    """Repeated rows: their gradients are added up before Adam squares them."""
    x = keras.Input((7,), dtype="int32", name="x")
    y = layers.Dense(4)(layers.Embedding(9, 4)(x))
    model = keras.Model(x, layers.Dense(3)(y))
    model.compile(keras.optimizers.Adam(0.05, clipnorm=0.1), "mse")
    return model


def masked_batches():
    return [
        ({"x": whole(9, 8, 7, seed=i) * (np.arange(7) < 5)}, random(8, 7, 3, seed=i), None)
        for i in range(2)
    ]


class Unflatten(layers.Layer):
    """Give rows that were (samples times positions, width) their batch axis back."""

    def call(self, rows: Any, like: Any) -> Any:
        return ops.reshape(rows, (ops.shape(like)[0], -1, rows.shape[-1]))

    def compute_output_shape(self, rows_shape: Any, like_shape: Any) -> Any:
        return (like_shape[0], None, rows_shape[-1])


def changing_length() -> Any:
    x = keras.Input((None, 4), name="x")
    y = layers.Conv1D(5, 3, padding="same", activation="tanh")(x)
    y = layers.Conv1D(5, 3, padding="same", activation="tanh")(y)
    # The first axis is no longer the batch: samples times positions.
    z = Unflatten()(layers.Dense(3)(ops.reshape(y, (-1, 5))), y)
    model = keras.Model(x, layers.Dense(2)(layers.GlobalAveragePooling1D()(z)))
    model.compile("sgd", "mse")
    return model


def length_batches():
    return [
        ({"x": random(7, length, 4, seed=length)}, random(7, 2, seed=length), None)
        for length in (5, 9, 5, 3)
    ]


def accumulating() -> Any:
    return chain(
        layers.Dense(6, "tanh"),
        layers.Dense(6, "tanh"),
        optimizer=keras.optimizers.Adam(
            0.01, gradient_accumulation_steps=2, global_clipnorm=0.03, use_ema=True
        ),
    )


def eager() -> Any:
    return chain(
        layers.Dense(6, "tanh"),
        layers.BatchNormalization(),
        layers.Dense(6, "relu"),
        run_eagerly=True,
    )


def half(policy: str):
    def make() -> Any:
        options = {"dtype": policy}
        return chain(
            layers.Dense(16, "tanh", **options),
            layers.Dense(16, "tanh", **options),
            layers.Dense(16, "tanh", **options),
        )

    return make


CASES = {
    "skips": EngineCase(skips_over_three_stages, skip_batches),
    "shared": EngineCase(shared_layers, simple_batches()),
    "regularized": EngineCase(regularized_weighted_clipped, simple_batches(weighted=True)),
    "batch norm": EngineCase(batch_norm, simple_batches((12, 12))),
    "frozen": EngineCase(frozen, simple_batches()),
    "integers": EngineCase(integers_across_boundaries, simple_batches((9, 9))),
    "embedding": EngineCase(embedding, masked_batches),
    "masked": EngineCase(masked, masked_batches),
    "changing length": EngineCase(changing_length, length_batches),
    "accumulating": EngineCase(accumulating, simple_batches((10, 10, 10, 10))),
    "eager": EngineCase(eager, simple_batches((8, 7))),
    "bfloat16": EngineCase(half("mixed_bfloat16"), simple_batches(), tolerance=3e-2),
    "float16": EngineCase(half("mixed_float16"), simple_batches(), tolerance=3e-3),
}


def dropout_model() -> Any:
    return chain(
        layers.Dense(16, "tanh"),
        layers.Dropout(0.3),
        layers.GaussianNoise(0.1),
        layers.Dense(16, "tanh"),
        layers.AlphaDropout(0.2),
        layers.Dense(8, "tanh"),
        layers.Dropout(0.5),
    )
