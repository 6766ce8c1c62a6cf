"""A model that carries everything besides the loss that decides about gradients.

L1 and L2 penalties on kernels and biases, a frozen layer, batch norm; its recipe adds weighted
samples, clipping by the norm of all gradients, decoupled weight decay and a moving average of the
weights.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from keras import Model, initializers, layers, regularizers

from hpcomm.models.keras.common import logits_dtype

if TYPE_CHECKING:
    from hpcomm.models.task import BuildOptions

_FILTERS = (12, 16, 24, 32)


def build(options: BuildOptions) -> Model:
    """Build the model.

    Args:
        options: image size, classes, dtype policy.

    Returns:
        Uncompiled model, (batch, size, size, 3) → logits (batch, classes).
    """
    dtype = options.dtype
    image = layers.Input((options.image_size, options.image_size, 3), name="image")
    x = layers.Conv2D(
        8, 3, padding="same", activation="relu", dtype=dtype, trainable=False, name="frozen"
    )(image)
    for index, filters in enumerate(_FILTERS):
        x = layers.Conv2D(
            filters,
            3,
            padding="same",
            activation="relu",
            bias_initializer=initializers.Constant(0.1),
            kernel_regularizer=regularizers.L1L2(l1=1e-4, l2=1e-3),
            bias_regularizer=regularizers.L2(1e-2),
            dtype=dtype,
            name=f"conv{index}",
        )(x)
        x = layers.BatchNormalization(dtype=dtype, name=f"norm{index}")(x)
        if index % 2:
            x = layers.MaxPooling2D(2, padding="same", dtype=dtype, name=f"pool{index}")(x)
    x = layers.GlobalAveragePooling2D(dtype=dtype, name="pool")(x)
    x = layers.Dense(
        32,
        activation="tanh",
        kernel_regularizer=regularizers.L2(1e-2),
        dtype=dtype,
        name="hidden",
    )(x)
    logits = layers.Dense(options.num_classes, dtype=logits_dtype(dtype), name="classes")(x)
    return Model(image, logits, name="regularized")
