"""What the Keras builders share."""

from __future__ import annotations

import keras


def logits_dtype(dtype: str | None) -> str | None:
    """Return the dtype policy of a layer that makes logits.

    Args:
        dtype: policy of the model, None for Keras's current one.

    Returns:
        "float32" where that policy computes in half precision, else ``dtype`` itself.
    """
    policy = keras.dtype_policies.get(dtype) if dtype else keras.config.dtype_policy()
    return "float32" if policy.compute_dtype in ("float16", "bfloat16") else dtype
