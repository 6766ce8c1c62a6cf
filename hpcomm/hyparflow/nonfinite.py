"""A loss that is no number ends the training at once, on every rank."""

from __future__ import annotations

import math

from hpcomm.errors import NonFiniteLossError

__all__ = ["check_loss"]


def check_loss(loss: float, *, epoch: int, step: int) -> None:
    """Raise if the loss of a step is NaN or infinite; all ranks see the same loss.

    Args:
        loss: of the global batch.
        epoch: from 0.
        step: in the epoch, from 0.

    Raises:
        NonFiniteLossError: it is.
    """
    if not math.isfinite(loss):
        raise NonFiniteLossError(
            f"fit: the loss is {loss} in epoch {epoch + 1}, step {step + 1}; lower the learning "
            "rate, clip gradients (clipnorm) or look for NaN in the data; terminate_on_nan=False "
            "goes on regardless"
        )
