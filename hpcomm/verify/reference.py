"""Train an unsplit Keras model with Keras and TensorFlow alone.

This file is the yardstick and imports nothing of hpcomm: what it computes cannot share a mistake
with the engine. It accumulates gradients over the same micro-batches, each weighted by its share of
the batch, and lets the compiled optimizer apply them. Replicas are played one after another: each
starts a step with the same moving statistics, which are averaged at its end.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import keras
import numpy as np
import tensorflow as tf

if TYPE_CHECKING:
    from collections.abc import Iterator


def cut(count: int, pieces: int) -> Iterator[tuple[int, int]]:
    """Yield begin and end of contiguous pieces whose sizes differ by at most one, large ones first.

    Empty pieces are left out.
    """
    small, larger = divmod(count, pieces)
    begin = 0
    for index in range(pieces):
        end = begin + small + (index < larger)
        if end > begin:
            yield begin, end
        begin = end


def train_step(
    model: Any, x: Any, y: Any, sample_weight: Any, replicas: int, micro_batches: int
) -> tuple[float, list[Any], list[Any]]:
    """Train one step by gradient accumulation.

    Args:
        model: compiled Keras model.
        x: inputs, leaves of shape (samples, …).
        y: targets in the structure the loss expects.
        sample_weight: (samples,) or None.
        replicas: contiguous shares of the batch.
        micro_batches: pieces of a share.

    Returns:
        Loss of the batch; gradients in the order of ``model.trainable_variables``, before clipping;
        flat outputs for the whole batch, in training mode.
    """
    samples = len(tf.nest.flatten(x)[0])
    variables = model.trainable_variables
    gradients = [tf.zeros(variable.shape, variable.dtype) for variable in variables]
    loss = 0.0
    outputs: list[list[Any]] = []
    statistics = [variable.numpy() for variable in model.non_trainable_variables]
    reached = []
    for first, last in cut(samples, replicas):
        for variable, value in zip(model.non_trainable_variables, statistics, strict=True):
            variable.assign(value)
        for begin, end in cut(last - first, micro_batches):
            part = slice(first + begin, first + end)
            share = (end - begin) / samples
            targets = tf.nest.map_structure(lambda a, part=part: tf.constant(a[part]), y)
            inputs = tf.nest.map_structure(lambda a, part=part: tf.constant(a[part]), x)
            weights = None if sample_weight is None else tf.constant(sample_weight[part])
            with tf.GradientTape() as tape:
                predicted = model(inputs, training=True)
                value = share * model.compute_loss(inputs, targets, predicted, weights)
            parts = tape.gradient(
                value, variables, unconnected_gradients=tf.UnconnectedGradients.ZERO
            )
            gradients = [
                total + tf.convert_to_tensor(one)
                for total, one in zip(gradients, parts, strict=True)
            ]
            loss += float(value)
            outputs.append([tensor.numpy() for tensor in tf.nest.flatten(predicted)])
        reached.append([variable.numpy() for variable in model.non_trainable_variables])
    for variable, values in zip(
        model.non_trainable_variables, zip(*reached, strict=True), strict=True
    ):
        if np.issubdtype(values[0].dtype, np.floating):
            variable.assign(np.mean(values, axis=0))
    model.optimizer.apply(gradients, variables)
    return (
        loss,
        [gradient.numpy() for gradient in gradients],
        [np.concatenate(pieces) for pieces in zip(*outputs, strict=True)],
    )


def train(
    model: Any,
    batches: list[tuple[Any, Any, Any]],
    replicas: int,
    micro_batches: int,
) -> dict[str, Any]:
    """Train a few steps and report everything that a split training is compared with.

    Args:
        model: compiled Keras model; changed.
        batches: inputs, targets and sample weights of every step.
        replicas: contiguous shares of a batch.
        micro_batches: pieces of a share.

    Returns:
        "losses" (one per step); "outputs" by output name: of the first step in training mode, and
        with prefix "after/" of the first batch in inference mode at the end; "gradients" of the
        first step by variable path; "weights" by variable path at the end, and the optimizer's
        moving averages with prefix "average/".
    """
    names = list(model.output_names)
    losses, gradients, outputs = [], {}, {}
    for number, (x, y, sample_weight) in enumerate(batches):
        loss, parts, predicted = train_step(model, x, y, sample_weight, replicas, micro_batches)
        losses.append(loss)
        if number == 0:
            paths = [variable.path for variable in model.trainable_variables]
            gradients = dict(zip(paths, parts, strict=True))
            outputs = dict(zip(names, predicted, strict=True))
    after = tf.nest.flatten(model(batches[0][0], training=False))
    outputs |= {f"after/{name}": tensor.numpy() for name, tensor in zip(names, after, strict=True)}
    weights = {variable.path: variable.numpy() for variable in model.variables}
    if model.optimizer.use_ema:
        averages = model.optimizer._model_variables_moving_average
        weights |= {
            f"average/{variable.path}": keras.ops.convert_to_numpy(average)
            for variable, average in zip(model.trainable_variables, averages, strict=True)
        }
    return {"losses": losses, "outputs": outputs, "gradients": gradients, "weights": weights}
