"""A loss that is no number ends the training at once, on every rank."""

from __future__ import annotations

import math

from hpcomm.errors import NonFiniteLossError

__all__ = ["LossGuard"]

_MOST_SKIPPED = 30
"""Loss scaling starts at 2^15 and halves with each skipped update: by then it is below 1."""


class LossGuard:
    """Watches the losses of a training; all ranks see the same ones."""

    def __init__(self) -> None:
        self._skipped = 0

    def check(self, loss: float, *, skipped: bool, epoch: int, step: int) -> None:
        """Raise if the loss of a step is NaN or infinite.

        Args:
            loss: of the global batch.
            skipped: whether loss scaling skipped the update, so that the weights took no harm; that
                is forgiven for a while.
            epoch: from 0.
            step: in the epoch, from 0.

        Raises:
            NonFiniteLossError: it is.
        """
        if math.isfinite(loss):
            self._skipped = 0
            return
        self._skipped += 1
        if skipped and self._skipped < _MOST_SKIPPED:
            return
        raise NonFiniteLossError(
            f"fit: the loss is {loss} in epoch {epoch + 1}, step {step + 1}; lower the learning "
            "rate, clip gradients (clipnorm) or look for NaN in the data; terminate_on_nan=False "
            "goes on regardless"
        )
