"""A Keras callback that times epochs and shows progress."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import keras

from hpcomm.progress import TrainingProgress

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

__all__ = ["EpochWatch"]


class EpochWatch(keras.callbacks.Callback):
    """Times epochs and shows progress on the rank whose callbacks run.

    Args:
        samples: of an epoch.
        batch_size: samples of a full global batch.
        quiet: show nothing.
    """

    hpcomm_passive = True
    """It looks at logs only, so other ranks need not wait for its batch hooks."""

    def __init__(self, samples: int, batch_size: int, *, quiet: bool = False) -> None:
        super().__init__()
        self._samples = samples
        self._batch_size = batch_size
        self._quiet = quiet
        self._times: list[tuple[float, float]] = []
        self._begun_s = self._trained_s = 0.0
        self._progress: TrainingProgress | None = None

    def on_train_begin(self, logs: Any = None) -> None:
        """Show the bar."""
        del logs
        self._progress = TrainingProgress(
            self.params.get("epochs") or 1,
            self.params.get("steps"),
            self._batch_size,
            quiet=self._quiet,
        ).__enter__()

    def on_train_end(self, logs: Any = None) -> None:
        """Take the bar away."""
        del logs
        self.close()

    def close(self) -> None:
        """Take the bar away, also after a failure; a second call does nothing."""
        if self._progress is not None:
            self._progress.__exit__()
            self._progress = None

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        """Start the clock."""
        del logs
        self._begun_s = self._trained_s = time.monotonic()
        if self._progress is not None:
            self._progress.begin_epoch(epoch)

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        """Count a step."""
        del batch
        self._trained_s = time.monotonic()
        if self._progress is not None:
            self._progress.end_step(float((logs or {}).get("loss", float("nan"))))

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        """Stop the clock; validation counts into the epoch, not into the speed."""
        seconds = time.monotonic() - self._begun_s
        speed = self._samples / max(self._trained_s - self._begun_s, 1e-9)
        self._times.append((seconds, speed))
        if self._progress is not None:
            figures = {name: float(value) for name, value in (logs or {}).items()}
            self._progress.end_epoch(epoch, figures, seconds)

    def figures(self, history: Mapping[str, Sequence[Any]]) -> list[dict[str, float]]:
        """Return per epoch what ``history`` says, with "seconds" and "samples_per_s".

        Args:
            history: name → value of every epoch.
        """
        rows = []
        for index, (seconds, speed) in enumerate(self._times):
            named = {
                name: float(values[index])
                for name, values in history.items()
                if len(values) == len(self._times)
            }
            rows.append(named | {"seconds": seconds, "samples_per_s": speed})
        return rows
