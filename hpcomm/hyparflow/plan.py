"""The data of a call, checked on every rank before the model is split, opened afterwards."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from hpcomm.errors import InvalidArgumentError, MismatchError
from hpcomm.hyparflow.agreement import agree
from hpcomm.hyparflow.arguments import check_whole
from hpcomm.hyparflow.data import ArraySource, Needs, Rows, count_rows
from hpcomm.hyparflow.shard_data import ShardSource
from hpcomm.hyparflow.stream_data import StreamSource

if TYPE_CHECKING:
    from collections.abc import Iterator

    from hpcomm.communicator import Communicator
    from hpcomm.hyparflow.data import DataSource
    from hpcomm.hyparflow.epochs import BatchStream
    from hpcomm.hyparflow.framework import Framework
    from hpcomm.hyparflow.session import Session

__all__ = ["DataPlan", "agree_on_data", "open_data", "plan_data"]

DEFAULT_BATCH_SIZE = 32


@dataclass(slots=True)
class DataPlan:
    """What one rank passed as data.

    Attributes:
        call: name of the public function, for messages.
        kind: "arrays", "stream" or "none" (nothing, because another rank reads).
        x: inputs; NumPy arrays if ``kind`` is "arrays".
        y: targets, likewise.
        sample_weight: likewise; class weights are already in it for arrays.
        class_weight: for streams.
        count: samples, for arrays.
        batch_size: samples of a global batch; None where a stream decides.
        steps: steps per epoch that the user asked for.
        shuffle: False, True or "batch".
        shard: whether each replica passes its own part.
    """

    call: str
    kind: str
    x: Any
    y: Any
    sample_weight: Any
    class_weight: Any
    count: int
    batch_size: int | None
    steps: int | None
    shuffle: bool | str
    shard: bool


def plan_data(
    framework: Framework,
    x: Any,
    y: Any = None,
    sample_weight: Any = None,
    *,
    class_weight: Any = None,
    batch_size: int | None = None,
    steps: int | None = None,
    steps_label: str = "steps_per_epoch",
    shuffle: bool | str = False,
    shard: bool = False,
    call: str,
) -> DataPlan:
    """Look at the data of this rank; local.

    Args:
        framework: of the model.
        x: inputs, or a data set; None where another rank reads.
        y: targets.
        sample_weight: weights.
        class_weight: class → weight.
        batch_size: samples of a global batch, or None for the default.
        steps: batches per epoch, or None.
        steps_label: name of that argument, for messages.
        shuffle: whether to shuffle.
        shard: whether each replica passes its own part.
        call: name of the public function, for messages.

    Returns:
        The plan.

    Raises:
        InvalidArgumentError: the arrays do not fit together, or an argument is out of its range.
    """
    if batch_size is not None:
        batch_size = check_whole("batch_size", batch_size, call=call)
    if steps is not None:
        steps = check_whole(steps_label, steps, call=call)
    if shuffle not in (True, False, "batch"):
        raise InvalidArgumentError(
            f"{call}: shuffle must be True, False or 'batch', got {shuffle!r}"
        )
    if class_weight is not None and sample_weight is not None:
        raise InvalidArgumentError(f"{call}: pass class_weight or sample_weight, not both")

    def plan(kind: str, count: int = 0) -> DataPlan:
        return DataPlan(
            call, kind, x, y, sample_weight, class_weight, count, batch_size, steps, shuffle, shard
        )

    if x is None and y is None:
        return plan("none")
    if not framework.is_arrays(x, y, sample_weight):
        if batch_size is not None and y is None:
            batch_size = None  # a data set brings its own batches; Keras ignores it likewise
        return plan("stream")
    x, y, sample_weight = (framework.to_arrays(part, call=call) for part in (x, y, sample_weight))
    sample_weight = framework.sample_weights(y, sample_weight, class_weight, call=call)
    class_weight = None
    try:
        count = count_rows(x, y, sample_weight)
    except ValueError as error:
        raise InvalidArgumentError(f"{call}: {error}") from None
    if count == 0:
        raise InvalidArgumentError(f"{call}: the data hold no sample")
    if batch_size is None:
        batch_size = -(-count // steps) if steps else DEFAULT_BATCH_SIZE
    return plan("arrays", count)


def agree_on_data(comm: Communicator, plan: DataPlan, *, call: str, ranks_per_replica: int) -> None:
    """Settle how the data are read; collective over ``comm``.

    Where not all ranks have the arrays, the first rank of the group (of all, or of the replica with
    ``shard``) reads and hands out.

    Args:
        comm: all ranks.
        plan: of this rank; ``kind`` becomes "stream" where one rank reads.
        call: name of the public function, for messages.
        ranks_per_replica: number of partitions.

    Raises:
        InvalidArgumentError: the rank that would read has no data.
        MismatchError: arrays of different lengths on ranks that should hold the same.
    """
    everyone = comm.allgather_object((plan.kind, plan.count))
    size = ranks_per_replica if plan.shard else comm.size
    sharing = [
        all(kind == "arrays" for kind, _ in everyone[start : start + size])
        for start in range(0, comm.size, size)
    ]
    for start in range(0, comm.size, size):
        group = everyone[start : start + size]
        if group[0][0] == "none":
            raise InvalidArgumentError(
                f"{call}: rank {start} must pass the data (x), because it reads them for others"
            )
        counts = {count for kind, count in group if kind == "arrays"}
        if len(counts) > 1:
            raise MismatchError(
                f"{call}: ranks {start} to {start + size - 1} must pass the same arrays, but their "
                f"numbers of samples are {[count for _, count in group]}"
            )
    if not all(sharing):
        plan.kind = "stream"


def open_data(
    session: Session, plan: DataPlan, *, needs: Needs, seed: int, needs_targets: bool = True
) -> DataSource:
    """Open the data for a split model; collective over all ranks.

    Args:
        session: with the split model.
        plan: agreed on by `agree_on_data`.
        needs: what this rank wants.
        seed: of the order, the same on every rank.
        needs_targets: whether a loss is to be computed.

    Returns:
        The source of batches.

    Raises:
        InvalidArgumentError: the data do not fit the model; the same on every rank.
    """
    framework, model, grid = session.framework, session.trainer.user_model, session.trainer.grid

    def convert(name: str, rows: Any) -> Any:
        return framework.convert_input(model, name, rows)

    if plan.kind == "stream":
        reads = (grid.partition if plan.shard else session.comm.rank) == 0
        stream = agree(
            session.comm, lambda: _open_stream(session, plan, needs_targets) if reads else None
        )
        return StreamSource(
            stream,
            needs,
            names=framework.input_names(model),
            group=session.pipeline() if plan.shard else session.comm,
            replica=grid.replica,
            num_replicas=grid.num_replicas,
            steps_per_epoch=plan.steps,
            convert=convert,
            replicas=grid.replicas if plan.shard else None,
        )
    rows = agree(
        session.comm,
        lambda: Rows(
            framework.name_inputs(model, plan.x, call=plan.call),
            plan.y,
            plan.sample_weight,
            plan.count,
        ),
    )
    agree(session.comm, lambda: _check_rows(session, plan, rows, needs_targets))
    assert plan.batch_size is not None
    if plan.shard:
        counts = grid.replicas.allgather_object(plan.count)
        return ShardSource(
            rows,
            needs,
            replicas=grid.replicas,
            counts=counts,
            batch_size=plan.batch_size,
            steps_per_epoch=plan.steps,
            shuffle=plan.shuffle,
            seed=seed,
            convert=convert,
        )
    return ArraySource(
        rows,
        needs,
        replica=grid.replica,
        replicas=grid.num_replicas,
        batch_size=plan.batch_size,
        steps_per_epoch=plan.steps,
        shuffle=plan.shuffle,
        seed=seed,
        convert=convert,
    )


class _RowStream:
    """A framework's stream, its tuples made `Rows`."""

    def __init__(self, stream: BatchStream) -> None:
        self._stream = stream

    @property
    def num_batches(self) -> int | None:
        return self._stream.num_batches

    def open(self, number: int) -> Iterator[Rows]:
        for inputs, targets, sample_weight, count in self._stream.open(number):
            yield Rows(inputs, targets, sample_weight, count)

    def begin_epoch(self) -> None:
        self._stream.begin_epoch()

    def end_epoch(self) -> None:
        self._stream.end_epoch()


def _check_rows(session: Session, plan: DataPlan, rows: Rows, needs_targets: bool) -> None:
    """Raise unless every batch, a smaller last one too, is what the model takes."""
    framework, model = session.framework, session.trainer.user_model
    if needs_targets:
        framework.check_targets(model, rows.targets, call=plan.call)
    batch_size = plan.batch_size or rows.count
    sizes = {min(batch_size, rows.count), rows.count % batch_size or min(batch_size, rows.count)}
    for name, array in rows.inputs.items():
        for size in sorted(sizes, reverse=True):
            framework.fit_shape(model, name, (size, *array.shape[1:]))


def _open_stream(session: Session, plan: DataPlan, needs_targets: bool) -> BatchStream:
    return _RowStream(
        session.framework.open_stream(
            session.trainer.user_model,
            plan.x,
            plan.y,
            plan.sample_weight,
            batch_size=plan.batch_size,
            steps=plan.steps,
            shuffle=plan.shuffle,
            class_weight=plan.class_weight,
            needs_targets=needs_targets,
            call=plan.call,
        )
    )
