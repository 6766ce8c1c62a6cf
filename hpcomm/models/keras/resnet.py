"""Keras builders of the residual networks described in ``hpcomm.models.resnet``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from keras import Model, layers, regularizers

from hpcomm.models.keras.common import deep_graphs, logits_dtype
from hpcomm.models.resnet import (
    BATCH_NORM_MOMENTUM,
    STEM_FILTERS,
    WEIGHT_DECAY,
    Block,
    blocks_v1,
    blocks_v2,
)

if TYPE_CHECKING:
    from hpcomm.models.task import BuildOptions


def build_v1(depth: int, options: BuildOptions) -> Model:
    """Build a ResNet of version 1.

    Args:
        depth: 6n+2.
        options: image size, classes, dtype policy.

    Returns:
        Uncompiled model, (batch, size, size, 3) → logits (batch, classes).
    """
    make = _Layers(options.dtype)
    image = layers.Input((options.image_size, options.image_size, 3), name="image")
    x = make.convolution("stem_conv", STEM_FILTERS, 3)(image)
    x = make.relu("stem_relu")(make.norm("stem_norm")(x))
    for block in blocks_v1(depth):
        y = make.convolution(f"{block.name}_conv1", block.inner, 3, block.stride)(x)
        y = make.relu(f"{block.name}_relu1")(make.norm(f"{block.name}_norm1")(y))
        y = make.convolution(f"{block.name}_conv2", block.outer, 3)(y)
        y = make.norm(f"{block.name}_norm2")(y)
        y = make.add(f"{block.name}_add")([make.shortcut(block, x), y])
        x = make.relu(f"{block.name}_relu2")(y)
    with deep_graphs():
        return Model(image, make.head(x, options.num_classes), name=f"resnet{depth}-v1")


def build_v2(depth: int, options: BuildOptions) -> Model:
    """Build a ResNet of version 2 (pre-activated bottlenecks).

    Args:
        depth: 9n+2.
        options: image size, classes, dtype policy.

    Returns:
        Uncompiled model, (batch, size, size, 3) → logits (batch, classes).
    """
    make = _Layers(options.dtype)
    image = layers.Input((options.image_size, options.image_size, 3), name="image")
    x = make.convolution("stem_conv", STEM_FILTERS, 3)(image)
    x = make.relu("stem_relu")(make.norm("stem_norm")(x))
    for block in blocks_v2(depth):
        y = x
        if block.preactivated:
            y = make.relu(f"{block.name}_relu1")(make.norm(f"{block.name}_norm1")(y))
        y = make.convolution(f"{block.name}_conv1", block.inner, 1, block.stride)(y)
        y = make.relu(f"{block.name}_relu2")(make.norm(f"{block.name}_norm2")(y))
        y = make.convolution(f"{block.name}_conv2", block.inner, 3)(y)
        y = make.relu(f"{block.name}_relu3")(make.norm(f"{block.name}_norm3")(y))
        y = make.convolution(f"{block.name}_conv3", block.outer, 1)(y)
        x = make.add(f"{block.name}_add")([make.shortcut(block, x), y])
    x = make.relu("final_relu")(make.norm("final_norm")(x))
    with deep_graphs():
        return Model(image, make.head(x, options.num_classes), name=f"resnet{depth}-v2")


class _Layers:
    """The layers both versions are made of, with one dtype policy."""

    def __init__(self, dtype: str | None) -> None:
        self._dtype = dtype

    def convolution(self, name: str, filters: int, kernel: int, stride: int = 1) -> Any:
        # Batch norm takes a constant away again, so a bias would have no effect.
        return layers.Conv2D(
            filters,
            kernel,
            strides=stride,
            padding="same",
            use_bias=False,
            kernel_initializer="he_normal",
            kernel_regularizer=regularizers.L2(WEIGHT_DECAY),
            dtype=self._dtype,
            name=name,
        )

    def norm(self, name: str) -> Any:
        return layers.BatchNormalization(momentum=BATCH_NORM_MOMENTUM, dtype=self._dtype, name=name)

    def relu(self, name: str) -> Any:
        return layers.ReLU(dtype=self._dtype, name=name)

    def add(self, name: str) -> Any:
        return layers.Add(dtype=self._dtype, name=name)

    def shortcut(self, block: Block, x: Any) -> Any:
        if not block.projection:
            return x
        return self.convolution(f"{block.name}_shortcut", block.outer, 1, block.stride)(x)

    def head(self, x: Any, num_classes: int) -> Any:
        x = layers.GlobalAveragePooling2D(dtype=self._dtype, name="pool")(x)
        return layers.Dense(
            num_classes,
            kernel_initializer="he_normal",
            dtype=logits_dtype(self._dtype),
            name="classes",
        )(x)
