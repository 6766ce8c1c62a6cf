"""Values in the user's whole model and in its optimizer."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from keras.src import backend

from hpcomm.errors import InternalError
from hpcomm.tensorflow.deferred import initialize
from hpcomm.tensorflow.optimizer import clone_optimizer
from hpcomm.tensorflow.slots import Slot, layout

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from hpcomm.layer_graph import LayerGraph

_UNUSED = " (unused)"
"""End of the key of a weight that no call of the model uses."""

__all__ = ["read", "read_optimizer", "write", "write_optimizer"]


def read(graph: LayerGraph, variables: Sequence[int]) -> list[np.ndarray]:
    """Return values of variables by index."""
    return [graph.native.variables[i].value.numpy() for i in variables]


def write(graph: LayerGraph, variables: Sequence[int], values: Sequence[np.ndarray]) -> None:
    """Set variables by index, giving memory to those that have none."""
    initialize([graph.native.variables[i] for i in variables], values)


def read_optimizer(graph: LayerGraph) -> dict[str, np.ndarray]:
    """Return the state of the model's optimizer by key; empty if it has none yet."""
    optimizer = graph.native.model.optimizer
    if optimizer is None or not optimizer.built:
        return {}
    return {slot.key: slot.variable.value.numpy() for slot in _slots(graph)}


def write_optimizer(graph: LayerGraph, values: Mapping[str, np.ndarray]) -> None:
    """Set the state of the model's optimizer, building it if need be."""
    model = graph.native.model
    optimizer = model.optimizer
    if optimizer is None:
        return
    if not optimizer.built:
        with backend.name_scope(optimizer.name, caller=optimizer):
            optimizer.build(model.trainable_variables)
    for slot in _slots(graph):
        if slot.key in values:
            slot.variable.assign(values[slot.key])
        elif not slot.key.endswith(_UNUSED):
            raise InternalError(f"no stage has a value for the optimizer's {slot.key!r}")


def _slots(graph: LayerGraph) -> list[Slot]:
    """Return the keys of the user's optimizer's variables, with these variables."""
    model = graph.native.model
    known = {
        id(v): spec.key for v, spec in zip(graph.native.variables, graph.variables, strict=True)
    }
    weights = model.trainable_variables
    # A weight that no call uses gets no gradient, belongs to no stage, and keeps its slots.
    keys = [known.get(id(v), f"{v.path}{_UNUSED}") for v in weights]
    order = layout(clone_optimizer(model.optimizer), weights, keys)
    variables = model.optimizer.variables
    return [
        Slot(slot.key, slot.owner, variable)
        for slot, variable in zip(order, variables, strict=True)
    ]
