"""How the batches of a data source become epochs.

The rules are those of Keras: without ``steps_per_epoch`` every epoch starts the source anew; with
it the source goes on where the last epoch ended and starts anew when it is used up.
"""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["BatchStream", "EpochCursor"]

_DRY = (
    "the data ended before steps_per_epoch * epochs batches were read, so this epoch is shorter; "
    "repeat the data set or ask for fewer steps"
)


class BatchStream(Protocol):
    """Something that can be read from its beginning, any number of times."""

    @property
    def num_batches(self) -> int | None:
        """Batches from beginning to end; None if that is not known."""

    def open(self, number: int) -> Iterator[Any]:
        """Start at the beginning; ``number`` counts the passes from 0."""

    def begin_epoch(self) -> None:
        """Is called before the first batch of an epoch."""

    def end_epoch(self) -> None:
        """Is called after the last batch of an epoch, and once before the first epoch."""


class EpochCursor:
    """Reads a `BatchStream` in epochs and remembers where it stands.

    Attributes:
        steps_per_epoch: batches per epoch as the user asked; None for all.
    """

    def __init__(self, stream: BatchStream, steps_per_epoch: int | None = None) -> None:
        """Stand before the first batch.

        Args:
            stream: where batches come from.
            steps_per_epoch: batches per epoch, >= 1; None for all.
        """
        self._stream = stream
        self.steps_per_epoch = steps_per_epoch
        self._known = stream.num_batches
        self._iterator: Iterator[Any] | None = None
        self._passes = 0
        self._position = 0
        self._taken = 0
        self._resumed = False
        stream.end_epoch()

    @property
    def steps(self) -> int | None:
        """Batches that an epoch will have, as far as known."""
        return self.steps_per_epoch or self._known

    def start_at(self, passes: int) -> None:
        """Count the passes from ``passes``, so that an initial epoch shuffles as it would have."""
        self._passes = passes

    def rewind(self) -> None:
        """Have the next epoch start the stream anew."""
        self._iterator = None
        self._resumed = False
        self._known = self._stream.num_batches
        self._stream.end_epoch()

    def epoch(self) -> Iterator[Any]:
        """Yield the batches of one epoch, or what is left of it after `restore`.

        Yields:
            Batches as the stream gives them.
        """
        self._stream.begin_epoch()
        try:
            if self._resumed:
                self._resumed = False
            else:
                self._taken = 0
                if self.steps_per_epoch is None:
                    self._iterator = None
            yield from self._batches()
            if self._known is not None and self._position >= self._known:
                self._iterator = None
        finally:
            self._stream.end_epoch()

    def _batches(self) -> Iterator[Any]:
        iterator = self._iterator if self._iterator is not None else self._open()
        while self.steps is None or self._taken < self.steps:
            try:
                batch = next(iterator)
            except StopIteration:
                self._iterator = None
                if self.steps_per_epoch is not None:
                    warnings.warn(_DRY, stacklevel=2)
                elif self._known is None and self._taken:
                    self._known = self._taken
                return
            self._taken += 1
            self._position += 1
            yield batch

    def state(self, *, in_epoch: bool) -> dict[str, int]:
        """Return where the cursor stands, for a checkpoint.

        Args:
            in_epoch: whether the current epoch is still going on.

        Returns:
            ``passes`` opened so far, ``position`` in the current pass, ``taken`` in the current
            epoch (the last two are 0 where the next epoch starts anew).
        """
        if in_epoch:
            return {"passes": self._passes, "position": self._position, "taken": self._taken}
        anew = self._iterator is None or self.steps_per_epoch is None
        return {"passes": self._passes, "position": 0 if anew else self._position, "taken": 0}

    def restore(self, state: dict[str, int]) -> None:
        """Stand again where `state` was taken; batches before that are read and dropped.

        Args:
            state: from `state`, of a cursor over the same data.
        """
        self._passes = state["passes"]
        self._iterator = None
        if not state["position"]:
            return
        self._passes -= 1
        iterator = self._open()
        for _ in range(state["position"]):
            if next(iterator, None) is None:
                break
            self._position += 1
        self._taken = state["taken"]
        self._resumed = True

    def _open(self) -> Iterator[Any]:
        self._iterator = iter(self._stream.open(self._passes))
        self._passes += 1
        self._position = 0
        return self._iterator
