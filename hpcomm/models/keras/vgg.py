"""Keras builder of the VGG-16 described in ``hpcomm.models.vgg``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from keras import Model, layers

from hpcomm.models.keras.common import logits_dtype
from hpcomm.models.vgg import CONVOLUTIONS, DROPOUT, HIDDEN_UNITS

if TYPE_CHECKING:
    from hpcomm.models.task import BuildOptions


def build(options: BuildOptions) -> Model:
    """Build VGG-16 for small images.

    Pooling keeps a border pixel ("same"), so that any image size works.

    Args:
        options: image size, classes, dtype policy; ``dropout`` replaces the rate of 0.5, 0 leaves
            dropout out.

    Returns:
        Uncompiled model, (batch, size, size, 3) → logits (batch, classes).
    """
    dtype = options.dtype
    rate = DROPOUT if options.dropout is None else options.dropout
    image = layers.Input((options.image_size, options.image_size, 3), name="image")
    x = image
    for group, widths in enumerate(CONVOLUTIONS):
        for index, filters in enumerate(widths):
            x = layers.Conv2D(
                filters,
                3,
                padding="same",
                activation="relu",
                kernel_initializer="he_normal",
                dtype=dtype,
                name=f"g{group}_conv{index}",
            )(x)
        x = layers.MaxPooling2D(2, padding="same", dtype=dtype, name=f"g{group}_pool")(x)
    x = layers.Flatten(dtype=dtype, name="flatten")(x)
    for index, units in enumerate(HIDDEN_UNITS):
        x = layers.Dense(
            units,
            activation="relu",
            kernel_initializer="he_normal",
            dtype=dtype,
            name=f"hidden{index}",
        )(x)
        if rate:
            x = layers.Dropout(rate, dtype=dtype, name=f"dropout{index}")(x)
    logits = layers.Dense(options.num_classes, dtype=logits_dtype(dtype), name="classes")(x)
    return Model(image, logits, name="vgg16")
