"""A multilayer perceptron on images: the smallest model that trains."""

from __future__ import annotations

from typing import TYPE_CHECKING

from keras import Model, layers

from hpcomm.models.keras.common import logits_dtype

if TYPE_CHECKING:
    from hpcomm.models.task import BuildOptions

_HIDDEN_UNITS = (256, 256, 128, 128)


def build(options: BuildOptions) -> Model:
    """Build the perceptron.

    Args:
        options: image size, classes, dtype policy; ``dropout`` adds a dropout layer behind every
            hidden layer.

    Returns:
        Uncompiled model, (batch, size, size, 3) → logits (batch, classes).
    """
    dtype = options.dtype
    image = layers.Input((options.image_size, options.image_size, 3), name="image")
    x = layers.Flatten(dtype=dtype, name="flatten")(image)
    for index, units in enumerate(_HIDDEN_UNITS):
        x = layers.Dense(units, activation="relu", dtype=dtype, name=f"hidden{index}")(x)
        if options.dropout:
            x = layers.Dropout(options.dropout, dtype=dtype, name=f"dropout{index}")(x)
    logits = layers.Dense(options.num_classes, dtype=logits_dtype(dtype), name="classes")(x)
    return Model(image, logits, name="mlp")
