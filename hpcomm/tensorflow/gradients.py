"""Gradients of a stage's weights: summed over micro-batches, packed for the other ranks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import keras
import tensorflow as tf

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["Bucket", "GradientBuffers"]


class Bucket(NamedTuple):
    """Gradients that travel together.

    Attributes:
        group: index of the set of stages that share these weights; None where only one has them.
        positions: of the weights among the stage's trainable variables.
    """

    group: int | None
    positions: tuple[int, ...]


class GradientBuffers:
    """One accumulator per trainable variable, and their packing into flat buckets.

    Args:
        variables: trainable Keras variables of the stage, with values.
        groups: per variable, the index of the set of stages that share it, or None.
        regularized: per variable, whether this rank adds the gradient of its regularizer. Exactly
            one rank does that for each weight.

    Attributes:
        accumulators: tf.Variable per weight.
        buckets: one per group and dtype; groups first, in ascending order.
    """

    def __init__(
        self,
        variables: Sequence[Any],
        groups: Sequence[int | None],
        regularized: Sequence[bool],
    ) -> None:
        self._variables = list(variables)
        self._regularized = [
            here and variable.regularizer is not None
            for variable, here in zip(variables, regularized, strict=True)
        ]
        self.accumulators = [
            tf.Variable(tf.zeros(v.shape, v._dtype), trainable=False, name="gradient")
            for v in variables
        ]
        found: dict[tuple[int, str], list[int]] = {}
        for position, (variable, group) in enumerate(zip(variables, groups, strict=True)):
            # Weights of one stage only come last: their sum is ready when the replicas have it.
            rank = len(variables) if group is None else group
            found.setdefault((rank, str(variable._dtype)), []).append(position)
        self.buckets = [
            Bucket(None if rank == len(variables) else rank, tuple(positions))
            for (rank, _), positions in sorted(found.items())
        ]

    def begin(self, zero: Any, scale: Any) -> Any:
        """Start a step: set the accumulators to the gradients of the regularizers, or to zero.

        Args:
            zero: a scalar 0 that no optimization of the graph may know, or it would keep a constant
                of the size of the weights.
            scale: factor of all gradients of this step.

        Returns:
            The regularization loss, not scaled.
        """
        total = tf.zeros([], keras.backend.floatx())
        for variable, accumulator, regularized in zip(
            self._variables, self.accumulators, self._regularized, strict=True
        ):
            if not regularized:
                shape = tf.constant(accumulator.shape.as_list(), tf.int32)
                accumulator.assign(tf.fill(shape, tf.cast(zero, accumulator.dtype)))
                continue
            with tf.GradientTape(watch_accessed_variables=False) as tape:
                tape.watch(variable.value)
                loss = tf.reduce_sum(tf.cast(variable.regularizer(variable), total.dtype))
            gradient = tape.gradient(
                loss,
                variable.value,
                output_gradients=tf.cast(scale, loss.dtype),
                unconnected_gradients=tf.UnconnectedGradients.ZERO,
            )
            accumulator.assign(tf.cast(gradient, accumulator.dtype))
            total += loss
        return total

    def regularization(self) -> Any:
        """Return the regularization loss alone."""
        total = tf.zeros([], keras.backend.floatx())
        for variable, regularized in zip(self._variables, self._regularized, strict=True):
            if regularized:
                total += tf.reduce_sum(tf.cast(variable.regularizer(variable), total.dtype))
        return total

    def pack(self) -> list[Any]:
        """Return one flat tensor per bucket."""
        return [
            tf.concat([tf.reshape(self.accumulators[p], [-1]) for p in bucket.positions], 0)
            for bucket in self.buckets
        ]

    def unpack(self, flat: Sequence[Any]) -> list[Any]:
        """Return the gradients that `pack` packed, in the order of the variables."""
        result: list[Any] = [None] * len(self._variables)
        for bucket, tensor in zip(self.buckets, flat, strict=True):
            shapes = [self.accumulators[p].shape for p in bucket.positions]
            pieces = tf.split(tensor, [shape.num_elements() for shape in shapes])
            for position, piece, shape in zip(bucket.positions, pieces, shapes, strict=True):
                result[position] = tf.reshape(piece, shape)
        return result

    def has_regularizers(self) -> list[bool]:
        """Return per weight whether its regularizer gives it a gradient on this rank."""
        return list(self._regularized)
