"""The data of a training on one rank: which rows of which arrays, batch by batch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from hpcomm.hyparflow.batch import StepBatch
from hpcomm.hyparflow.epochs import EpochCursor
from hpcomm.hyparflow.shares import share
from hpcomm.hyparflow.structure import flatten, map_arrays

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator, Sequence

__all__ = [
    "ArraySource",
    "Batch",
    "DataSource",
    "IndexStream",
    "Needs",
    "Rows",
    "count_rows",
    "make_batch",
]


@dataclass(frozen=True, slots=True)
class Needs:
    """What a rank wants of every batch.

    Attributes:
        inputs: names of the model inputs that its stage consumes.
        targets: it computes the loss.
        whole: it keeps the metrics, so it wants targets and sample weights of the whole global
            batch.
    """

    inputs: tuple[str, ...] = ()
    targets: bool = False
    whole: bool = False


@dataclass(slots=True)
class Rows:
    """Arrays that belong together: row i of each is sample i.

    Attributes:
        inputs: by model-input name.
        targets: structure of arrays, or None.
        sample_weight: structure of arrays, or None.
        count: rows.
    """

    inputs: dict[str, Any]
    targets: Any
    sample_weight: Any
    count: int

    def take(self, index: Any) -> Rows:
        """Return some rows.

        Args:
            index: a slice or an array of row numbers.

        Returns:
            Views for a slice, copies for row numbers.
        """

        def rows(array: Any) -> Any:
            return array[index]

        return Rows(
            inputs={name: rows(array) for name, array in self.inputs.items()},
            targets=map_arrays(rows, self.targets),
            sample_weight=map_arrays(rows, self.sample_weight),
            count=index.stop - index.start if isinstance(index, slice) else len(index),
        )

    def only(self, needs: Needs) -> Rows:
        """Return the same rows without what ``needs`` does not name."""
        wanted = needs.targets or needs.whole
        return Rows(
            inputs={name: self.inputs[name] for name in needs.inputs},
            targets=self.targets if wanted else None,
            sample_weight=self.sample_weight if wanted else None,
            count=self.count,
        )


@dataclass(slots=True)
class Batch:
    """One global batch as a rank sees it.

    Attributes:
        step: this rank's share, for the trainer.
        targets: of the whole global batch, where `Needs.whole`; else None.
        sample_weight: likewise.
    """

    step: StepBatch
    targets: Any = None
    sample_weight: Any = None


class DataSource(Protocol):
    """Batches of one data set, epoch by epoch, the same number on every rank."""

    @property
    def cursor(self) -> EpochCursor | None:
        """Where the source stands, on ranks that know; for checkpoints."""

    @property
    def steps(self) -> int | None:
        """Batches of an epoch, as far as known; on rank 0."""

    def epoch(self) -> Generator[Batch, None, None]:
        """Yield the batches of one epoch; collective."""


class IndexStream:
    """Row numbers of the batches of an array, shuffled by a seed that all ranks share."""

    def __init__(
        self, count: int, batch_size: int, *, shuffle: bool | str, seed: Sequence[int]
    ) -> None:
        """Describe the order.

        Args:
            count: rows.
            batch_size: rows per batch; the last batch may be smaller.
            shuffle: False, True (all rows anew in every pass) or "batch" (rows within each batch).
            seed: numbers that, with the number of the pass, determine the order.
        """
        self._count = count
        self._batch_size = batch_size
        self._shuffle = shuffle
        self._seed = tuple(seed)

    @property
    def num_batches(self) -> int:
        """Batches of one pass."""
        return -(-self._count // self._batch_size)

    def open(self, number: int) -> Iterator[Any]:
        """Yield a slice or an array of row numbers per batch."""
        generator = np.random.Generator(
            np.random.Philox(np.random.SeedSequence([*self._seed, number]))
        )
        order = generator.permutation(self._count) if self._shuffle is True else None
        for start in range(0, self._count, self._batch_size):
            stop = min(start + self._batch_size, self._count)
            if order is not None:
                yield order[start:stop]
            elif self._shuffle == "batch":
                yield start + generator.permutation(stop - start)
            else:
                yield slice(start, stop)

    def begin_epoch(self) -> None:
        """Nothing to prepare."""

    def end_epoch(self) -> None:
        """Nothing to clear."""


class ArraySource:
    """Arrays that every rank holds: each takes its own rows, and nothing is sent."""

    def __init__(
        self,
        rows: Rows,
        needs: Needs,
        *,
        replica: int,
        replicas: int,
        batch_size: int,
        steps_per_epoch: int | None,
        shuffle: bool | str,
        seed: int,
        convert: Callable[[str, Any], Any],
    ) -> None:
        """Describe a rank's part.

        Args:
            rows: all arrays; those that ``needs`` does not name are let go.
            needs: what this rank wants.
            replica: which replica this rank works for.
            replicas: how many there are.
            batch_size: samples of a global batch.
            steps_per_epoch: batches per epoch, or None for all.
            shuffle: see `IndexStream`.
            seed: of the order; the same on every rank.
            convert: makes what the model consumes of (input name, rows).
        """
        self._rows = rows.only(needs)
        self._needs = needs
        self._replica = replica
        self._replicas = replicas
        self._convert = convert
        stream = IndexStream(rows.count, batch_size, shuffle=shuffle, seed=(seed,))
        self.cursor = EpochCursor(stream, steps_per_epoch)

    @property
    def steps(self) -> int | None:
        """Batches of an epoch."""
        return self.cursor.steps

    def epoch(self) -> Generator[Batch, None, None]:
        """Yield this rank's part of the batches of one epoch."""
        for index in self.cursor.epoch():
            total = index.stop - index.start if isinstance(index, slice) else len(index)
            start, stop = share(total, self._replicas, self._replica)
            if isinstance(index, slice):
                mine: Any = slice(index.start + start, index.start + stop)
            else:
                mine = index[start:stop]
            batch = make_batch(self._rows.take(mine), self._needs, start, total, self._convert)
            if self._needs.whole:
                whole = Rows({}, self._rows.targets, self._rows.sample_weight, 0).take(index)
                batch.targets, batch.sample_weight = whole.targets, whole.sample_weight
            yield batch


def make_batch(
    rows: Rows, needs: Needs, first: int, total: int, convert: Callable[[str, Any], Any]
) -> Batch:
    """Make the trainer's batch of this replica's rows.

    Args:
        rows: this replica's share.
        needs: what this rank wants.
        first: position of the share in the global batch.
        total: samples of the global batch.
        convert: makes what the model consumes of (input name, rows).

    Returns:
        The batch, without the whole batch's targets.
    """
    return Batch(
        StepBatch(
            inputs={name: convert(name, array) for name, array in rows.inputs.items()},
            targets=rows.targets if needs.targets else None,
            sample_weight=rows.sample_weight if needs.targets else None,
            num_samples=rows.count,
            first_sample=first,
            global_samples=total,
        )
    )


def count_rows(*structures: Any) -> int:
    """Return the number of rows that all arrays share.

    Args:
        structures: nested arrays; None is skipped.

    Returns:
        The length of the first axis.

    Raises:
        ValueError: no array, an array without axes, or lengths that differ.
    """
    lengths = {
        int(array.shape[0]) if len(array.shape) else -1
        for structure in structures
        for array in flatten(structure)
    }
    if not lengths:
        raise ValueError("no data were given")
    if -1 in lengths:
        raise ValueError("the data hold a number without a sample axis; give arrays of samples")
    if len(lengths) > 1:
        raise ValueError(
            f"all arrays must hold the same number of samples, got {sorted(lengths)} along their "
            "first axes"
        )
    return lengths.pop()
