"""The state of one stage: gradients, update, weights, optimizer."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import keras
import numpy as np
import tensorflow as tf

from hpcomm.tensorflow.eager import EagerPasses
from hpcomm.tensorflow.stage import KerasStage

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from hpcomm.hyparflow.adapter import StageSpec
    from hpcomm.layer_graph import LayerGraph

__all__ = ["KerasRunner"]


class KerasRunner(KerasStage):
    """A stage with what happens to its weights; see `hpcomm.hyparflow.adapter.StageRunner`."""

    def __init__(self, graph: LayerGraph, spec: StageSpec, seed: int) -> None:
        super().__init__(graph, spec, seed)
        self._pack = self._wrap(self.buffers.pack)
        self._figures = self._wrap(self._find_figures)
        self._update = self._wrap(self._apply_update)

    @property
    def bucket_groups(self) -> list[int | None]:
        """Per bucket, the index of the set of stages that must sum it, or None."""
        return [bucket.group for bucket in self.buffers.buckets]

    @property
    def needs_figures(self) -> bool:
        """Whether an update depends on figures that all stages must agree on."""
        optimizer = self.optimizer
        return optimizer is not None and (optimizer.scales_loss or optimizer.clips_globally)

    def pack(self) -> list[Any]:
        """Return this step's gradients as flat tensors, one per bucket."""
        return list(self._pack())

    def figures(self, reduced: Sequence[Any] | None) -> np.ndarray:
        """Return this stage's share of (sum of squares, number of overflows) of the gradients."""
        return np.asarray(self._figures(reduced).numpy(), np.float64)

    def update(self, reduced: Sequence[Any] | None, figures: Sequence[float]) -> bool:
        """Update the weights; return whether that was skipped because of overflows.

        Args:
            reduced: gradients summed over ranks, as packed; None takes this rank's own.
            figures: agreed sum of squares and number of overflows.
        """
        if self.optimizer is None:
            return False
        floatx = keras.backend.floatx()
        self._update(reduced, *(tf.constant(number, floatx) for number in figures))
        return self.optimizer.scales_loss and figures[1] > 0

    def read_gradients(self, reduced: Sequence[Any] | None) -> dict[int, np.ndarray]:
        """Return the gradients of owned weights by variable index, loss scale taken out."""
        scale = float(self._scale)
        owned = set(self.spec.owned)
        return {
            index: gradient.numpy() / gradient.dtype.as_numpy_dtype(scale)
            for index, gradient in zip(self._trainable, self._gradients(reduced), strict=True)
            if gradient is not None and index in owned
        }

    @property
    def learning_rate(self) -> float | None:
        """Current learning rate; None where it is a schedule, or there is no optimizer."""
        return None if self.optimizer is None else self.optimizer.learning_rate

    def set_learning_rate(self, value: float) -> None:
        """Set it."""
        if self.optimizer is not None:
            self.optimizer.learning_rate = value

    @property
    def iterations(self) -> int:
        """Updates done."""
        return 0 if self.optimizer is None else self.optimizer.iterations

    def finalize(self) -> None:
        """Do what the optimizer does to the weights at the end of a training."""
        if self.optimizer is not None:
            self.optimizer.finalize()

    def read(self, variables: Sequence[int]) -> list[np.ndarray]:
        """Return values of this stage's variables."""
        return [self.graph.native.variables[i].value.numpy() for i in variables]

    def write(self, variables: Sequence[int], values: Sequence[np.ndarray]) -> None:
        """Set values of this stage's variables."""
        for index, value in zip(variables, values, strict=True):
            self.graph.native.variables[index].assign(value)

    def optimizer_keys(self, *, owned: bool) -> list[str]:
        """Return keys of the optimizer's variables here.

        Args:
            owned: leave out those that belong to weights which another stage owns.
        """
        if self.optimizer is None:
            return []
        mine = set(self.spec.owned)
        return [
            slot.key
            for slot in self.optimizer.slots
            if slot.owner is None or not owned or self._trainable[slot.owner] in mine
        ]

    def read_optimizer(self, keys: Sequence[str]) -> list[np.ndarray]:
        """Return values of optimizer variables."""
        found = self._slots()
        return [found[key].value.numpy() for key in keys]

    def write_optimizer(self, values: Mapping[str, np.ndarray]) -> None:
        """Set values of optimizer variables; keys that this stage does not have are ignored."""
        found = self._slots()
        for key, value in values.items():
            if key in found:
                found[key].assign(value)

    def _slots(self) -> dict[str, Any]:
        return {} if self.optimizer is None else {s.key: s.variable for s in self.optimizer.slots}

    def _gradients(self, reduced: Sequence[Any] | None) -> list[Any]:
        found: Sequence[Any] = [a.value() for a in self.buffers.accumulators]
        if reduced is not None:
            found = self.buffers.unpack(reduced)
        live = self._live_variables
        if isinstance(self._passes, EagerPasses):
            pairs = zip(self._passes.touched, self.buffers.has_regularizers(), strict=True)
            live = [a or b for a, b in pairs]
        return [g if alive else None for g, alive in zip(found, live, strict=True)]

    def _find_figures(self, reduced: Sequence[Any] | None) -> Any:
        assert self.optimizer is not None
        return self.optimizer.local_figures(self._gradients(reduced))

    def _apply_update(
        self, reduced: Sequence[Any] | None, norm_squared: Any, overflows: Any
    ) -> None:
        assert self.optimizer is not None
        self.optimizer.apply(self._gradients(reduced), norm_squared, overflows)
