"""Cut a traced training function into its forward and its backward part.

One function is traced that computes a stage's outputs and, from errors that arrive later, its
gradients. Its graph is then divided: operations recorded before the gradient belong to the forward
part, the others to the backward part. What the backward part needs of the forward part, the
activations, is handed over inside a few variant tensors (``tf.experimental.Optional``).

A GradientTape around a compiled function does the same division, but hands every intermediate
tensor through Python, more than a thousand of them per micro-batch in a deep network, and keeps
large tensors of which the gradient only wants the shape. Measured on ResNet-110 that costs a third
of the step; this way costs nothing measurable.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import tensorflow as tf

from hpcomm.errors import InternalError
from hpcomm.tensorflow.executor import on_best_executor

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

__all__ = ["Cut", "Joint", "cut"]

_SHAPE_OPS = frozenset({"Shape", "ShapeN", "Size", "Rank"})
"""Gradient operations that only look at the shape of an activation: done in the forward part."""

_CHEAP_OPS = frozenset({"Cast", "Identity", "Reshape", "Squeeze", "ExpandDims"})
"""Done again in the backward part if they depend on weights only, rather than kept."""

_BUNDLE = 64
"""Tensors per variant; shape inference of TensorFlow is quadratic in this number."""


@dataclass(frozen=True)
class Joint:
    """A traced function from early and late inputs to forward and backward results.

    Attributes:
        function: the concrete function.
        num_forward_ops: operations of its graph that were recorded before the gradient.
        early: placeholders of what is known in the forward pass.
        late: placeholders of what is known in the backward pass only.
        outputs: tensors that the forward part returns.
        gradients: tensors that the backward part returns; None where there is no gradient.
    """

    function: Any
    num_forward_ops: int
    early: Sequence[Any]
    late: Sequence[Any]
    outputs: Sequence[Any]
    gradients: Sequence[Any]

    def reach(self, source: Any) -> set[str]:
        """Return the names of all operations that depend on one placeholder.

        Args:
            source: one of ``early`` or ``late``.
        """
        reached = {source.op.name}
        for operation in self.function.graph.get_operations():
            if any(tensor.op.name in reached for tensor in operation.inputs):
                reached.add(operation.name)
        return reached


class Cut(NamedTuple):
    """A divided function.

    Attributes:
        forward: ``forward(*early) → (outputs, state)``, compiled. ``state`` is a list of variant
            tensors; dropping it frees the activations.
        backward: ``backward(state, *late) → gradients``, compiled.
        kept: for every tensor that ``state`` holds, the type of the operation that made it, and
            its shape and dtype.
        functions: what the two graphs call (bodies of loops and branches, Python functions) and
            what therefore must live as long as they do: TensorFlow forgets a body with the graph
            that it was first recorded for.
    """

    forward: Callable[..., Any]
    backward: Callable[..., Any]
    kept: list[tuple[str, Any]]
    functions: list[Any]


def cut(joint: Joint) -> Cut:
    """Divide a traced function.

    Args:
        joint: the function.
    """
    return _Cutter(joint).functions()


class _Cutter:
    def __init__(self, joint: Joint) -> None:
        self._joint = joint
        graph = joint.function.graph
        operations = graph.get_operations()
        self._in_forward = _with_ancestors(operations[: joint.num_forward_ops])
        self._early_ops = [op for op in operations if op.name in self._in_forward]
        self._late_ops = [op for op in operations if op.name not in self._in_forward]
        self._graph_def = graph.as_graph_def()
        count = len(joint.function.inputs) - len(joint.function.captured_inputs)
        self._captures = dict(
            zip(
                (tensor.name for tensor in joint.function.inputs[count:]),
                joint.function.captured_inputs,
                strict=True,
            )
        )
        self._captured_ops = {name.split(":")[0] for name in self._captures}
        self._placeholders = {tensor.op.name for tensor in joint.function.inputs}
        self._late_names = {tensor.op.name for tensor in joint.late}
        self._moved = self._shape_ops_on_activations()
        self._again = self._cheap_again()

    def functions(self) -> Cut:
        joint = self._joint
        backward_ops, kept = self._backward_part()
        forward_names = (self._in_forward | self._moved) - self._placeholders
        forward_def = self._part(forward_names)
        backward_def = self._part(backward_ops)
        early_specs = [tf.TensorSpec(t.shape, t.dtype) for t in joint.early]
        late_specs = [tf.TensorSpec(t.shape, t.dtype) for t in joint.late]
        bundles = _batched(kept, _BUNDLE)
        state_specs = [tf.TensorSpec([], tf.variant) for _ in bundles]

        @tf.function(input_signature=[early_specs], autograph=False)
        def forward(early: Any) -> Any:
            given = dict(zip((t.name for t in joint.early), early, strict=True))
            wanted = [*joint.outputs, *kept]
            found = self._import(forward_def, given, wanted)
            made = found[: len(joint.outputs)]
            activations = iter(found[len(joint.outputs) :])
            state = [
                tf.raw_ops.OptionalFromValue(components=list(itertools.islice(activations, len(b))))
                for b in bundles
            ]
            return made, state

        @tf.function(input_signature=[state_specs, late_specs], autograph=False)
        def backward(state: Any, late: Any) -> Any:
            given = dict(zip((t.name for t in joint.late), late, strict=True))
            for bundle, variant in zip(bundles, state, strict=True):
                values = tf.raw_ops.OptionalGetValue(
                    optional=variant,
                    output_types=[t.dtype for t in bundle],
                    output_shapes=[t.shape for t in bundle],
                )
                given.update(zip((t.name for t in bundle), values, strict=True))
            wanted = [t for t in joint.gradients if t is not None]
            found = iter(self._import(backward_def, given, wanted))
            return [None if t is None else next(found) for t in joint.gradients]

        run_forward, run_backward = (f.get_concrete_function() for f in (forward, backward))
        return Cut(
            on_best_executor(lambda *early: run_forward(list(early)), run_forward),
            on_best_executor(lambda state, *late: run_backward(state, list(late)), run_backward),
            # Nothing may hold on to the graph that was cut: it is as large as both parts.
            [(t.op.type, tf.TensorSpec(t.shape, t.dtype)) for t in kept],
            [
                *getattr(joint.function.graph, "_py_funcs_used_in_graph", ()),
                *joint.function.graph._functions.values(),
            ],
        )

    def _shape_ops_on_activations(self) -> set[str]:
        return {
            op.name
            for op in self._late_ops
            if op.type in _SHAPE_OPS
            and all(
                t.op.name in self._in_forward and t.op.name not in self._late_names
                for t in op.inputs
            )
        }

    def _cheap_again(self) -> set[str]:
        """Return the forward operations that are done again: they depend on weights alone."""
        changed = {
            t.name
            for op in self._early_ops
            if op.type not in ("ReadVariableOp", "Placeholder")
            for t in op.inputs
            if t.dtype == tf.resource
        }
        again: set[str] = set()
        for op in self._early_ops:
            constant = op.type == "Const"
            reads = op.type == "ReadVariableOp" and op.inputs[0].name not in changed
            cheap = op.type in _CHEAP_OPS and all(t.op.name in again for t in op.inputs)
            if constant or reads or cheap:
                again.add(op.name)
        return again

    def _backward_part(self) -> tuple[set[str], list[Any]]:
        """Return the names of the backward operations, and the tensors they need kept."""
        late = {op.name for op in self._late_ops} - self._moved
        targets = [t.op for t in self._joint.gradients if t is not None]
        targets += [op for op in self._late_ops if op.op_def.is_stateful and op.name in late]
        part: set[str] = set()
        kept: dict[str, Any] = {}
        stack = [op for op in targets if op.name in late or op.name in self._again]
        kept.update({t.name: t for t in self._joint.gradients if self._is_kept(t, late)})
        while stack:
            op = stack.pop()
            if op.name in part:
                continue
            part.add(op.name)
            for tensor in op.inputs:
                name = tensor.op.name
                if name in late or name in self._again:
                    stack.append(tensor.op)
                elif name not in self._late_names and name not in self._captured_ops:
                    kept[tensor.name] = tensor
        return part - self._placeholders, list(kept.values())

    def _is_kept(self, tensor: Any, late: set[str]) -> bool:
        if tensor is None:
            return False
        name = tensor.op.name
        return not (name in late or name in self._again or name in self._late_names)

    def _part(self, names: Iterable[str]) -> Any:
        names = set(names)
        part = tf.compat.v1.GraphDef()
        part.versions.CopyFrom(self._graph_def.versions)
        part.library.CopyFrom(self._graph_def.library)
        for node in self._graph_def.node:
            if node.name not in names:
                continue
            copy = part.node.add()
            copy.CopyFrom(node)
            # An edge of control into the other part is kept by the order of the two calls.
            inputs = [i for i in node.input if not i.startswith("^") or i[1:] in names]
            del copy.input[:]
            copy.input.extend(inputs)
            copy.attr.pop("_class", None)
        return part

    def _import(self, part: Any, given: dict[str, Any], wanted: Sequence[Any]) -> list[Any]:
        """Copy a part into the graph being traced and return the wanted tensors."""
        graph = tf.compat.v1.get_default_graph()
        used = {_tensor_name(i) for node in part.node for i in node.input}
        inputs = {name: value for name, value in given.items() if name in used}
        inputs.update(
            (name, graph.capture(value)) for name, value in self._captures.items() if name in used
        )
        inside = {node.name for node in part.node}
        elements = [t.name for t in wanted if t.op.name in inside]
        found = iter(
            tf.graph_util.import_graph_def(
                part, input_map=inputs, return_elements=elements, name="part"
            )
        )
        result = []
        for tensor in wanted:
            if tensor.op.name in inside:
                result.append(next(found))
            elif tensor.name in given:
                result.append(given[tensor.name])
            elif tensor.name in self._captures:
                result.append(graph.capture(self._captures[tensor.name]))
            else:
                raise InternalError(f"tensor {tensor.name!r} lies in no part of the cut graph")
        return result


def _with_ancestors(operations: Sequence[Any]) -> set[str]:
    """Return the names of operations and of all that they depend on.

    The gradient of a loop makes the loop itself save its values, into lists that are recorded with
    the gradient: those belong to the forward part.
    """
    names: set[str] = set()
    stack = list(operations)
    while stack:
        op = stack.pop()
        if op.name not in names:
            names.add(op.name)
            stack.extend(tensor.op for tensor in op.inputs)
    return names


def _batched(items: Sequence[Any], size: int) -> list[list[Any]]:
    return [list(items[i : i + size]) for i in range(0, len(items), size)]


def _tensor_name(node_input: str) -> str:
    return node_input if ":" in node_input or node_input.startswith("^") else f"{node_input}:0"
