"""From a Keras model to the neutral layer graph.

Nested functional and Sequential models are flattened, so that a pipeline may cut inside them; a
layer used several times becomes several calls. Calls stand in the order in which Keras runs them,
which for layers used once is that of ``model.layers``.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import keras
from keras.src import backend
from keras.src.models.functional import Functional
from keras.src.ops.node import Node

from hpcomm.errors import ModelError
from hpcomm.layer_graph import MODEL_INPUT, Call, LayerGraph, Tensor, Variable
from hpcomm.tensorflow.refusals import refuse_subclassed

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

__all__ = ["NativeCall", "NativeGraph", "extract_graph"]


@dataclass(frozen=True, slots=True)
class NativeCall:
    """What is needed to run one call.

    Attributes:
        operation: the layer, or a bare Keras operation.
        node: the recorded call, whose arguments are a template.
        arguments: tensor index of every symbolic tensor in the template, by its id.
    """

    operation: Any
    node: Node
    arguments: dict[int, int]

    def bind(self, values: dict[int, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Return positional and keyword arguments with tensors filled in.

        Args:
            values: tensors by index.
        """
        filled = {symbol: values[index] for symbol, index in self.arguments.items()}
        args, kwargs = self.node.arguments.fill_in(filled)
        return tuple(args), dict(kwargs)


@dataclass(frozen=True, slots=True)
class NativeGraph:
    """The Keras side of a `LayerGraph`.

    Attributes:
        model: the user's model.
        calls: by call index.
        variables: Keras variables by variable index.
        output_structure: nested structure of output positions, as ``model(x)`` returns it.
    """

    model: Any
    calls: list[NativeCall]
    variables: list[Any]
    output_structure: Any


def extract_graph(model: Any) -> LayerGraph:
    """Return the layer graph of a functional or Sequential model.

    Args:
        model: built; compiled or not.

    Returns:
        The graph; ``native`` is a `NativeGraph`.

    Raises:
        ModelError: the model has no graph (subclassed, or not built), or no layer.
    """
    function = as_functional(model)
    if function is None:
        refuse_subclassed(model)
        raise ModelError(
            f"the model {model.name!r} ({type(model).__name__}) has no graph of layers: it is not "
            "built; start it with keras.Input(shape)"
        )
    walk = _Walk(model)
    walk.add_inputs(function)
    walk.run(function, walk.symbols)
    if not walk.calls:
        raise ModelError(f"the model {model.name!r} has no layer besides its inputs")
    walk.add_masks()
    outputs = tuple(walk.symbols[id(kt)] for kt in function.outputs)
    positions = list(range(len(outputs)))
    structure = keras.tree.pack_sequence_as(function._outputs_struct, positions)
    if isinstance(structure, list) and len(structure) == 1:
        structure = structure[0]
    native = NativeGraph(model, walk.native, walk.variables, structure)
    return LayerGraph(
        model.name, walk.calls, walk.tensors, walk.specs, walk.inputs, outputs, native=native
    )


def as_functional(model: Any) -> Any:
    """Return the object that holds a model's nodes, or None if it has none."""
    if isinstance(model, keras.Sequential):
        return model._functional if type(model).call is keras.Sequential.call else None
    if isinstance(model, Functional) and type(model).call is Functional.call:
        return model
    return None


class _Walk:
    """One pass over the nodes of a model and of the models inside it."""

    def __init__(self, model: Any) -> None:
        self.calls: list[Call] = []
        self.native: list[NativeCall] = []
        self.tensors: list[Tensor] = []
        self.inputs: dict[str, int] = {}
        self.specs: list[Variable] = []
        self.variables: list[Any] = []
        self.symbols: dict[int, int] = {}
        self._symbol_of: dict[int, Any] = {}
        self._trainable = {id(v) for v in model.trainable_variables}
        self._variable_index: dict[int, int] = {}
        self._layer_index: dict[int, int] = {}
        self._uses: dict[str, int] = {}
        self._keys: dict[str, int] = {}

    def add_inputs(self, function: Any) -> None:
        for symbol in function.inputs:
            name = symbol._keras_history.operation.name
            self.inputs[name] = self._add_tensor(symbol, name, MODEL_INPUT)
            self.symbols[id(symbol)] = self.inputs[name]

    def run(self, function: Any, scope: dict[int, int]) -> None:
        """Add the calls of one functional model; ``scope`` maps symbols to tensors."""
        for node in nodes_in_order(function):
            symbols = node.arguments.keras_tensors
            if any(id(symbol) not in scope for symbol in symbols):
                continue  # Keras skips what cannot be computed, too.
            inner = self._as_inner(node, scope)
            if inner is not None:
                made = self._run_inner(inner, node, scope)
            else:
                made = self._add_call(node, scope)
            for symbol, index in zip(node.outputs, made, strict=True):
                scope[id(symbol)] = index

    def add_masks(self) -> None:
        """Give every tensor that carries a Keras mask a mask tensor made by the same call."""
        for index in range(len(self.tensors)):
            tensor = self.tensors[index]
            mask = backend.get_keras_mask(self._symbol_of[index])
            if mask is None or tensor.producer == MODEL_INPUT:
                continue
            entry = Tensor(
                len(self.tensors),
                f"{tensor.name}/mask",
                tuple(mask.shape),
                str(mask.dtype),
                tensor.producer,
            )
            self.tensors.append(entry)
            self.tensors[index] = Tensor(
                index, tensor.name, tensor.shape, tensor.dtype, tensor.producer, entry.index
            )

    def _as_inner(self, node: Node, scope: dict[int, int]) -> Any:
        """Return the graph of a nested model if its layers can stand for the call, else None."""
        operation = node.operation
        inner = as_functional(operation)
        if inner is None or operation._remat_mode or operation.activity_regularizer is not None:
            return None
        if any(name != "training" for name, value in node.arguments.kwargs.items() if value):
            return None
        if len(node.arguments.args) != 1:
            return None
        given = keras.tree.flatten(node.arguments.args[0])
        if len(given) != len(inner.inputs) or any(id(symbol) not in scope for symbol in given):
            return None
        fits = all(
            symbol.dtype == expected.dtype and len(symbol.shape) == len(expected.shape)
            for symbol, expected in zip(given, inner.inputs, strict=True)
        )
        return inner if fits else None

    def _run_inner(self, inner: Any, node: Node, scope: dict[int, int]) -> list[int]:
        given = keras.tree.flatten(node.arguments.args[0])
        inside = {
            id(symbol): scope[id(outer)] for symbol, outer in zip(inner.inputs, given, strict=True)
        }
        self.run(inner, inside)
        return [inside[id(symbol)] for symbol in inner.outputs]

    def _add_call(self, node: Node, scope: dict[int, int]) -> list[int]:
        operation, index = node.operation, len(self.calls)
        symbols = node.arguments.keras_tensors
        arguments = {id(symbol): scope[id(symbol)] for symbol in symbols}
        name = self._unique_name(operation.name)
        made = [
            self._add_tensor(symbol, name if i == 0 else f"{name}:{i}", index)
            for i, symbol in enumerate(node.outputs)
        ]
        variables = self._add_variables(operation)
        self.calls.append(
            Call(
                index,
                name,
                self._layer_index.setdefault(id(operation), len(self._layer_index)),
                type(operation).__name__,
                tuple(dict.fromkeys(arguments.values())),
                tuple(made),
                tuple(variables),
                any(True for _ in state_variables(operation)),
            )
        )
        self.native.append(NativeCall(operation, node, arguments))
        return made

    def _add_tensor(self, symbol: Any, name: str, producer: int) -> int:
        index = len(self.tensors)
        dtype = backend.standardize_dtype(symbol.dtype)
        self.tensors.append(Tensor(index, name, tuple(symbol.shape), dtype, producer))
        self._symbol_of[index] = symbol
        return index

    def _add_variables(self, operation: Any) -> Sequence[int]:
        if not isinstance(operation, keras.Layer):
            return ()
        seeds = {id(generator.state) for generator in seed_generators(operation)}
        result = []
        for variable in operation.variables:
            index = self._variable_index.get(id(variable))
            if index is None:
                index = len(self.variables)
                self._variable_index[id(variable)] = index
                self.variables.append(variable)
                self.specs.append(
                    Variable(
                        index,
                        self._unique_key(operation, variable),
                        tuple(variable.shape),
                        backend.standardize_dtype(variable._dtype),
                        id(variable) in self._trainable,
                        id(variable) in seeds,
                        variable.path,
                    )
                )
            result.append(index)
        return result

    def _unique_name(self, name: str) -> str:
        self._uses[name] = self._uses.get(name, 0) + 1
        return name if self._uses[name] == 1 else f"{name}#{self._uses[name]}"

    def _unique_key(self, layer: Any, variable: Any) -> str:
        number = self._layer_index.setdefault(id(layer), len(self._layer_index))
        inside = variable.path.removeprefix(f"{layer.path}/")
        # Keras numbers unnamed parts through the whole process.
        inside = "/".join(re.sub(r"_\d+$", "", part) for part in inside.split("/"))
        key = f"{number}.{type(layer).__name__}/{inside}"
        self._keys[key] = self._keys.get(key, 0) + 1
        return key if self._keys[key] == 1 else f"{key}#{self._keys[key]}"


def nodes_in_order(function: Any) -> Iterator[Node]:
    """Yield the nodes of a functional model as Keras runs them, inputs left out."""
    by_depth = function._nodes_by_depth
    for depth in sorted(by_depth, reverse=True):
        for node in by_depth[depth]:
            if node.operation and not node.is_input:
                yield node


def seed_generators(layer: Any) -> Iterator[Any]:
    """Yield the random number generators of a layer and its sub-layers."""
    if isinstance(layer, keras.Layer):
        for member in layer._flatten_layers():
            yield from member._seed_generators


def state_variables(layer: Any) -> Iterator[Any]:
    """Yield what a layer and its sub-layers hold beside weights: moving statistics and the like."""
    if isinstance(layer, keras.Layer):
        for member in layer._flatten_layers():
            yield from member._non_trainable_variables
