"""What `fit` returns: the values of every epoch."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

__all__ = ["History"]


@dataclass
class History:
    """The record of a training, equal on every rank.

    Attributes:
        epoch: numbers of the epochs that were run, from 0.
        history: per name (``"loss"``, ``"accuracy"``, ``"val_loss"``, ``"learning_rate"`` …) the
            value of every epoch.
        params: ``"epochs"``, ``"steps"`` (per epoch; None where the data do not say) and
            ``"verbose"``.
        model: the whole trained model on the ranks that ``gather`` named, elsewhere None.
        split: the stages (layers, parameters, time, memory), one dict per stage.
    """

    epoch: list[int] = field(default_factory=list)
    history: dict[str, list[Any]] = field(default_factory=dict)
    params: dict[str, Any] = field(default_factory=dict)
    model: Any = None
    split: Any = None

    def append(self, epoch: int, logs: dict[str, Any]) -> None:
        """Record the values of one finished epoch.

        Args:
            epoch: its number, from 0.
            logs: name → value.
        """
        self.epoch.append(epoch)
        for name, value in logs.items():
            self.history.setdefault(name, []).append(value)
