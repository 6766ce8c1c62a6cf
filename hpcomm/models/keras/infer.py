"""Read a user's Keras model for what a data set has to offer it."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import keras

from hpcomm.errors import ModelError
from hpcomm.models.task import InputSpec, OutputSpec, Task
from hpcomm.tensorflow.deferred import deferred_initialization

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence


def infer_task_of(function: Callable[[], Any]) -> Task:
    """Return inputs and outputs of the model that a function builds, without memory for weights.

    The function is called once for this; names that Keras gives to layers start anew afterwards, so
    that a second call gives the same model.

    Args:
        function: returns a compiled functional or Sequential model.

    Raises:
        ModelError: see ``infer_task``.
    """
    with deferred_initialization():
        task = infer_task(function())
    keras.utils.clear_session(free_memory=False)
    return task


def infer_task(model: Any) -> Task:
    """Return inputs and outputs of a compiled functional model.

    An output counts as classifying if its loss is sparse categorical crossentropy, or if it has
    one for all. Indices are bounded by the first embedding that reads them.

    Args:
        model: compiled functional or Sequential model.

    Raises:
        ModelError: not such a model, or an input whose shape is open.
    """
    if not isinstance(model, keras.Model) or not getattr(model, "inputs", None):
        raise ModelError(
            f"the model function must return a functional or Sequential Keras model with known "
            f"inputs, got {type(model).__name__}"
        )
    if not model.compiled:
        raise ModelError(
            f"model {model.name!r} is not compiled: call model.compile(optimizer, loss) in the "
            "function that builds it"
        )
    inputs = tuple(_input(model, tensor) for tensor in model.inputs)
    # A Sequential model has no names for its outputs.
    names = getattr(model, "output_names", None) or [model.layers[-1].name]
    outputs = tuple(
        OutputSpec(name, "classes" if "sparse" in loss.lower() else "values", tensor.shape[-1])
        for name, tensor, loss in zip(names, model.outputs, _losses(model, names), strict=True)
    )
    return Task(inputs, outputs)


def _input(model: Any, tensor: Any) -> InputSpec:
    name = tensor._keras_history.operation.name
    shape = tuple(tensor.shape[1:])
    if None in shape:
        raise ModelError(
            f"input {name!r} of model {model.name!r} has the open shape {shape}; "
            "give it a fixed one"
        )
    if not keras.backend.is_int_dtype(tensor.dtype):
        return InputSpec(name, shape, keras.backend.standardize_dtype(tensor.dtype))
    high = min(
        (layer.input_dim for layer in _readers(model, tensor) if hasattr(layer, "input_dim")),
        default=2,
    )
    return InputSpec(name, shape, keras.backend.standardize_dtype(tensor.dtype), high)


def _readers(model: Any, tensor: Any) -> Iterator[Any]:
    for operation in model.operations:
        for node in operation._inbound_nodes:
            if any(source is tensor for source in node.input_tensors):
                yield operation


def _losses(model: Any, names: Sequence[str]) -> list[str]:
    """Return the loss of every output as text."""
    loss = (model.get_compile_config() or {}).get("loss")
    if isinstance(loss, dict) and set(loss) >= set(names):
        return [json.dumps(loss[name], default=str) for name in names]
    if isinstance(loss, (list, tuple)) and len(loss) == len(names):
        return [json.dumps(one, default=str) for one in loss]
    return [json.dumps(loss, default=str)] * len(names)
