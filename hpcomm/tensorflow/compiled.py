"""A stage as compiled functions.

Every function exists at most twice: once for the shapes that it met first, which are those of
nearly all micro-batches, and once with a dynamic batch axis for all others. Known shapes spare the
graph some thousand operations that only compute shapes, a few percent of the time of a deep
network; the dynamic form keeps a last, smaller micro-batch from causing a trace of its own.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import keras
import tensorflow as tf

from hpcomm.tensorflow.cut import Joint, cut
from hpcomm.tensorflow.executor import on_best_executor
from hpcomm.tensorflow.stage_math import Reach, Weights

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from hpcomm.tensorflow.cut import Cut
    from hpcomm.tensorflow.stage_math import StageMath

__all__ = ["CompiledPasses"]


class CompiledPasses:
    """Forward and backward functions of a stage.

    Args:
        math: what to compute.
        input_specs: of the program's inputs.
        error_specs: of the errors, in the order of ``math.errors``.
    """

    def __init__(
        self, math: StageMath, input_specs: Sequence[Any], error_specs: Sequence[Any]
    ) -> None:
        self._math = math
        self._input_specs = list(input_specs)
        self._error_specs = list(error_specs)
        self._scalar = tf.TensorSpec([], tf.int64)
        self._weight = tf.TensorSpec([], keras.backend.floatx())
        # Where more than the batch axis is unknown, shapes change too often to be worth a trace.
        self._may_fix = all(None not in spec.shape.as_list()[1:] for spec in self._input_specs)
        self._fixed: tuple[Any, Cut] | None = None
        self._dynamic: Cut | None = None
        self._has_added = False
        self._fused = _BySpec(self._trace_fused)
        self._fixed_fused: tuple[Any, Callable[..., Any]] | None = None
        self._inferred = _BySpec(self._trace_infer)
        self._last_reach: Reach | None = None

    def trace(self, targets: Any, sample_weight: Any) -> Reach:
        """Trace what a training step needs.

        Args:
            targets: on the last stage a micro-batch's targets, as examples; else None.
            sample_weight: likewise.

        Returns:
            Which gradients depend on which errors.
        """
        if self._math.structure is None:
            return self._trace_joint(self._input_specs)[1]
        self._fused.find((targets, sample_weight))
        assert self._last_reach is not None
        return self._last_reach

    @property
    def kept(self) -> list[tuple[str, Any]]:
        """Activations that a forward pass keeps: type of the operation, shape and dtype."""
        chosen = self._dynamic if self._fixed is None else self._fixed[1]
        return [] if chosen is None else chosen.kept

    def forward(self, inputs: Sequence[Any], key: Any, first: Any) -> tuple[list[Any], Any, Any]:
        """Return outputs, the sum of added losses (or None), and the state for `backward`."""
        chosen = self._choose(inputs)
        outputs, state = chosen.forward(*inputs, key, first)
        added = outputs.pop() if self._has_added else None
        return outputs, added, (chosen, state)

    def backward(self, state: Any, errors: Sequence[Any], added_seed: Any) -> list[Any]:
        """Return the gradients of the sources; None where there is none."""
        chosen, activations = state
        return list(chosen.backward(activations, *errors, added_seed))

    def forward_backward(
        self,
        inputs: Sequence[Any],
        key: Any,
        first: Any,
        targets: Any,
        sample_weight: Any,
        weights: Weights,
    ) -> tuple[Any, list[Any], list[Any]]:
        """Return weighted loss, outputs and the gradients of the sources."""
        function = self._choose_fused(inputs, (targets, sample_weight))
        total, outputs, gradients = function(
            [*inputs, key, first], (targets, sample_weight), list(weights)
        )
        return total, list(outputs), list(gradients)

    def infer(
        self,
        inputs: Sequence[Any],
        key: Any,
        first: Any,
        targets: Any = None,
        sample_weight: Any = None,
        weights: Weights | None = None,
    ) -> tuple[Any, list[Any]]:
        """Return weighted loss (None without ``weights``) and outputs in inference mode."""
        function = self._inferred.find((targets, sample_weight, weights))
        total, outputs = function([*inputs, key, first], (targets, sample_weight, weights))
        return total, list(outputs)

    def _choose(self, inputs: Sequence[Any]) -> Cut:
        shapes = _shapes(inputs)
        if self._fixed is None and self._may_fix:
            specs = [tf.TensorSpec(x.shape, x.dtype) for x in inputs]
            made, _ = self._trace_joint(specs)
            self._fixed = (shapes, cut(made))
        if self._fixed is not None and self._fixed[0] == shapes:
            return self._fixed[1]
        if self._dynamic is None:
            made, _ = self._trace_joint(self._input_specs)
            self._dynamic = cut(made)
        return self._dynamic

    def _choose_fused(self, inputs: Sequence[Any], given: Any) -> Callable[..., Any]:
        shapes = (_shapes(inputs), _shapes(tf.nest.flatten(given)))
        if self._fixed_fused is None and self._may_fix:
            specs = [tf.TensorSpec(x.shape, x.dtype) for x in inputs]
            targets = tf.nest.map_structure(
                lambda x: None if x is None else tf.TensorSpec(x.shape, x.dtype), given
            )
            self._fixed_fused = (shapes, self._trace_fused(targets, specs))
        if self._fixed_fused is not None and self._fixed_fused[0] == shapes:
            return self._fixed_fused[1]
        return self._fused.find(given)

    def _trace_joint(self, input_specs: Sequence[Any]) -> tuple[Joint, Reach]:
        """Trace outputs and gradients of the stage in one function."""
        early_specs = [*input_specs, self._scalar, self._scalar]
        late_specs = [*self._error_specs, self._weight]
        record: dict[str, Any] = {}

        @tf.function(input_signature=[early_specs, late_specs], autograph=False)
        def joint(early: Any, late: Any) -> Any:
            made = self._math.forward(early[:-2], early[-2], early[-1])
            graph = tf.compat.v1.get_default_graph()
            record["num_forward_ops"] = len(graph.get_operations())
            errors = [
                tf.ensure_shape(error, made.outputs[i].shape)
                for error, i in zip(late[:-1], self._math.errors, strict=True)
            ]
            found = self._math.backward(made, errors, late[-1])
            self._math.accumulate(found.variables)
            outputs = list(made.outputs)
            self._has_added = made.added is not None
            if self._has_added:
                outputs.append(made.added)
            record.update(early=list(early), late=list(late), outputs=outputs, found=found)
            return outputs, [g for g in found.sources if g is not None]

        function = joint.get_concrete_function()
        found = record.pop("found")
        traced = Joint(function=function, gradients=found.sources, **record)
        reached = [traced.reach(placeholder) for placeholder in traced.late]
        return traced, Reach(
            [[_depends(g, names) for g in found.sources] for names in reached],
            [[_depends(g, names) for g in found.variables] for names in reached],
        )

    def _trace_fused(
        self, specs: Any, input_specs: Sequence[Any] | None = None
    ) -> Callable[..., Any]:
        weight_specs = [self._weight] * len(Weights._fields)

        @tf.function(autograph=False)
        def fused(early: Any, given: Any, weights: Any) -> Any:
            targets, sample_weight = given
            total, outputs, found = self._math.forward_backward(
                early[:-2], early[-2], early[-1], targets, sample_weight, Weights(*weights)
            )
            self._math.accumulate(found.variables)
            self._last_reach = Reach(
                [[g is not None for g in found.sources]],
                [[g is not None for g in found.variables]],
            )
            return total, outputs, found.sources

        early_specs = [*(input_specs or self._input_specs), self._scalar, self._scalar]
        return _flat(fused.get_concrete_function(early_specs, specs, weight_specs))

    def _trace_infer(self, specs: Any) -> Callable[..., Any]:
        @tf.function(autograph=False)
        def infer(early: Any, given: Any) -> Any:
            targets, sample_weight, weights = given
            return self._math.infer(
                early[:-2], early[-2], early[-1], targets, sample_weight, weights
            )

        early_specs = [*self._input_specs, self._scalar, self._scalar]
        return _flat(infer.get_concrete_function(early_specs, specs))


def _shapes(tensors: Sequence[Any]) -> list[Any]:
    return [None if tensor is None else tuple(tensor.shape) for tensor in tensors]


def _depends(gradient: Any, names: set[str]) -> bool:
    if isinstance(gradient, tf.IndexedSlices):
        gradient = gradient.values
    return gradient is not None and gradient.op.name in names


def _flat(function: Any) -> Callable[..., Any]:
    return on_best_executor(lambda *arguments: function(*arguments), function)


class _BySpec:
    """Functions by the shapes and dtypes of nested arguments, with few traces.

    The first axis of every array is the batch and always dynamic. Where another extent changes from
    one call to the next, a new function is traced in which that extent is dynamic as well.
    """

    def __init__(self, trace: Callable[[Any], Callable[..., Any]]) -> None:
        self._trace = trace
        self._known: dict[Any, tuple[list[Any], Callable[..., Any]]] = {}

    def find(self, arguments: Any) -> Callable[..., Any]:
        """Return the function for such arguments, traced if need be."""
        leaves = tf.nest.flatten(arguments)
        shapes = [None if leaf is None else leaf.shape.as_list() for leaf in leaves]
        kinds = tuple(None if leaf is None else (leaf.dtype, len(leaf.shape)) for leaf in leaves)
        place = (kinds, str(tf.nest.map_structure(lambda leaf: leaf is None, arguments)))
        known = self._known.get(place)
        if known is not None and all(map(_fits, known[0], shapes)):
            return known[1]
        wanted = [shape and [None, *shape[1:]] for shape in shapes]
        if known is not None:
            wanted = [_merge(old, new) for old, new in zip(known[0], wanted, strict=True)]
        specs = [
            None if leaf is None else tf.TensorSpec(shape, leaf.dtype)
            for leaf, shape in zip(leaves, wanted, strict=True)
        ]
        function = self._trace(tf.nest.pack_sequence_as(arguments, specs))
        self._known[place] = (wanted, function)
        return function


def _fits(spec: list[int | None] | None, shape: list[int] | None) -> bool:
    if spec is None or shape is None:
        return spec is shape
    return all(s is None or s == extent for s, extent in zip(spec, shape, strict=True))


def _merge(old: list[int | None] | None, new: list[int | None] | None) -> list[int | None] | None:
    if old is None or new is None:
        return new
    return [a if a == b else None for a, b in zip(old, new, strict=True)]
