"""VGG-16 for small images as data.

Source: Simonyan and Zisserman, "Very deep convolutional networks" (2015), configuration D; the two
hidden dense layers have 512 units instead of 4096, as is usual for 32×32 images.
"""

from __future__ import annotations

CONVOLUTIONS: tuple[tuple[int, ...], ...] = (
    (64, 64),
    (128, 128),
    (256, 256, 256),
    (512, 512, 512),
    (512, 512, 512),
)
"""Filters of the 3×3 convolutions of each group; a 2×2 max pooling ends a group."""

HIDDEN_UNITS: tuple[int, ...] = (512, 512)
"""Units of the dense layers before the classifier."""

DROPOUT = 0.5
"""Rate behind each hidden dense layer."""
