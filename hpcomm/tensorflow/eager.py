"""A stage run line by line under a GradientTape: what ``run_eagerly=True`` is for."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import tensorflow as tf

from hpcomm.tensorflow.stage_math import Reach

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hpcomm.tensorflow.stage_math import StageMath

__all__ = ["EagerPasses"]


class EagerPasses:
    """Forward and backward without compilation; the methods of `CompiledPasses`.

    Attributes:
        touched: per trainable variable, whether any gradient was found for it so far.
    """

    def __init__(self, math: StageMath) -> None:
        self._math = math
        self.touched = [False] * len(math.variables)

    def trace(self, targets: Any, sample_weight: Any) -> Reach:
        """Assume that every gradient depends on every error; only a trace could tell."""
        del targets, sample_weight
        rows = len(self._math.errors) + 1
        return Reach(
            [[True] * len(self._math.sources) for _ in range(rows)],
            [[True] * len(self._math.variables) for _ in range(rows)],
        )

    def forward(self, inputs: Sequence[Any], key: Any, first: Any) -> tuple[list[Any], Any, Any]:
        """Return outputs, the sum of added losses (or None), and the state for `backward`."""
        made = self._math.forward(inputs, key, first)
        return made.outputs, made.added, made

    def backward(self, state: Any, errors: Sequence[Any], added_seed: Any) -> list[Any]:
        """Return the gradients of the sources, zeros where there is none."""
        return self._take(self._math.backward(state, errors, added_seed), state.sources)

    def forward_backward(self, inputs: Sequence[Any], *rest: Any) -> tuple[Any, Any, list[Any]]:
        """Return weighted loss, outputs and the gradients of the sources."""
        total, outputs, gradients = self._math.forward_backward(inputs, *rest)
        return total, outputs, self._take(gradients, [inputs[i] for i in self._math.sources])

    def infer(self, inputs: Sequence[Any], *rest: Any) -> tuple[Any, list[Any]]:
        """Return weighted loss (or None) and outputs in inference mode."""
        return self._math.infer(inputs, *rest)

    def _take(self, gradients: Any, sources: Sequence[Any]) -> list[Any]:
        self._math.accumulate(gradients.variables)
        for i, gradient in enumerate(gradients.variables):
            self.touched[i] = self.touched[i] or gradient is not None
        return [
            tf.zeros_like(source) if gradient is None else gradient
            for gradient, source in zip(gradients.sources, sources, strict=True)
        ]
