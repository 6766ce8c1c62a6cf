"""A hash of everything about a Keras model that must agree between ranks.

Names are left out: Keras numbers them through a process, and ranks may have built other models.
"""

from __future__ import annotations

import hashlib
import json
from typing import TYPE_CHECKING, Any

import keras

from hpcomm.tensorflow.slots import layers_of_optimizer

if TYPE_CHECKING:
    from hpcomm.layer_graph import LayerGraph

__all__ = ["fingerprint"]

_NAMES = frozenset({"name", "registered_name", "build_config", "input_layers", "output_layers"})


def fingerprint(graph: LayerGraph) -> str:
    """Return the hash.

    Args:
        graph: extracted from the model.
    """
    digest = hashlib.sha256()
    for call, native in zip(graph.calls, graph.native.calls, strict=True):
        shapes = [(graph.tensors[t].shape, graph.tensors[t].dtype) for t in call.outputs]
        weights = [
            (v.shape, v.dtype, v.trainable) for v in (graph.variables[i] for i in call.variables)
        ]
        parts = (call.kind, call.layer, call.inputs, call.variables, shapes, weights)
        digest.update(repr(parts).encode())
        digest.update(_configuration(native.operation).encode())
    digest.update(repr(graph.outputs).encode())
    inputs = [(graph.tensors[t].shape, graph.tensors[t].dtype) for t in graph.inputs.values()]
    digest.update(repr(inputs).encode())
    model = graph.native.model
    if getattr(model, "compiled", False):
        if model.optimizer is not None:
            for _, part in layers_of_optimizer(model.optimizer):
                digest.update(_configuration(part).encode())
        compiled = model._compile_loss
        if compiled is not None:
            losses = keras.tree.flatten(compiled._user_loss)
            digest.update(repr([_loss(loss) for loss in losses]).encode())
            digest.update(repr(compiled._user_loss_weights).encode())
    return digest.hexdigest()


def _configuration(item: Any) -> str:
    """Return an object's configuration as text, without names; its class if it has none."""
    try:
        config = {k: v for k, v in item.get_config().items() if not _is_current(k, v)}
    except Exception:
        return type(item).__qualname__
    return type(item).__qualname__ + json.dumps(_nameless(config), sort_keys=True, default=_short)


def _is_current(name: str, value: Any) -> bool:
    """Tell whether a setting may change in training: rank 0's counts then."""
    return name == "inner_optimizer" or (name == "learning_rate" and isinstance(value, float))


def _loss(loss: Any) -> str:
    if loss is None or isinstance(loss, str):
        return str(loss)
    return _configuration(loss) if hasattr(loss, "get_config") else _short(loss)


def _nameless(value: Any) -> Any:
    if isinstance(value, dict):
        return {str(k): _nameless(v) for k, v in value.items() if k not in _NAMES}
    if isinstance(value, (list, tuple)):
        return [_nameless(item) for item in value]
    return value


def _short(value: Any) -> str:
    """Stand for something that JSON cannot hold, without an address in memory."""
    name = getattr(value, "__qualname__", None) or type(value).__qualname__
    return f"<{name}>"
