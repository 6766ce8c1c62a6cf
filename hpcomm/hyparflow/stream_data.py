"""Data that one rank reads and hands out: data sets, generators, whatever can only be read once."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from hpcomm.errors import DataError
from hpcomm.hyparflow.agreement import PATIENCE_S, describe
from hpcomm.hyparflow.data import Batch, Needs, Rows, make_batch
from hpcomm.hyparflow.epochs import EpochCursor
from hpcomm.hyparflow.shard_data import collect_whole
from hpcomm.hyparflow.shares import cut
from hpcomm.hyparflow.structure import flatten, map_arrays

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator, Sequence

    from hpcomm.communicator import Communicator
    from hpcomm.hyparflow.epochs import BatchStream

__all__ = ["StreamSource"]

_TAG = 1


@dataclass(frozen=True, slots=True)
class _Spec:
    """An array that is on its way: shape without the sample axis, and dtype."""

    shape: tuple[int, ...]
    dtype: np.dtype[Any]


@dataclass(frozen=True, slots=True)
class _Header:
    """What the reader tells its group of a batch, before the arrays."""

    count: int
    inputs: list[_Spec]
    targets: Any
    sample_weight: Any


class StreamSource:
    """Batches that rank 0 of a group reads; each rank is sent the rows and arrays that it needs.

    With one reader for all ranks, every batch is a global batch and is cut into the replicas'
    shares. With a reader per replica (``replicas`` given), the global batch is put together of what
    the readers give.
    """

    def __init__(
        self,
        stream: BatchStream | None,
        needs: Needs,
        *,
        names: Sequence[str],
        group: Communicator,
        replica: int,
        num_replicas: int,
        steps_per_epoch: int | None,
        convert: Callable[[str, Any], Any],
        replicas: Communicator | None = None,
    ) -> None:
        """Tell the reader what everyone needs; collective over ``group``.

        Args:
            stream: on rank 0 of ``group`` what it reads: `Rows` per batch; ignored elsewhere.
            needs: what this rank wants.
            names: of all inputs of the model, in its order; ranks may call them differently.
            group: the ranks that one reader serves.
            replica: which replica this rank works for.
            num_replicas: how many there are.
            steps_per_epoch: batches per epoch, or None for all.
            convert: makes what the model consumes of (input name, rows).
            replicas: the ranks of this partition in all replicas, if each replica has its reader.
        """
        self._needs = needs
        self._group = group
        self._replica = replica
        self._num_replicas = num_replicas
        self._convert = convert
        self._replicas = replicas
        self._wanted = [list(names).index(name) for name in needs.inputs]
        report = (self._wanted, needs.targets, needs.whole, replica)
        self._everyone: list[tuple[list[int], bool, bool, int]] = group.allgather_object(report)
        self.cursor: EpochCursor | None = None
        if group.rank == 0:
            assert stream is not None
            self.cursor = EpochCursor(stream, steps_per_epoch)

    @property
    def steps(self) -> int | None:
        """Batches of an epoch, as far as known; None on ranks that do not read."""
        return None if self.cursor is None else self.cursor.steps

    def epoch(self) -> Generator[Batch, None, None]:
        """Yield this rank's part of the batches of one epoch; collective.

        Raises:
            DataError: reading failed; the same text on every rank.
        """
        batches = self._read() if self.cursor is not None else self._listen()
        if self._replicas is None:
            yield from (self._share(rows, header.count, whole) for header, rows, whole in batches)
        else:
            yield from self._join(batches, self._replicas)

    def _share(self, rows: Rows, total: int, whole: Rows | None) -> Batch:
        sizes = cut(total, self._num_replicas)
        batch = make_batch(rows, self._needs, sum(sizes[: self._replica]), total, self._convert)
        if whole is not None:
            batch.targets, batch.sample_weight = whole.targets, whole.sample_weight
        return batch

    def _join(
        self, batches: Iterator[tuple[_Header, Rows, Rows | None]], replicas: Communicator
    ) -> Iterator[Batch]:
        empty: Rows | None = None
        while True:
            failure = None
            try:
                item = next(batches, None)
            except DataError as error:
                item, failure = None, error
            report = ("failed", str(failure)) if failure else ("rows", item[0].count if item else 0)
            reports = replicas.allgather_object(report, timeout_s=PATIENCE_S)
            for kind, text in reports:
                if kind == "failed":
                    raise failure or DataError(text)
            sizes = [count for _, count in reports]
            if not any(sizes):
                return
            if item is None and empty is None:
                raise DataError("a replica's data must hold at least one batch")
            rows = item[1] if item is not None else empty
            assert rows is not None
            empty = rows.take(slice(0, 0))
            first = sum(sizes[: replicas.rank])
            batch = make_batch(rows, self._needs, first, sum(sizes), self._convert)
            collect_whole(batch, rows, self._needs, replicas, sizes)
            yield batch

    def _read(self) -> Iterator[tuple[_Header, Rows, Rows | None]]:
        assert self.cursor is not None
        batches = self.cursor.epoch()
        while True:
            try:
                rows: Rows | None = next(batches, None)
            except Exception as error:
                raise self._failure(describe(error)) from error
            if rows is None:
                self._group.broadcast_object(None, timeout_s=PATIENCE_S)
                return
            if not rows.count:
                raise self._failure("a batch without samples")
            header = _header(rows)
            self._group.broadcast_object(header, timeout_s=PATIENCE_S)
            for rank in range(1, self._group.size):
                self._send(rows, rank)
            own = rows.take(self._range(rows.count, self._replica)).only(self._needs)
            yield header, own, rows if self._needs.whole else None

    def _failure(self, text: str) -> DataError:
        text = f"reading the data failed on rank {self._group.world_ranks[0]}: {text}"
        self._group.broadcast_object(text, timeout_s=PATIENCE_S)
        return DataError(text, rank=0)

    def _listen(self) -> Iterator[tuple[_Header, Rows, Rows | None]]:
        while True:
            message = self._group.broadcast_object(None, timeout_s=PATIENCE_S)
            if message is None:
                return
            if isinstance(message, str):
                raise DataError(message, rank=0)
            yield message, *self._receive(message)

    def _range(self, total: int, replica: int) -> slice:
        if self._replicas is not None:
            return slice(0, total)
        sizes = cut(total, self._num_replicas)
        start = sum(sizes[:replica])
        return slice(start, start + sizes[replica])

    def _send(self, rows: Rows, rank: int) -> None:
        wanted, targets, whole, replica = self._everyone[rank]
        part = rows.take(self._range(rows.count, replica))
        arrays = list(part.inputs.values())
        for position in wanted:
            self._send_array(arrays[position], rank)
        if targets or whole:
            source = rows if whole else part
            for array in (*flatten(source.targets), *flatten(source.sample_weight)):
                self._send_array(array, rank)

    def _receive(self, header: _Header) -> tuple[Rows, Rows | None]:
        needs = self._needs
        window = self._range(header.count, self._replica)
        count = window.stop - window.start
        inputs = {
            name: self._receive_array(header.inputs[position], count)
            for name, position in zip(needs.inputs, self._wanted, strict=True)
        }
        if not (needs.targets or needs.whole):
            return Rows(inputs, None, None, count), None
        length = header.count if needs.whole else count

        def receive(spec: _Spec) -> Any:
            return self._receive_array(spec, length)

        targets = map_arrays(receive, header.targets)
        weight = map_arrays(receive, header.sample_weight)
        if not needs.whole:
            return Rows(inputs, targets, weight, count), None
        whole = Rows({}, targets, weight, header.count)
        part = whole.take(window)
        return Rows(inputs, part.targets, part.sample_weight, count), whole

    def _send_array(self, array: Any, rank: int) -> None:
        if not len(array):
            return
        if _travels(array.dtype):
            self._group.send(np.ascontiguousarray(array), rank, tag=_TAG)
        else:
            self._group.send_object(array, rank)

    def _receive_array(self, spec: _Spec, count: int) -> Any:
        shape = (count, *spec.shape)
        if not count:
            return np.empty(shape, spec.dtype)
        if _travels(spec.dtype):
            return self._group.recv(
                0, tag=_TAG, shape=shape, dtype=spec.dtype, timeout_s=PATIENCE_S
            )
        return self._group.recv_object(0, timeout_s=PATIENCE_S)


def _header(rows: Rows) -> _Header:
    def spec(array: Any) -> _Spec:
        return _Spec(tuple(array.shape[1:]), array.dtype)

    return _Header(
        rows.count,
        [spec(array) for array in rows.inputs.values()],
        map_arrays(spec, rows.targets),
        map_arrays(spec, rows.sample_weight),
    )


def _travels(dtype: np.dtype[Any]) -> bool:
    return dtype.kind in "biuf" or dtype.name == "bfloat16"
