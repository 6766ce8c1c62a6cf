"""What one stage computes, in plain TensorFlow: written once, traced or run line by line."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

import keras
import tensorflow as tf

from hpcomm.tensorflow.seeds import RandomContext

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from hpcomm.tensorflow.loss import StageLoss
    from hpcomm.tensorflow.program import Program, Run
    from hpcomm.tensorflow.seeds import SeedTable

__all__ = ["Forwarded", "Gradients", "Reach", "StageMath", "Weights"]


class Weights(NamedTuple):
    """Numbers that the losses of a micro-batch are multiplied with, scalar tensors.

    Attributes:
        loss: of the compiled loss.
        added: of losses that layers added.
        scale: of all gradients (loss scaling), not of the loss that is reported.
    """

    loss: Any
    added: Any
    scale: Any


class Forwarded(NamedTuple):
    """What a forward pass leaves for the backward pass.

    Attributes:
        tape: recorded it; can be used once.
        sources: tensors that a partial error is wanted for.
        outputs: in the order of the program.
        added: sum of the losses that layers added, or None.
    """

    tape: Any
    sources: list[Any]
    outputs: list[Any]
    added: Any


class Gradients(NamedTuple):
    """Gradients of the sources and of the trainable variables; None where there is none."""

    sources: list[Any]
    variables: list[Any]


@dataclass(frozen=True, slots=True)
class Reach:
    """Which gradients of a stage depend on which errors.

    Rows stand for the outputs that errors may arrive for, in order; the last row stands for the
    stage's own losses.

    Attributes:
        sources: per row, whether each source tensor gets a gradient from it.
        variables: the same for the trainable variables.
    """

    sources: list[list[bool]]
    variables: list[list[bool]]


@dataclass
class StageMath:
    """The computation of a stage.

    Attributes:
        program: its calls.
        table: random number generators of the model.
        loss: on the last stage the compiled loss, else None.
        structure: on the last stage positions among ``program.outputs`` in the structure of the
            model's outputs.
        sources: positions of the inputs that a partial error is wanted for.
        errors: positions of the outputs that partial errors may arrive for.
        variables: trainable Keras variables.
        accumulators: a tf.Variable per trainable variable, to which gradients are added.
    """

    program: Program
    table: SeedTable
    loss: StageLoss | None
    structure: Any
    sources: tuple[int, ...]
    errors: tuple[int, ...]
    variables: Sequence[Any]
    accumulators: Sequence[Any] = field(default_factory=list)

    def forward(self, inputs: Sequence[Any], key: Any, first: Any) -> Forwarded:
        """Run the calls in training mode under a tape.

        Args:
            inputs: in the order of the program.
            key: int64 scalar, see `hpcomm.tensorflow.seeds.step_key`.
            first: int64 scalar, position of the first sample in the global batch.
        """
        sources = [inputs[i] for i in self.sources]
        with self._tape(sources) as tape:
            run = self.program.run(inputs, RandomContext(self.table, key, first), training=True)
            added = add_losses(run)
        return Forwarded(tape, sources, run.outputs, added)

    def backward(self, made: Forwarded, errors: Sequence[Any], added_seed: Any) -> Gradients:
        """Differentiate.

        Args:
            made: by `forward`.
            errors: one per position in ``self.errors``.
            added_seed: gradient of the total loss with respect to ``made.added``.
        """
        targets = [made.outputs[i] for i in self.errors]
        seeds = list(errors)
        if made.added is not None:
            targets.append(made.added)
            seeds.append(tf.cast(added_seed, made.added.dtype))
        return self._differentiate(made.tape, targets, seeds, made.sources)

    def forward_backward(
        self,
        inputs: Sequence[Any],
        key: Any,
        first: Any,
        targets: Any,
        sample_weight: Any,
        weights: Weights,
    ) -> tuple[Any, list[Any], Gradients]:
        """Do both on the last stage.

        Returns:
            Weighted loss, outputs, gradients.
        """
        sources = [inputs[i] for i in self.sources]
        with self._tape(sources) as tape:
            run = self.program.run(inputs, RandomContext(self.table, key, first), training=True)
            total = self.total_loss(run, targets, sample_weight, weights)
        seed = tf.cast(weights.scale, total.dtype)
        return total, run.outputs, self._differentiate(tape, [total], [seed], sources)

    def infer(
        self,
        inputs: Sequence[Any],
        key: Any,
        first: Any,
        targets: Any = None,
        sample_weight: Any = None,
        weights: Weights | None = None,
    ) -> tuple[Any, list[Any]]:
        """Run the calls in inference mode.

        Returns:
            Weighted loss (None without ``weights``) and outputs.
        """
        run = self.program.run(inputs, RandomContext(self.table, key, first), training=False)
        if weights is None:
            return None, run.outputs
        return self.total_loss(run, targets, sample_weight, weights), run.outputs

    def total_loss(self, run: Run, targets: Any, sample_weight: Any, weights: Weights) -> Any:
        """Return this stage's share of the loss, a scalar of Keras's float type."""
        total = tf.zeros([], keras.backend.floatx())
        if self.loss is not None and targets is not None:
            predictions = keras.tree.map_structure(lambda i: run.outputs[i], self.structure)
            value = self.loss(targets, predictions, sample_weight)
            if value is not None:
                total += tf.cast(weights.loss, total.dtype) * tf.cast(value, total.dtype)
        added = add_losses(run)
        if added is not None:
            total += tf.cast(weights.added, total.dtype) * added
        return total

    def accumulate(self, gradients: Sequence[Any]) -> None:
        """Add gradients of the trainable variables to the accumulators."""
        for accumulator, gradient in zip(self.accumulators, gradients, strict=True):
            if isinstance(gradient, tf.IndexedSlices):
                values = tf.cast(gradient.values, accumulator.dtype)
                accumulator.scatter_add(tf.IndexedSlices(values, gradient.indices))
            elif gradient is not None:
                accumulator.assign_add(tf.cast(gradient, accumulator.dtype))

    @contextlib.contextmanager
    def _tape(self, sources: list[Any]) -> Iterator[Any]:
        with tf.GradientTape(watch_accessed_variables=False) as tape:
            tape.watch([*sources, *(v.value for v in self.variables)])
            yield tape

    def _differentiate(
        self, tape: Any, targets: list[Any], seeds: list[Any], sources: list[Any]
    ) -> Gradients:
        values = [v.value for v in self.variables]
        if not targets or not (sources or values):
            return Gradients([None] * len(sources), [None] * len(values))
        found = tape.gradient(targets, [*sources, *values], output_gradients=seeds)
        errors = [None if g is None else tf.convert_to_tensor(g) for g in found[: len(sources)]]
        return Gradients(errors, found[len(sources) :])


def add_losses(run: Run) -> Any:
    """Return the sum of the losses that layers added, in Keras's float type; None without any."""
    if not run.losses:
        return None
    dtype = keras.backend.floatx()
    return tf.add_n([tf.reduce_sum(tf.cast(loss, dtype)) for loss in run.losses])
