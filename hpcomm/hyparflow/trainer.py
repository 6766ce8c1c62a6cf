"""The engine under ``fit``, ``evaluate`` and ``predict``: one rank of a split model."""

from __future__ import annotations

import logging
import math
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from hpcomm.errors import InvalidArgumentError
from hpcomm.hyparflow.adapter import MicroBatchWeights, Place
from hpcomm.hyparflow.agreement import agree, closing_on_failure
from hpcomm.hyparflow.arguments import check_whole
from hpcomm.hyparflow.batch import StepBatch, StepResult
from hpcomm.hyparflow.partial_errors import find_live
from hpcomm.hyparflow.pieces import fill, join_outputs, micro_batch_ranges, total_weight
from hpcomm.hyparflow.pipeline import Piece, Pipeline
from hpcomm.hyparflow.planning import check_schedule, stage_rows, stage_table, table_title
from hpcomm.hyparflow.reduction import Reducer
from hpcomm.hyparflow.setup import Options, set_up
from hpcomm.hyparflow.state import StateAccess
from hpcomm.hyparflow.structure import map_arrays
from hpcomm.hyparflow.weights import WeightMover
from hpcomm.trace import NO_TRACE

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from hpcomm.communicator import Communicator
    from hpcomm.hyparflow.pipeline import Outcome
    from hpcomm.trace import Trace

__all__ = ["HybridTrainer", "StepBatch", "StepResult"]

_LOG = logging.getLogger("hpcomm")


class HybridTrainer(StateAccess):
    """One rank of a hybrid-parallel training job.

    All ranks of ``comm`` construct it with the same model and arguments, and call the same methods
    in the same order.

    Args:
        model_or_function: a compiled model, or a function without arguments that returns one; with
            a function no rank ever holds the weights of other stages.
        comm: all ranks; its size must be ``num_partitions * num_replicas``.
        strategy: "data" (one partition), "model" (one replica) or "hybrid".
        num_partitions: stages of the pipeline; None takes what the strategy and the size of
            ``comm`` imply.
        num_replicas: copies of the model; None likewise.
        micro_batches: pieces that a replica's share of a batch is cut into.
        lpp: layers per partition, counted without input layers; None balances.
        schedule: "gpipe" or "1f1b".
        balance: cost per layer, "measured" (one timed forward and backward of every kind of layer
            on rank 0) or "estimated"; "memory" evens out memory before time.
        micro_batch_size: samples that costs are taken for; None means 8.
        memory_limit_bytes: what a stage may need at most (weights, optimizer slots, activations);
            None sets no limit.
        seed: of dropout and other randomness; None takes rank 0's.
        keep_gradients: keep every step's gradients for ``gather_gradients``.
        trace: where to record what is done when.
        on_table: called on rank 0 with the table of stages (text); None prints it; False keeps it
            quiet.

    Attributes:
        grid: communicators of the ranks.
        user_model: the whole model on this rank; weights of other stages may be stale, or absent if
            a function built it.
        split: stages and the tensors between them.
        plan: costs of the stages as the balancer saw them.
        stage_inputs: model inputs (by name) that this rank's stage consumes.
        is_loss_stage: whether this rank computes the loss.
        collect_predictions: whether train_step and test_step gather the outputs (predict_step
            always does). Settable, the same on all ranks.
        step: training steps done so far.

    Raises:
        InvalidArgumentError: an argument is wrong; the same on every rank, like all of these.
        MismatchError: ranks gave different arguments or models.
        ModelError: the model cannot be split so.
        UnsupportedError: it uses something that is refused by name.
    """

    def __init__(
        self,
        model_or_function: Any,
        comm: Communicator,
        *,
        strategy: Literal["data", "model", "hybrid"] = "hybrid",
        num_partitions: int | None = None,
        num_replicas: int | None = None,
        micro_batches: int = 1,
        lpp: Sequence[int] | None = None,
        schedule: str = "gpipe",
        balance: Literal["measured", "estimated", "memory"] = "measured",
        micro_batch_size: int | None = None,
        memory_limit_bytes: int | None = None,
        seed: int | None = None,
        keep_gradients: bool = False,
        trace: Trace = NO_TRACE,
        on_table: Callable[[str], None] | Literal[False] | None = None,
    ) -> None:
        options = Options(
            strategy=strategy,
            num_partitions=num_partitions,
            num_replicas=num_replicas,
            micro_batches=micro_batches,
            lpp=None if lpp is None else tuple(lpp),
            schedule=schedule,
            balance=balance,
            micro_batch_size=micro_batch_size,
            memory_limit_bytes=memory_limit_bytes,
            seed=seed,
            keep_gradients=keep_gradients,
        )
        setup = set_up(model_or_function, comm, options)
        self._setup = setup
        self._options = options
        self._trace = trace
        self._micro_batches = options.micro_batches
        self.grid = setup.grid
        self.user_model = setup.model
        self.split = setup.split
        self.plan = setup.plan
        self.stage_inputs = list(setup.split.stages[setup.grid.partition].model_inputs)
        self.is_loss_stage = setup.spec.is_last
        self.collect_predictions = True
        self.step = 0
        self._runner = setup.runner
        self._is_live = False
        self._scalar_loss = False
        self._stale_statistics = False
        self._kept_gradients: dict[int, np.ndarray] = {}
        made = [setup.grid.pipeline, setup.grid.replicas]
        with closing_on_failure(made):
            self._reducer = Reducer(setup.grid, setup.split, trace)
            made += self._reducer.groups.values()
            self._mover = WeightMover(
                setup.grid, setup.split, setup.specs, setup.runner, setup.adapter
            )
            first = setup.grid.world_rank(setup.grid.replica, 0)
            self._pipeline = Pipeline(
                setup.grid.pipeline,
                setup.split,
                setup.spec,
                setup.runner,
                options.schedule,
                [first + stage for stage in range(setup.split.num_stages)],
                trace,
                self.sum_partial_errors,
            )
            if setup.deferred:
                self._mover.equalize()
                self._equalize_tied()
            else:
                self._mover.scatter(optimizer=False)
            if comm.rank == 0:
                if on_table is not False:
                    self._show_table(on_table or print)
                for notice in setup.adapter.notices(setup.graph, pieces=self._pieces_per_batch):
                    _LOG.warning("%s: %s", self.split.graph.name, notice)

    @property
    def micro_batches(self) -> int:
        """Pieces that a replica's share is cut into; settable between steps, on all ranks alike."""
        return self._micro_batches

    @micro_batches.setter
    def micro_batches(self, value: int) -> None:
        self._micro_batches = check_whole("micro_batches", value)
        self._setup.adapter.check(self._setup.graph, pieces=self._pieces_per_batch)
        check_schedule(self.split, self._options.schedule, self._micro_batches)

    @property
    def stages(self) -> list[dict[str, Any]]:
        """The table of stages as plain data; see ``planning.stage_rows``."""
        return stage_rows(self.split, self.plan)

    def train_step(self, batch: StepBatch) -> StepResult:
        """Train on one global batch; collective over all ranks.

        Args:
            batch: this rank's share.

        Returns:
            Loss before the update, outputs, and whether the update was skipped.
        """
        self._go_live(batch)
        with self._trace.step():
            regularization = [0.0]

            def begin() -> None:
                regularization[0] = self._runner.begin_step(training=True)

            pieces = self._make_pieces(batch, training=True)
            outcome = self._pipeline.train(pieces, begin)
            reduced = self._reducer.sum_gradients(self._runner)
            if self._options.keep_gradients:
                self._kept_gradients = self._runner.read_gradients(reduced)
            figures = self._agree_figures(reduced)
            with self._trace.span("update", "update"):
                skipped = self._runner.update(reduced, figures)
            del reduced
            loss, idle = self._agree_loss(outcome.loss + regularization[0], batch)
            self.step += 1
            self._stale_statistics = True
            if idle:
                # A replica without samples has older statistics; they must not count later on.
                self._average(active=batch.num_samples > 0)
            result = self._make_result(loss, outcome, self.collect_predictions)
            result.skipped = skipped
            return result

    def test_step(self, batch: StepBatch) -> StepResult:
        """Compute loss and outputs in inference mode; collective over all ranks."""
        self.average_statistics()
        regularization = self._runner.begin_step(training=False)
        outcome = self._pipeline.infer(self._make_pieces(batch, training=False))
        loss, _ = self._agree_loss(outcome.loss + regularization, batch)
        return self._make_result(loss, outcome, self.collect_predictions)

    def predict_step(self, batch: StepBatch) -> StepResult:
        """Compute the outputs in inference mode (loss is NaN); collective over all ranks."""
        self.average_statistics()
        pieces = self._make_pieces(batch, training=False)
        for piece in pieces:
            piece.targets = piece.sample_weight = piece.weights = None
        return self._make_result(math.nan, self._pipeline.infer(pieces), True)

    def micro_batch_weight(self, num_samples: int, global_samples: int) -> float:
        """Return what the mean loss of a micro-batch counts in the loss of the global batch.

        Args:
            num_samples: of the micro-batch.
            global_samples: of the global batch, over all replicas.
        """
        return num_samples / global_samples

    def sum_partial_errors(self, parts: Sequence[Any]) -> Any:
        """Return the error of a tensor that several stages consume: the sum of their errors.

        Args:
            parts: one per consuming stage, in the order of the stages.
        """
        return self._runner.add(parts)

    def slice_micro_batch(self, array: Any, index: int, ranges: Sequence[tuple[int, int]]) -> Any:
        """Return the rows of one micro-batch.

        Args:
            array: of this replica's share, samples first.
            index: of the micro-batch.
            ranges: (start, stop) of every micro-batch.
        """
        start, stop = ranges[index]
        return array[start:stop]

    @property
    def communicators(self) -> list[Communicator]:
        """Those that the trainer made: of this replica, this partition, and its shared weights."""
        return [self.grid.pipeline, self.grid.replicas, *self._reducer.groups.values()]

    def close(self) -> None:
        """Release the communicators that the trainer made."""
        for comm in reversed(self.communicators):
            comm.close()

    @property
    def _pieces_per_batch(self) -> int:
        return self._micro_batches * self.grid.num_replicas

    def _go_live(self, batch: StepBatch) -> None:
        """Trace the training step, and agree on which partial errors travel."""
        if not self._is_live:
            world, runner = self.grid.world, self._runner

            def trace() -> Any:
                if not self.is_loss_stage:
                    return runner.trace(None, None)
                if batch.num_samples == 0:
                    return None
                return runner.trace(
                    runner.convert(batch.targets), runner.convert(batch.sample_weight)
                )

            reach = agree(world, trace)
            report = (self.grid.partition, reach, runner.loss_is_scalar, runner.counting_layers)
            reports = world.allgather_object(report)
            reaches = {stage: found for stage, found, *_ in reports[::-1] if found is not None}
            live = find_live(self.split, self._setup.specs, reaches)
            self._pipeline.go_live(live)
            runner.go_live(live.errors[self.grid.partition], live.variables[self.grid.partition])
            self._scalar_loss = any(scalar for _, _, scalar, _ in reports)
            self._say_counting([name for *_, names in reports for name in names])
            self._is_live = True
        self._check_loss()

    def _say_counting(self, layers: Sequence[str]) -> None:
        if layers and self._pieces_per_batch > 1 and self.grid.world.rank == 0:
            names, times = ", ".join(dict.fromkeys(layers)), self._micro_batches
            text = "state that a layer changes whenever it runs is changed once per micro-batch, "
            text += f"{times} times per batch in each replica"
            _LOG.warning("%s: %s: %s", self.split.graph.name, names, text)

    def _check_loss(self) -> None:
        if self._scalar_loss:
            self._setup.adapter.check_scalar_loss(self._setup.graph, pieces=self._pieces_per_batch)

    def _make_pieces(self, batch: StepBatch, *, training: bool) -> list[Piece]:
        if not 0 <= batch.num_samples <= batch.global_samples:
            raise InvalidArgumentError(
                f"StepBatch: num_samples is {batch.num_samples}, global_samples "
                f"{batch.global_samples} on rank {self.grid.world.rank}; a share cannot be larger "
                "than the batch",
                rank=self.grid.world.rank,
            )
        runner, graph = self._runner, self._setup.graph
        ranges = micro_batch_ranges(batch.num_samples, self._micro_batches)
        all_weights = self._all_sample_weights(batch)
        pieces = []
        for index, (start, stop) in enumerate(ranges):

            def rows(array: Any, index: int = index) -> Any:
                return self.slice_micro_batch(array, index, ranges)

            piece = Piece(
                size=stop - start,
                place=Place(self.step, batch.first_sample + start, training),
                inputs=[
                    runner.feed(graph.inputs[name], rows(batch.inputs[name]))
                    for name in self.stage_inputs
                ],
                weights=self._weights_of(stop - start, batch.global_samples),
            )
            if self.is_loss_stage and batch.targets is not None:
                piece.targets = runner.convert(map_arrays(rows, batch.targets))
                weights = map_arrays(rows, batch.sample_weight)
                piece.sample_weight = runner.convert(weights)
                if all_weights is not None and piece.weights is not None:
                    share = total_weight(weights, piece.size) / all_weights if all_weights else 0.0
                    piece.weights = piece.weights._replace(loss=share)
            pieces.append(piece)
        return pieces

    def _weights_of(self, num_samples: int, global_samples: int) -> MicroBatchWeights:
        share = self.micro_batch_weight(num_samples, global_samples)
        return MicroBatchWeights(1.0 if self._runner.loss_reduction == "sum" else share, share)

    def _all_sample_weights(self, batch: StepBatch) -> float | None:
        """Return the sum of all sample weights of the global batch where the loss divides by it."""
        if self._runner.loss_reduction != "weighted" or batch.targets is None:
            return None
        own = np.array([total_weight(batch.sample_weight, batch.num_samples)])
        return float(self.grid.replicas.allreduce(own)[0])

    def _agree_figures(self, reduced: Sequence[Any] | None) -> Sequence[float]:
        if not self._runner.needs_figures:
            return (0.0, 0.0)
        with self._trace.span("allreduce", "norm and overflows", group=self.grid.pipeline.name):
            own = self._runner.figures(reduced)
            return tuple(float(f) for f in self.grid.pipeline.allreduce(own))

    def _agree_loss(self, own: float, batch: StepBatch) -> tuple[float, bool]:
        """Return the global loss, and whether a replica had no sample."""
        idle = float(self.is_loss_stage and batch.num_samples == 0)
        scalar = float(self._runner.loss_is_scalar)
        with self._trace.span("allreduce", "loss", group=self.grid.world.name):
            loss, idle, scalar = self.grid.world.allreduce(np.array([own, idle, scalar]))
        self._scalar_loss = self._scalar_loss or scalar > 0
        self._check_loss()
        return float(loss), idle > 0

    def _make_result(self, loss: float, outcome: Outcome, wanted: bool) -> StepResult:
        result = StepResult(loss)
        if not (wanted and self.is_loss_stage):
            return result
        runner, spec, graph = self._runner, self._setup.spec, self._setup.graph
        parts = [[runner.to_array(t) for t in outputs] for outputs in outcome.outputs]
        joined = join_outputs(parts, self.grid.replicas)
        if joined is None:
            return result
        position = {tensor: i for i, tensor in enumerate(spec.outputs)}
        flat = [joined[position[tensor]] for tensor in graph.outputs]
        result.predictions = fill(self._setup.adapter.output_structure(graph), flat)
        for i, tensor in enumerate(graph.outputs):
            mask = graph.tensors[tensor].mask
            if mask is not None:
                result.masks[i] = joined[position[mask]]
        return result

    def _equalize_tied(self) -> None:
        for number, comm in sorted(self._reducer.groups.items()):
            variables = self._setup.spec.groups[number]
            values = self._runner.read(variables) if comm.rank == 0 else None
            self._runner.write(variables, comm.broadcast_object(values))

    def _show_table(self, show: Callable[[str], None]) -> None:
        schedule, replicas = self._options.schedule, self.grid.num_replicas
        title = table_title(self.split, self.plan, schedule, replicas, self._micro_batches)
        show(stage_table(self.stages, title))
