"""A model with two inputs, two outputs and long skips: what a cut through a graph has to survive.

An image tower and a token tower run side by side and are merged; an early image feature is used
again in the middle and at the end of the trunk, and an early integer index at its end, so that with
four stages one tensor goes to several of them; one output is made in the middle of the model, the
other at its end.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from keras import Model, layers, ops

from hpcomm.models.keras.common import logits_dtype
from hpcomm.models.task import InputSpec, OutputSpec, Task

if TYPE_CHECKING:
    from hpcomm.models.task import BuildOptions

_TOKENS = 12
_VOCABULARY = 40
_WIDTH = 32
_CODES = 16
_TRUNK_LAYERS = 6


def task(options: BuildOptions) -> Task:
    """Return inputs and outputs: image and tokens → classes and four values."""
    size = options.image_size
    return Task(
        inputs=(
            InputSpec("image", (size, size, 3)),
            InputSpec("tokens", (_TOKENS,), "int32", _VOCABULARY),
        ),
        outputs=(
            OutputSpec("values", "values", 4, loss_weight=0.3),
            OutputSpec("classes", "classes", options.num_classes),
        ),
    )


def build(options: BuildOptions) -> Model:
    """Build the model.

    Args:
        options: image size, classes, dtype policy.

    Returns:
        Uncompiled model, {"image": (batch, size, size, 3), "tokens": (batch, 12)} →
        {"values": (batch, 4), "classes": logits (batch, classes)}.
    """
    dtype = options.dtype
    image = layers.Input((options.image_size, options.image_size, 3), name="image")
    tokens = layers.Input((_TOKENS,), dtype="int32", name="tokens")

    early, image_code = _image_tower(image, dtype)
    token_code = _token_tower(tokens, dtype)
    x = layers.Concatenate(dtype=dtype, name="merge")([image_code, token_code])
    x = layers.Dense(_WIDTH, activation="tanh", dtype=dtype, name="trunk_in")(x)
    values = None
    for index in range(_TRUNK_LAYERS):
        y = layers.Dense(_WIDTH, activation="tanh", dtype=dtype, name=f"trunk{index}")(x)
        x = layers.Add(dtype=dtype, name=f"trunk{index}_add")([x, y])
        if index == _TRUNK_LAYERS // 2:
            middle = layers.Dense(_WIDTH, dtype=dtype, name="middle")(early)
            x = layers.Add(dtype=dtype, name="middle_add")([x, middle])
            values = layers.Dense(4, dtype=logits_dtype(dtype), name="values")(x)

    code = layers.Embedding(_CODES, _WIDTH, dtype=dtype, name="code_embedding")(
        ops.argmax(early, axis=-1)
    )
    x = layers.Add(dtype=dtype, name="late_add")([x, code])
    x = layers.Concatenate(dtype=dtype, name="late_merge")([x, early, token_code])
    x = layers.Dense(_WIDTH, activation="relu", dtype=dtype, name="late")(x)
    classes = layers.Dense(options.num_classes, dtype=logits_dtype(dtype), name="classes")(x)
    return Model(
        {"image": image, "tokens": tokens},
        {"values": values, "classes": classes},
        name="two-towers",
    )


def _image_tower(image: Any, dtype: str | None) -> tuple[Any, Any]:
    x = layers.Conv2D(
        _CODES, 3, padding="same", activation="relu", dtype=dtype, name="image_conv0"
    )(image)
    early = layers.GlobalAveragePooling2D(dtype=dtype, name="image_early")(x)
    x = layers.Conv2D(
        _WIDTH, 3, strides=2, padding="same", use_bias=False, dtype=dtype, name="image_conv1"
    )(x)
    x = layers.BatchNormalization(dtype=dtype, name="image_norm")(x)
    x = layers.ReLU(dtype=dtype, name="image_relu")(x)
    return early, layers.GlobalAveragePooling2D(dtype=dtype, name="image_pool")(x)


def _token_tower(tokens: Any, dtype: str | None) -> Any:
    x = layers.Embedding(_VOCABULARY, _WIDTH, dtype=dtype, name="token_embedding")(tokens)
    x = layers.Conv1D(_WIDTH, 3, padding="same", activation="gelu", dtype=dtype, name="token_conv")(
        x
    )
    return layers.GlobalAveragePooling1D(dtype=dtype, name="token_pool")(x)
