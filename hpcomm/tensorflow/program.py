"""Run a contiguous piece of a model's calls, eagerly or while a graph is traced."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any, NamedTuple

import keras
from keras.src import backend

from hpcomm.errors import InternalError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from hpcomm.layer_graph import LayerGraph
    from hpcomm.tensorflow.seeds import RandomContext

__all__ = ["Program", "Run"]


class Run(NamedTuple):
    """What a run gives.

    Attributes:
        outputs: tensors in the order of ``Program.outputs``.
        losses: scalars that layers added (``add_loss``, activity regularizers), in call order.
    """

    outputs: list[Any]
    losses: list[Any]


class Program:
    """The calls of one stage.

    Args:
        graph: the whole model.
        start: first call.
        stop: one past the last call.
        inputs: indices of the tensors that are given.
        outputs: indices of the tensors that are wanted; some may be inputs that pass through.

    Attributes:
        changed: Keras variables, by id, that layers assigned to in training mode so far: moving
            statistics and the like.
    """

    def __init__(
        self,
        graph: LayerGraph,
        start: int,
        stop: int,
        inputs: Sequence[int],
        outputs: Sequence[int],
    ) -> None:
        self.graph = graph
        self.inputs = tuple(inputs)
        self.outputs = tuple(outputs)
        self.changed: dict[int, Any] = {}
        self._calls = range(start, stop)
        self._owner_of_mask = {t.mask: t.index for t in graph.tensors if t.mask is not None}

    def run(self, inputs: Sequence[Any], random: RandomContext, *, training: bool) -> Run:
        """Run the calls.

        Args:
            inputs: tensors in the order of ``self.inputs``.
            random: where random layers draw from.
            training: mode of the layers.

        Returns:
            Outputs and losses.
        """
        values = dict(zip(self.inputs, inputs, strict=True))
        self._attach_masks(values)
        losses: list[Any] = []
        with random.active(), self._noting_assignments(training):
            for index in self._calls:
                random.call = index
                self._run_call(index, values, losses, training)
        return Run([self._find(index, values) for index in self.outputs], losses)

    @contextlib.contextmanager
    def _noting_assignments(self, training: bool) -> Iterator[None]:
        original = backend.Variable._direct_assign

        def assign(variable: Any, value: Any) -> None:
            if training:
                self.changed[id(variable)] = variable
            original(variable, value)

        backend.Variable._direct_assign = assign
        try:
            yield
        finally:
            backend.Variable._direct_assign = original

    def _attach_masks(self, values: dict[int, Any]) -> None:
        for index in self.inputs:
            mask = self.graph.tensors[index].mask
            if mask in values:
                backend.set_keras_mask(values[index], values[mask])

    def _run_call(
        self, index: int, values: dict[int, Any], losses: list[Any], training: bool
    ) -> None:
        native = self.graph.native.calls[index]
        args, kwargs = native.bind(values)
        layer = native.operation if isinstance(native.operation, keras.Layer) else None
        if layer is not None:
            kwargs["training"] = training
        made = keras.tree.flatten(native.operation(*args, **kwargs))
        for tensor, value in zip(self.graph.calls[index].outputs, made, strict=True):
            values[tensor] = value
        if layer is not None:
            for member in layer._flatten_layers():
                losses.extend(member._get_own_losses())
            # Otherwise the layer would hold on to tensors of a graph that is gone.
            layer._clear_losses()

    def _find(self, index: int, values: dict[int, Any]) -> Any:
        if index in values:
            return values[index]
        mask = backend.get_keras_mask(values[self._owner_of_mask[index]])
        if mask is None:
            raise InternalError(
                f"tensor {self.graph.tensors[index].name!r}: the symbolic model has this mask, but "
                "the layer did not make it when it ran"
            )
        return mask
