"""One stage of a Keras model on one rank."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import keras
import numpy as np
import tensorflow as tf

from hpcomm.tensorflow.compiled import CompiledPasses
from hpcomm.tensorflow.deferred import initialize
from hpcomm.tensorflow.eager import EagerPasses
from hpcomm.tensorflow.executor import on_best_executor
from hpcomm.tensorflow.gradients import GradientBuffers
from hpcomm.tensorflow.graph import seed_generators
from hpcomm.tensorflow.loss import StageLoss
from hpcomm.tensorflow.optimizer import StageOptimizer
from hpcomm.tensorflow.program import Program
from hpcomm.tensorflow.seeds import SeedTable, step_key
from hpcomm.tensorflow.stage_math import StageMath, Weights
from hpcomm.tensorflow.tensor import aligned_empty, from_array, to_array

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from hpcomm.hyparflow.adapter import MicroBatchWeights, Place, Reach, StageSpec
    from hpcomm.layer_graph import LayerGraph

__all__ = ["KerasStage"]


class KerasStage:
    """See `hpcomm.hyparflow.adapter.StageRunner`.

    Args:
        graph: the whole model.
        spec: this rank's part.
        seed: of all randomness.

    Attributes:
        variables: trainable Keras variables of the stage, by ascending index in the graph.
        optimizer: None where the model was compiled without one, or not compiled.
    """

    def __init__(self, graph: LayerGraph, spec: StageSpec, seed: int) -> None:
        self.graph = graph
        self.spec = spec
        self.seed = seed
        model = graph.native.model
        self._eager = bool(model.run_eagerly)
        own = [graph.native.variables[i] for i in spec.variables]
        initialize(own)
        self._trainable = [i for i in spec.variables if graph.variables[i].trainable]
        self.variables = [graph.native.variables[i] for i in self._trainable]
        owned = set(spec.owned)
        group_of = {v: group for group, members in spec.groups.items() for v in members}
        self.buffers = GradientBuffers(
            self.variables,
            [group_of.get(i) for i in self._trainable],
            [i in owned and spec.replica == 0 for i in self._trainable],
        )
        self.optimizer: StageOptimizer | None = None
        if getattr(model, "compiled", False) and model.optimizer is not None:
            self.optimizer = StageOptimizer(
                model.optimizer,
                self.variables,
                [graph.variables[i].key for i in self._trainable],
                [i in owned for i in self._trainable],
            )
        self._loss = StageLoss(model) if spec.is_last and model.compiled else None
        self.loss_reduction = self._loss.reduction if self._loss else None
        self._math = self._make_math()
        self._passes = self._make_passes()
        self._live_errors = [True] * len(spec.errors)
        self._live_variables = [True] * len(self.variables)
        self._scale = tf.ones([], keras.backend.floatx())
        self._begin = self._wrap(self.buffers.begin)
        self._regularization = self._wrap(self.buffers.regularization)
        self._numbers: dict[float, Any] = {}

    @property
    def loss_is_scalar(self) -> bool:
        """Whether the loss needs the whole batch; known after `trace`, eagerly a step later."""
        return self._loss is not None and self._loss.is_scalar

    @property
    def changed_state(self) -> list[int]:
        """Indices of floating variables that layers changed in training so far, ascending."""
        changed = self._math.program.changed
        native = self.graph.native.variables
        return [
            i
            for i in self.spec.variables
            if id(native[i]) in changed
            and not self.graph.variables[i].trainable
            and keras.backend.is_float_dtype(native[i]._dtype)
        ]

    @property
    def counting_layers(self) -> list[str]:
        """Names of layers other than batch normalization that change state whenever they run."""
        changed, found = self._math.program.changed, {}
        for call in self.graph.calls[self.spec.start : self.spec.stop]:
            layer = self.graph.native.calls[call.index].operation
            own = {id(self.graph.native.variables[i]) for i in call.variables}
            own -= {id(generator.state) for generator in seed_generators(layer)}
            for member in layer._flatten_layers() if isinstance(layer, keras.Layer) else ():
                if isinstance(member, keras.layers.BatchNormalization):
                    own -= {id(variable) for variable in member.variables}
            if own & changed.keys():
                found[call.layer] = call.name
        return list(found.values())

    # Tensors.

    def feed(self, tensor: int, array: Any) -> Any:
        """Return a tensor for rows of a model input."""
        return tf.convert_to_tensor(array, dtype=self.graph.tensors[tensor].dtype)

    def buffer(self, shape: tuple[int, ...], dtype: str) -> np.ndarray:
        """Return memory to receive into."""
        return aligned_empty(shape, dtype)

    def received(self, array: np.ndarray) -> Any:
        """Return a tensor over a received array, which it keeps."""
        return from_array(array)

    def to_array(self, tensor: Any) -> np.ndarray:
        """Return a view of a tensor."""
        return to_array(tensor)

    def add(self, tensors: Sequence[Any]) -> Any:
        """Return the sum of tensors of one shape."""
        return tensors[0] if len(tensors) == 1 else tf.add_n(list(tensors))

    def convert(self, structure: Any) -> Any:
        """Return targets or sample weights as tensors, in their structure."""
        return keras.tree.map_structure(
            lambda leaf: None if leaf is None else tf.convert_to_tensor(leaf), structure
        )

    # Passes.

    def trace(self, targets: Any, sample_weight: Any) -> Reach:
        """Prepare for training; see the protocol."""
        return self._passes.trace(targets, sample_weight)

    def go_live(self, errors: Sequence[bool], variables: Sequence[bool]) -> None:
        """Take note of which errors arrive, and which variables get gradients at all."""
        regularized = self.buffers.has_regularizers()
        self._live_errors = list(errors)
        self._live_variables = [a or b for a, b in zip(variables, regularized, strict=True)]

    def begin_step(self, *, training: bool) -> float:
        """Start a step; return the regularization loss that this rank accounts for."""
        if not training:
            return float(self._regularization())
        if self.optimizer is not None:
            self._scale = self.optimizer.gradient_scale()
        return float(self._begin(self._number(0.0), self._scale))

    def forward(self, inputs: Sequence[Any], place: Place) -> tuple[list[Any], float, Any]:
        """Return outputs, the sum of losses that layers added, and state for `backward`."""
        outputs, added, state = self._passes.forward(inputs, *self._random(place))
        # An output without errors gets zeros, which need its shape.
        silent = [
            None if live else outputs[position]
            for position, live in zip(self._math.errors, self._live_errors, strict=True)
        ]
        return outputs, 0.0 if added is None else float(added), (state, silent)

    def backward(self, state: Any, errors: Sequence[Any], weights: MicroBatchWeights) -> list[Any]:
        """Add weight gradients; return the errors of the sources, None where there is none."""
        state, silent = state
        filled = [
            tf.zeros_like(output) if error is None else error
            for error, output in zip(errors, silent, strict=True)
        ]
        seed = self._number(weights.added) * self._scale
        return self._passes.backward(state, filled, seed)

    def forward_backward(
        self,
        inputs: Sequence[Any],
        place: Place,
        targets: Any,
        sample_weight: Any,
        weights: MicroBatchWeights,
    ) -> tuple[float, list[Any], list[Any]]:
        """Do both on the last stage; return weighted loss, outputs, errors of the sources."""
        total, outputs, errors = self._passes.forward_backward(
            inputs, *self._random(place), targets, sample_weight, self._weights(weights)
        )
        return float(total), outputs, errors

    def infer(
        self,
        inputs: Sequence[Any],
        place: Place,
        targets: Any,
        sample_weight: Any,
        weights: MicroBatchWeights | None,
    ) -> tuple[float, list[Any]]:
        """Run in inference mode; return weighted loss (0 without weights) and outputs."""
        given = None if weights is None else self._weights(weights)
        total, outputs = self._passes.infer(
            inputs, *self._random(place), targets, sample_weight, given
        )
        return 0.0 if total is None else float(total), outputs

    # Construction.

    def _wrap(self, function: Callable[..., Any]) -> Callable[..., Any]:
        if self._eager:
            return function
        compiled = tf.function(function, autograph=False)
        chosen: Callable[..., Any] | None = None

        def run(*arguments: Any) -> Any:
            nonlocal chosen
            if chosen is None:  # the arguments are alike in every step
                chosen = on_best_executor(compiled, compiled.get_concrete_function(*arguments))
            return chosen(*arguments)

        return run

    def _make_math(self) -> StageMath:
        spec, graph = self.spec, self.graph
        position = {tensor: i for i, tensor in enumerate(spec.outputs)}
        structure = None
        if spec.is_last:
            outputs = [position[tensor] for tensor in graph.outputs]
            structure = keras.tree.map_structure(
                lambda i: outputs[i], graph.native.output_structure
            )
        return StageMath(
            program=Program(graph, spec.start, spec.stop, spec.inputs, spec.outputs),
            table=SeedTable([call.operation for call in graph.native.calls]),
            loss=self._loss,
            structure=structure,
            sources=tuple(spec.inputs.index(tensor) for tensor in spec.sources),
            errors=tuple(position[tensor] for tensor in spec.errors),
            variables=self.variables,
            accumulators=self.buffers.accumulators,
        )

    def _make_passes(self) -> CompiledPasses | EagerPasses:
        if self._eager:
            return EagerPasses(self._math)
        tensors = self.graph.tensors
        return CompiledPasses(
            self._math,
            [tf.TensorSpec(tensors[t].shape, tensors[t].dtype) for t in self.spec.inputs],
            [tf.TensorSpec(tensors[t].shape, tensors[t].dtype) for t in self.spec.errors],
        )

    def _random(self, place: Place) -> tuple[Any, Any]:
        key = step_key(self.seed, place.step, training=place.training)
        return tf.constant(key, tf.int64), tf.constant(place.first_sample, tf.int64)

    def _weights(self, weights: MicroBatchWeights) -> Weights:
        return Weights(self._number(weights.loss), self._number(weights.added), self._scale)

    def _number(self, value: float) -> Any:
        if value not in self._numbers:
            if len(self._numbers) > 64:
                self._numbers.clear()
            self._numbers[value] = tf.constant(value, keras.backend.floatx())
        return self._numbers[value]
