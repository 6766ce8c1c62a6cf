"""Data of which every replica holds its own part: the batches are put together of the parts."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from hpcomm.hyparflow.data import Batch, IndexStream, Needs, Rows, make_batch
from hpcomm.hyparflow.epochs import EpochCursor
from hpcomm.hyparflow.shares import share
from hpcomm.hyparflow.structure import concatenate

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator, Sequence

    from hpcomm.communicator import Communicator

__all__ = ["ShardSource", "collect_whole"]


class ShardSource:
    """Arrays of which every replica passes its own; the ranks of one replica pass the same.

    A global batch of B samples takes from replica r's part as many samples as r's share of B. A
    replica whose part is used up before those of others contributes nothing to the last batches.
    """

    def __init__(
        self,
        rows: Rows,
        needs: Needs,
        *,
        replicas: Communicator,
        counts: Sequence[int],
        batch_size: int,
        steps_per_epoch: int | None,
        shuffle: bool | str,
        seed: int,
        convert: Callable[[str, Any], Any],
    ) -> None:
        """Describe a rank's part.

        Args:
            rows: this replica's arrays; those that ``needs`` does not name are let go.
            needs: what this rank wants.
            replicas: the ranks of this partition in all replicas.
            counts: samples that each replica holds.
            batch_size: samples of a global batch.
            steps_per_epoch: batches per epoch, or None for all.
            shuffle: see `IndexStream`; each replica shuffles its own part.
            seed: of the order; the same on every rank.
            convert: makes what the model consumes of (input name, rows).
        """
        self._rows = rows.only(needs)
        self._needs = needs
        self._replicas = replicas
        self._convert = convert
        stream = _ShardStream(counts, batch_size, replicas.rank, shuffle=shuffle, seed=seed)
        self.cursor = EpochCursor(stream, steps_per_epoch)

    @property
    def steps(self) -> int | None:
        """Batches of an epoch."""
        return self.cursor.steps

    def epoch(self) -> Generator[Batch, None, None]:
        """Yield this rank's part of the batches of one epoch."""
        for index, sizes in self.cursor.epoch():
            mine = self._rows.take(index)
            first = sum(sizes[: self._replicas.rank])
            batch = make_batch(mine, self._needs, first, sum(sizes), self._convert)
            collect_whole(batch, mine, self._needs, self._replicas, sizes)
            yield batch


class _ShardStream:
    """Yields (row numbers of this replica, sizes of all replicas' shares) per batch."""

    def __init__(
        self,
        counts: Sequence[int],
        batch_size: int,
        replica: int,
        *,
        shuffle: bool | str,
        seed: int,
    ) -> None:
        self._counts = tuple(counts)
        self._shares = []
        for r in range(len(counts)):
            start, stop = share(batch_size, len(counts), r)
            self._shares.append(stop - start)
        self._mine = IndexStream(
            counts[replica], self._shares[replica], shuffle=shuffle, seed=(seed, replica)
        )

    @property
    def num_batches(self) -> int:
        return max(
            -(-count // size) for count, size in zip(self._counts, self._shares, strict=True)
        )

    def open(self, number: int) -> Iterator[tuple[Any, list[int]]]:
        mine = self._mine.open(number)
        for step in range(self.num_batches):
            sizes = [
                max(0, min(size, count - step * size))
                for count, size in zip(self._counts, self._shares, strict=True)
            ]
            yield next(mine, slice(0, 0)), sizes

    def begin_epoch(self) -> None:
        pass

    def end_epoch(self) -> None:
        pass


def collect_whole(
    batch: Batch, mine: Rows, needs: Needs, replicas: Communicator, sizes: Sequence[int]
) -> None:
    """Bring targets and sample weights of all replicas to the rank that keeps the metrics.

    Collective over the ranks of the partition that computes the loss; nothing is sent elsewhere.

    Args:
        batch: gets ``targets`` and ``sample_weight`` of the whole batch where ``needs.whole``.
        mine: this replica's rows.
        needs: what this rank wants; ``targets`` names the partition that computes the loss.
        replicas: the ranks of this partition in all replicas; replica 0 keeps the metrics.
        sizes: samples of every replica.
    """
    if not needs.targets:
        return
    pair = (mine.targets, mine.sample_weight)
    if replicas.rank != 0:
        if sizes[replicas.rank]:
            replicas.send_object(pair, 0)
        return
    pairs = [pair] if sizes[0] else []
    pairs += [replicas.recv_object(r) for r in range(1, replicas.size) if sizes[r]]
    batch.targets, batch.sample_weight = concatenate(pairs, np.concatenate)
