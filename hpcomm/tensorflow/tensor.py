"""Between TensorFlow tensors and arrays, without a copy where both sides allow it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import tensorflow as tf

from hpcomm import buffers

if TYPE_CHECKING:
    import numpy as np

__all__ = ["aligned_empty", "from_array", "to_array"]


def aligned_empty(shape: tuple[int, ...], dtype: str) -> np.ndarray:
    """Return memory that `from_array` can share.

    Args:
        shape: of the array.
        dtype: name, bfloat16 included.
    """
    return buffers.empty(shape, buffers.dtype_of(dtype), _kind())


def from_array(array: np.ndarray) -> Any:
    """Return a tensor with an array's values.

    Args:
        array: contiguous; must not change afterwards, since the tensor may share its memory.

    Returns:
        An eager tensor of the same shape and dtype.
    """
    return _kind().wrap(array, None)


def to_array(tensor: Any) -> np.ndarray:
    """Return a view of an eager tensor or a copy of a variable, not to be written to.

    Args:
        tensor: on the CPU; the view keeps it alive.
    """
    return buffers.readable(tensor).array


def _kind() -> buffers.Kind:
    return buffers.kind_of(_ANY)


_ANY = tf.zeros([0])
