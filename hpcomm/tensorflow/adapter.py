"""Keras on TensorFlow for the engine; see `hpcomm.hyparflow.adapter`."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any

import keras

from hpcomm.errors import ModelError
from hpcomm.tensorflow import user_model
from hpcomm.tensorflow.costs import estimate_seconds, measure_seconds
from hpcomm.tensorflow.deferred import build_deferred, initialize, is_initialized
from hpcomm.tensorflow.fingerprint import fingerprint
from hpcomm.tensorflow.graph import extract_graph
from hpcomm.tensorflow.loss import refuse_in_pieces
from hpcomm.tensorflow.notices import find_notices
from hpcomm.tensorflow.refusals import refuse
from hpcomm.tensorflow.runner import KerasRunner
from hpcomm.tensorflow.slots import layers_of_optimizer, layout

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import numpy as np

    from hpcomm.hyparflow.adapter import StageSpec
    from hpcomm.layer_graph import LayerGraph

__all__ = ["KerasAdapter"]


class KerasAdapter:
    """Keras 3 on TensorFlow."""

    def open(self, model_or_function: Any, random_state: Any) -> Any:
        """Return the model; a function is run without giving memory to weights."""
        if isinstance(model_or_function, keras.Model):
            return model_or_function
        model, pending = build_deferred(model_or_function, random_state)
        if not isinstance(model, keras.Model):
            kind = type(model)
            raise ModelError(
                f"the model function returned {kind.__module__}.{kind.__qualname__}; it must "
                "return a compiled Keras model"
            )
        # What belongs to no layer, such as the loss tracker, is small and wanted everywhere.
        weights = {id(v) for v in model.variables}
        initialize(v for v in pending if id(v) not in weights)
        return model

    def extract(self, model: Any) -> LayerGraph:
        """Return the layer graph with its fingerprint."""
        graph = extract_graph(model)
        graph.fingerprint = fingerprint(graph)
        return graph

    def needs_memory_later(self, model: Any) -> bool:
        """Whether weights of the model have no values yet."""
        return any(not is_initialized(v) for v in model.variables)

    def random_state(self) -> Any:
        """Return the state of the generator that seeds initializers."""
        return random.getstate()

    def check(self, graph: LayerGraph, *, pieces: int) -> None:
        """Refuse by name what cannot be trained in so many pieces of a batch."""
        for name, tensor in graph.inputs.items():
            extents = graph.tensors[tensor].shape
            if pieces > 1 and extents and extents[0] is not None:
                raise refuse("fixed-batch", f"input {name!r} of shape {extents}")

    def notices(self, graph: LayerGraph, *, pieces: int) -> list[str]:
        """Return what the user should know of differences that are no errors, as sentences."""
        return list(find_notices(graph, pieces))

    def learning_rate(self, model: Any) -> float | None:
        """Return the current learning rate of the user's optimizer; None for a schedule."""
        if not getattr(model, "compiled", False) or model.optimizer is None:
            return None
        rate = layers_of_optimizer(model.optimizer)[-1][1]._learning_rate
        return float(rate.numpy()) if isinstance(rate, keras.Variable) else None

    def check_scalar_loss(self, graph: LayerGraph, *, pieces: int) -> None:
        """Refuse a loss function that needs the whole batch, if batches come in pieces."""
        if pieces > 1:
            raise refuse_in_pieces(graph.native.model, pieces)

    def make_stage(self, graph: LayerGraph, spec: StageSpec, seed: int) -> KerasRunner:
        """Return the runner of a stage; its variables get memory."""
        return KerasRunner(graph, spec, seed)

    def measure(self, graph: LayerGraph, num_samples: int, *, timed: bool) -> list[float]:
        """Return seconds of one forward and backward per call."""
        if timed:
            return measure_seconds(graph, num_samples)
        return estimate_seconds(graph, num_samples)

    def slots_per_weight(self, model: Any) -> int:
        """Return how many numbers the optimizer keeps per weight."""
        if not getattr(model, "compiled", False) or model.optimizer is None:
            return 0
        from hpcomm.tensorflow.optimizer import clone_optimizer

        weight = keras.Variable("zeros", shape=(1, 1), name="weight")
        slots = layout(clone_optimizer(model.optimizer), [weight], ["weight"])
        return sum(slot.owner is not None for slot in slots)

    def read_user(self, graph: LayerGraph, variables: Sequence[int]) -> list[np.ndarray]:
        """Return values from the user's model."""
        return user_model.read(graph, variables)

    def write_user(
        self, graph: LayerGraph, variables: Sequence[int], values: Sequence[np.ndarray]
    ) -> None:
        """Set values in the user's model, giving memory where there is none."""
        user_model.write(graph, variables, values)

    def read_user_optimizer(self, graph: LayerGraph) -> dict[str, np.ndarray]:
        """Return the state of the user's optimizer by key; empty if it has none."""
        return user_model.read_optimizer(graph)

    def write_user_optimizer(self, graph: LayerGraph, values: Mapping[str, np.ndarray]) -> None:
        """Set the state of the user's optimizer, building it if need be."""
        user_model.write_optimizer(graph, values)

    def output_structure(self, graph: LayerGraph) -> Any:
        """Return positions of the outputs in the structure that the model returns."""
        return graph.native.output_structure
