"""A progress bar for training: loss, samples per second and time left."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Self

_SMOOTHING = 0.2
"""Weight of the newest step in the shown speed."""


class TrainingProgress:
    """Shows a bar over all steps of a training run; where standard error is no terminal, lines.

    Args:
        epochs: number of epochs.
        steps_per_epoch: steps of an epoch, None if nobody knows.
        samples_per_step: samples of a full step, over all replicas.
        quiet: show nothing.
        console: where to write; None is standard error.
    """

    def __init__(
        self,
        epochs: int,
        steps_per_epoch: int | None,
        samples_per_step: int,
        *,
        quiet: bool = False,
        console: Console | None = None,
    ) -> None:
        self._console = console or Console(stderr=True)
        self._epochs = epochs
        self._steps_per_epoch = steps_per_epoch
        self._samples_per_step = samples_per_step
        self._quiet = quiet
        self._bar = Progress(
            TextColumn("{task.description}"),
            BarColumn(bar_width=None),
            MofNCompleteColumn(),
            TextColumn("loss {task.fields[loss]:.4f}  {task.fields[speed]:.0f} samples/s"),
            TimeElapsedColumn(),
            TextColumn("left"),
            TimeRemainingColumn(),
            console=self._console,
            disable=quiet or not self._console.is_terminal,
        )
        total = None if steps_per_epoch is None else epochs * steps_per_epoch
        self._task = self._bar.add_task("training", total=total, loss=0.0, speed=0.0)
        self._step_s: float | None = None
        self._last_s = time.monotonic()

    def __enter__(self) -> Self:
        """Show the bar."""
        self._bar.start()
        self._last_s = time.monotonic()
        return self

    def __exit__(self, *_: object) -> None:
        """Take the bar away."""
        self._bar.stop()

    def begin_epoch(self, epoch: int) -> None:
        """Say which epoch (counted from 0) begins."""
        self._bar.update(self._task, description=f"epoch {epoch + 1}/{self._epochs}")
        self._last_s = time.monotonic()

    def end_step(self, loss: float) -> None:
        """Count a step."""
        now_s = time.monotonic()
        took_s, self._last_s = now_s - self._last_s, now_s
        before_s = took_s if self._step_s is None else self._step_s
        self._step_s = before_s + _SMOOTHING * (took_s - before_s)
        speed = self._samples_per_step / self._step_s if self._step_s > 0 else 0.0
        self._bar.update(self._task, advance=1, loss=loss, speed=speed)

    def end_epoch(self, epoch: int, figures: Mapping[str, float], seconds: float) -> None:
        """Print an epoch's figures as a line above the bar."""
        if self._quiet:
            return
        shown = "  ".join(f"{name} {value:.4f}" for name, value in figures.items())
        self._console.print(
            f"epoch {epoch + 1}/{self._epochs}  {shown}  {seconds:.1f} s",
            highlight=False,
            soft_wrap=True,
        )
