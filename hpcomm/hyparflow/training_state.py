"""What a checkpoint holds beside the weights, so that a training goes on as if uninterrupted."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np

from hpcomm.errors import InvalidArgumentError

__all__ = ["FORMAT_VERSION", "TrainingState"]

FORMAT_VERSION = 1


@dataclass(slots=True)
class TrainingState:
    """Where a training stands.

    Attributes:
        epoch: the epoch to go on with, from 0.
        in_epoch: whether that epoch has begun.
        seed: of the order of the data.
        cursor: where the data source stands; see `EpochCursor.state`.
        extra: the trainer's seed and counters.
        metrics: values of the metric variables in the middle of an epoch; else None.
        version: of this format.
    """

    epoch: int = 0
    in_epoch: bool = False
    seed: int = 0
    cursor: dict[str, int] = field(default_factory=dict)
    extra: dict[str, Any] = field(default_factory=dict)
    metrics: list[Any] | None = None
    version: int = FORMAT_VERSION

    def to_json(self) -> dict[str, Any]:
        """Return plain values that `from_json` reads back exactly."""
        plain = asdict(self)
        if self.metrics is not None:
            plain["metrics"] = [
                {
                    "dtype": np.asarray(array).dtype.name,
                    "shape": list(np.shape(array)),
                    "values": np.asarray(array).reshape(-1).tolist(),
                }
                for array in self.metrics
            ]
        return plain

    @classmethod
    def from_json(cls, plain: dict[str, Any]) -> TrainingState:
        """Read what `to_json` returned.

        Args:
            plain: the values.

        Returns:
            The state.

        Raises:
            InvalidArgumentError: written by a newer hpcomm, or not such a state.
        """
        version = plain.get("version")
        if not isinstance(version, int) or version > FORMAT_VERSION:
            raise InvalidArgumentError(
                f"checkpoint: its training state has format {version!r}, this hpcomm reads formats "
                f"up to {FORMAT_VERSION}; update hpcomm"
            )
        known = {name: plain[name] for name in cls.__slots__ if name in plain}
        if known.get("metrics") is not None:
            known["metrics"] = [
                np.asarray(item["values"], item["dtype"]).reshape(item["shape"])
                for item in known["metrics"]
            ]
        return cls(**known)
