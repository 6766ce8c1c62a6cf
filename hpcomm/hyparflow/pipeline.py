"""Carry out the schedule of one rank: compute, send, receive, micro-batch by micro-batch."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from hpcomm.hyparflow.adapter import MicroBatchWeights, Place
from hpcomm.hyparflow.messages import Mailbox
from hpcomm.hyparflow.schedule import make_schedule

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from hpcomm.communicator import Communicator
    from hpcomm.hyparflow.adapter import StageRunner, StageSpec
    from hpcomm.hyparflow.partial_errors import Liveness
    from hpcomm.hyparflow.split import Split
    from hpcomm.trace import Trace

__all__ = ["Piece", "Pipeline"]


@dataclass(slots=True)
class Piece:
    """One micro-batch, as this rank sees it.

    Attributes:
        size: samples.
        place: for randomness.
        inputs: tensors of the model inputs that the stage consumes, in its order.
        targets: on the last stage, tensors; else None.
        sample_weight: likewise.
        weights: of its losses; None where no loss is wanted.
    """

    size: int
    place: Place
    inputs: list[Any]
    targets: Any = None
    sample_weight: Any = None
    weights: MicroBatchWeights | None = None


@dataclass(slots=True)
class Outcome:
    """What a step gave on this rank.

    Attributes:
        loss: this stage's share, weighted.
        outputs: per micro-batch, the tensors of ``StageSpec.outputs``; on the last stage only.
    """

    loss: float = 0.0
    outputs: list[list[Any]] = field(default_factory=list)


class Pipeline:
    """The executor of one rank.

    Args:
        comm: partitions of this replica; rank = stage.
        split: of the model.
        spec: of this stage.
        runner: of this stage.
        schedule: name.
        world_rank: of every stage of this replica, for traces.
        trace: where to record.
        add: sums the partial errors of a tensor that several stages consume.
    """

    def __init__(
        self,
        comm: Communicator,
        split: Split,
        spec: StageSpec,
        runner: StageRunner,
        schedule: str,
        world_rank: Sequence[int],
        trace: Trace,
        add: Callable[[Sequence[Any]], Any],
    ) -> None:
        self._stage = comm.rank
        self._split = split
        self._spec = spec
        self._runner = runner
        self._schedule = schedule
        self._trace = trace
        self._add = add
        self._mail = Mailbox(comm, split.graph, split.edges, runner, world_rank, trace)
        self._receives = split.receives(self._stage)
        self._sends = split.sends(self._stage)
        self._position = {tensor: i for i, tensor in enumerate(spec.outputs)}
        self._error_edges: list[list[Any]] = []
        self._errors_out: list[tuple[int, Any]] = []
        self._runs_backward = True

    def go_live(self, live: Liveness) -> None:
        """Take note of which partial errors travel.

        Args:
            live: what all ranks agreed on.
        """
        flowing = [edge for edge in self._sends if edge.index in live.edges]
        self._error_edges = [
            [edge for edge in flowing if edge.tensor == tensor] for tensor in self._spec.errors
        ]
        source = {tensor: i for i, tensor in enumerate(self._spec.sources)}
        self._errors_out = [
            (source[edge.tensor], edge) for edge in self._receives if edge.index in live.edges
        ]
        self._runs_backward = live.runs_backward[self._stage]

    def train(self, pieces: Sequence[Piece], begin: Callable[[], None]) -> Outcome:
        """Run forwards and backwards of all micro-batches.

        Args:
            pieces: in order; may be empty.
            begin: work that must precede the first backward; done while the rank would wait.
        """
        outcome = Outcome()
        begun = self._spec.is_last or not pieces
        if begun:
            self._run(begin)
        self._mail.begin([piece.size for piece in pieces])
        states: dict[int, Any] = {}
        num_stages = self._split.num_stages
        for action in make_schedule(self._schedule, self._stage, num_stages, len(pieces)):
            piece, index = pieces[action.micro_batch], action.micro_batch
            if action.kind == "forward":
                inputs = self._gather_inputs(piece, index)
                if self._spec.is_last:
                    self._forward_backward(piece, index, inputs, outcome)
                else:
                    states[index] = self._forward(piece, index, inputs, outcome)
            elif not self._spec.is_last:
                if not begun:
                    self._run(begin)
                    begun = True
                state = states.pop(index)
                if self._runs_backward:
                    self._backward(piece, index, state)
                del state
        self._mail.finish()
        return outcome

    def _run(self, begin: Callable[[], None]) -> None:
        with self._trace.span("compute", "regularization"):
            begin()

    def infer(self, pieces: Sequence[Piece]) -> Outcome:
        """Run the forwards of all micro-batches in inference mode."""
        outcome = Outcome()
        self._mail.begin([piece.size for piece in pieces])
        for index, piece in enumerate(pieces):
            inputs = self._gather_inputs(piece, index)
            with self._trace.span("compute", "inference", micro_batch=index):
                loss, outputs = self._runner.infer(
                    inputs, piece.place, piece.targets, piece.sample_weight, piece.weights
                )
            outcome.loss += loss
            self._deliver(outputs, index, outcome)
        self._mail.finish()
        return outcome

    def _gather_inputs(self, piece: Piece, index: int) -> list[Any]:
        self._mail.expect_activations(self._receives, index)
        received = [self._mail.take_activation(edge, index) for edge in self._receives]
        # The next one can arrive while this one is computed.
        self._mail.expect_activations(self._receives, index + 1)
        return [*piece.inputs, *received]

    def _forward(self, piece: Piece, index: int, inputs: list[Any], outcome: Outcome) -> Any:
        with self._trace.span("compute", "forward", micro_batch=index):
            outputs, added, state = self._runner.forward(inputs, piece.place)
        assert piece.weights is not None
        outcome.loss += added * piece.weights.added
        self._deliver(outputs, index, outcome)
        return state if self._runs_backward else None

    def _backward(self, piece: Piece, index: int, state: Any) -> None:
        edges = [edge for group in self._error_edges for edge in group]
        self._mail.expect_errors(edges, index)
        parts = [
            [self._mail.take_error(edge, index) for edge in group] for group in self._error_edges
        ]
        self._mail.expect_errors(edges, index + 1)
        assert piece.weights is not None
        with self._trace.span("compute", "backward", micro_batch=index):
            errors = [self._add(group) if group else None for group in parts]
            found = self._runner.backward(state, errors, piece.weights)
        self._send_errors(found, index)

    def _forward_backward(
        self, piece: Piece, index: int, inputs: list[Any], outcome: Outcome
    ) -> None:
        assert piece.weights is not None
        with self._trace.span("compute", "forward and backward", micro_batch=index):
            loss, outputs, errors = self._runner.forward_backward(
                inputs, piece.place, piece.targets, piece.sample_weight, piece.weights
            )
        outcome.loss += loss
        self._send_errors(errors, index)
        self._deliver(outputs, index, outcome)

    def _send_errors(self, errors: Sequence[Any], index: int) -> None:
        for position, edge in self._errors_out:
            self._mail.send_error(edge, index, errors[position])

    def _deliver(self, outputs: list[Any], index: int, outcome: Outcome) -> None:
        if self._spec.is_last:
            outcome.outputs.append(outputs)
            return
        for edge in self._sends:
            self._mail.send_activation(edge, index, outputs[self._position[edge.tensor]])
