"""What the Keras builders share."""

from __future__ import annotations

import contextlib
import sys
from typing import TYPE_CHECKING

import keras

if TYPE_CHECKING:
    from collections.abc import Iterator

_DEEP_RECURSION = 100_000


def logits_dtype(dtype: str | None) -> str | None:
    """Return the dtype policy of a layer that makes logits.

    Args:
        dtype: policy of the model, None for Keras's current one.

    Returns:
        "float32" where that policy computes in half precision, else ``dtype`` itself.
    """
    policy = keras.dtype_policies.get(dtype) if dtype else keras.config.dtype_policy()
    return "float32" if policy.compute_dtype in ("float16", "bfloat16") else dtype


def set_globals(dtype: str, seed: int) -> None:
    """Set Keras's process-wide dtype policy, float type and random seed.

    Args:
        dtype: policy for models built from now on, "float64" included.
        seed: of weights and of everything random in Python, NumPy and TensorFlow.
    """
    keras.config.set_floatx("float64" if dtype == "float64" else "float32")
    keras.config.set_dtype_policy(dtype)
    keras.utils.set_random_seed(seed)


@contextlib.contextmanager
def deep_graphs() -> Iterator[None]:
    """Let Keras walk graphs of tens of thousands of layers, which it does by recursion.

    Each level is a Python-to-Python call, which takes no C stack, so a high limit is safe.
    """
    before = sys.getrecursionlimit()
    sys.setrecursionlimit(max(before, _DEEP_RECURSION))
    try:
        yield
    finally:
        sys.setrecursionlimit(before)
