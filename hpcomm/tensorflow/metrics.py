"""The loss, the metrics and the losses per output that a Keras model was compiled with."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import keras
import numpy as np
import tensorflow as tf

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

__all__ = ["KerasMetrics", "plain_values"]


class KerasMetrics:
    """Updates the model's own metric objects with whole batches, on the rank that keeps them.

    The metrics see what they see in one process: the outputs of all samples of a global batch in
    their order, once per batch. So metrics whose value is no mean over samples are right too.
    """

    def __init__(self, model: Any) -> None:
        """Look at a compiled model."""
        self._model = model
        self._loss = model._compile_loss
        self._metrics = model._compile_metrics
        several = len(keras.tree.flatten(model.outputs)) > 1 or keras.tree.is_nested(model.loss)
        self._tracks_outputs = self._loss is not None and several
        self._pending: Sequence[Any] | None = None
        self._functions: dict[Any, Any] = {}

    @property
    def needs_predictions(self) -> bool:
        """Whether the outputs must be gathered."""
        return self._metrics is not None or self._tracks_outputs

    def reset(self) -> None:
        """Forget all samples."""
        self._model.reset_metrics()

    def update(
        self,
        targets: Any,
        predictions: Any,
        sample_weight: Any,
        masks: Mapping[int, Any],
        *,
        loss: float,
        samples: int,
    ) -> None:
        """Take in one global batch.

        Args:
            targets: structure of arrays, or None.
            predictions: structure of arrays as the model returns it; None where not needed.
            sample_weight: None, an array, or a structure like ``targets``.
            masks: position among the flattened outputs → mask of that output.
            loss: of the batch.
            samples: in the batch.
        """
        if predictions is not None:
            count = len(keras.tree.flatten(predictions))
            flat_masks = [masks.get(i) for i in range(count)]
        else:
            flat_masks = []
        arguments = (
            _tensors(targets),
            _tensors(predictions),
            _tensors(sample_weight),
            _tensors(flat_masks),
            tf.constant(loss, keras.config.floatx()),
            tf.constant(samples),
        )
        if self._pending is not None:
            pending, self._pending = self._pending, None
            self._step(*arguments)  # lets the metrics make their variables
            for variable, value in zip(self._variables(), pending, strict=True):
                variable.assign(value)
        if self._model.run_eagerly:
            self._step(*arguments)
        else:
            self._run_compiled(arguments)

    def _run_compiled(self, arguments: Any) -> None:
        """Run `_step` as a graph that knows no batch size, which is what Keras's graphs know.

        Losses per output would else be weighted by batch sizes that happen to be known.
        """
        leaves = keras.tree.flatten(arguments)
        specs = tuple(None if leaf is None else _without_batch(leaf) for leaf in leaves)
        template = keras.tree.map_structure(lambda _: 0, arguments)
        function = self._functions.get((repr(template), specs))
        if function is None:

            def step(*tensors: Any) -> None:
                rest = iter(tensors)
                packed = [None if spec is None else next(rest) for spec in specs]
                self._step(*keras.tree.pack_sequence_as(template, packed))

            signature = [spec for spec in specs if spec is not None]
            function = tf.function(step, input_signature=signature, autograph=False)
            self._functions[repr(template), specs] = function
        function(*(leaf for leaf in leaves if leaf is not None))

    def _step(
        self,
        targets: Any,
        predictions: Any,
        sample_weight: Any,
        masks: Any,
        loss: Any,
        samples: Any,
    ) -> None:
        self._model._loss_tracker.update_state(loss, sample_weight=samples)
        if predictions is None:
            return
        for output, mask in zip(keras.tree.flatten(predictions), masks, strict=True):
            if mask is not None:
                output._keras_mask = mask
        if self._tracks_outputs:
            self._loss(targets, predictions, sample_weight)
        if self._metrics is not None:
            self._metrics.update_state(targets, predictions, sample_weight)

    def results(self) -> dict[str, Any]:
        """Return name → value in the order of Keras's logs, which is that of the names."""
        return dict(sorted(plain_values(self._model.get_metrics_result()).items()))

    def in_order(self, values: dict[str, Any]) -> Any:
        """Return the values as Model.evaluate does: the loss, or a list with the metrics."""
        return self._model._flatten_metrics_in_order(values)

    def state(self) -> list[Any]:
        """Return the values of all metric variables."""
        return [np.asarray(variable) for variable in self._variables()]

    def restore(self, state: Sequence[Any]) -> None:
        """Go on where `state` was taken, with the next `update`."""
        self._pending = list(state)

    def _variables(self) -> list[Any]:
        found = [variable for metric in self._model.metrics for variable in metric.variables]
        return list({id(variable): variable for variable in found}.values())


def plain_values(logs: Any) -> dict[str, Any]:
    """Return values as floats where they are numbers, else as NumPy arrays; nested names are flat.

    Args:
        logs: name → tensor, number or dict of such.

    Returns:
        Name → value.
    """
    plain: dict[str, Any] = {}
    for name, value in (logs or {}).items():
        if isinstance(value, dict):
            plain.update(plain_values(value))
            continue
        try:
            plain[name] = float(value)
        except (TypeError, ValueError):
            plain[name] = np.asarray(value)
    return plain


def _without_batch(tensor: Any) -> Any:
    shape = [None, *tensor.shape[1:]] if tensor.shape.rank else []
    return tf.TensorSpec(shape, tensor.dtype)


def _tensors(structure: Any) -> Any:
    return keras.tree.map_structure(
        lambda leaf: None if leaf is None else tf.convert_to_tensor(leaf), structure
    )
