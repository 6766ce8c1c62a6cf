"""The optimizer of one stage: a copy of the user's that knows only the stage's own weights."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any

import keras
import tensorflow as tf

from hpcomm.errors import UnsupportedError
from hpcomm.tensorflow.own_optimizer import copy_attributes
from hpcomm.tensorflow.slots import build_recorded, layers_of_optimizer

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["StageOptimizer", "clone_optimizer"]

_COPIED = ("_exclude_from_weight_decay", "_exclude_from_weight_decay_pattern")
"""What methods of optimizers set, and their configuration does not hold."""


def clone_optimizer(optimizer: Any) -> Any:
    """Return an optimizer with the same settings and no state.

    Args:
        optimizer: a Keras optimizer, built or not.

    Raises:
        UnsupportedError: its ``get_config`` does not describe it.
    """
    inner = getattr(optimizer, "inner_optimizer", None)
    if inner is not None:
        clone = type(optimizer)(
            clone_optimizer(inner),
            initial_scale=optimizer.initial_scale,
            dynamic_growth_steps=optimizer.dynamic_growth_steps,
            name=optimizer.name,
        )
        copy_attributes(optimizer, clone)
        return clone
    rate = optimizer._learning_rate
    is_number = isinstance(rate, keras.Variable)
    try:
        config = dict(optimizer.get_config())
        config["learning_rate"] = float(rate.numpy()) if is_number else 1.0
        clone = type(optimizer).from_config(config)
    except Exception as error:
        raise UnsupportedError(
            f"the optimizer {type(optimizer).__name__} cannot be copied for the stages "
            f"({type(error).__name__}: {error}); give it a get_config() that its constructor takes"
        ) from error
    if not is_number:
        # A schedule has no state: all copies may read the same one.
        clone.learning_rate = rate
    for name in _COPIED:
        if hasattr(optimizer, name):
            setattr(clone, name, copy.copy(getattr(optimizer, name)))
    copy_attributes(optimizer, clone)
    return clone


class StageOptimizer:
    """Applies summed gradients to the weights of a stage exactly as one optimizer would to all.

    Two decisions need all stages: clipping by the global norm, and skipping an update whose
    gradients overflowed. For both, `local_figures` gives this stage's share; what the ranks agreed
    on is handed to `apply`.

    Args:
        optimizer: the user's.
        variables: trainable Keras variables of the stage, with values.
        keys: of these variables.
        owned: whether this stage's share of figures covers each of them (a tied weight counts
            once).

    Attributes:
        optimizer: the stage's copy.
        slots: its variables with their keys.
        scales_loss: whether it adapts a loss scale to overflows.
        clips_globally: whether it clips by the norm of all gradients.
    """

    def __init__(
        self,
        optimizer: Any,
        variables: Sequence[Any],
        keys: Sequence[str],
        owned: Sequence[bool],
    ) -> None:
        self.optimizer = clone_optimizer(optimizer)
        self._weights = list(variables)
        self._owned = list(owned)
        self.slots = build_recorded(self.optimizer, self._weights, list(keys))
        self._inner = layers_of_optimizer(self.optimizer)[-1][1]
        self.scales_loss = self._inner is not self.optimizer
        self.clips_globally = bool(self._inner.global_clipnorm)
        self._norm_squared: Any = None
        if self.clips_globally:
            self._inner._clip_gradients = self._clip

    @property
    def iterations(self) -> int:
        """Updates done, as Keras counts them."""
        return int(self._inner.iterations)

    @property
    def learning_rate(self) -> float | None:
        """Current learning rate; None where it is a schedule or a function."""
        rate = self._inner._learning_rate
        return float(rate.numpy()) if isinstance(rate, keras.Variable) else None

    @learning_rate.setter
    def learning_rate(self, value: float) -> None:
        self._inner.learning_rate = value

    def gradient_scale(self) -> Any:
        """Return the factor that this step's gradients are computed with, a scalar tensor."""
        one = tf.ones([], keras.backend.floatx())
        return tf.cast(self.optimizer.scale_loss(one), one.dtype)

    def finalize(self) -> None:
        """Do what Keras does with the weights at the end of a training."""
        if self._weights:
            self.optimizer.finalize_variable_values(self._weights)

    def local_figures(self, gradients: Sequence[Any]) -> Any:
        """Return (sum of squares, number of gradients that are not finite) of owned gradients.

        Args:
            gradients: one per weight, None where there is none, scaled by `gradient_scale`.

        Returns:
            float tensor of shape (2,).
        """
        dtype = keras.backend.floatx()
        squares, overflows = [tf.zeros([], dtype)], [tf.zeros([], dtype)]
        for i, (gradient, owned) in enumerate(zip(gradients, self._owned, strict=True)):
            if gradient is None or not owned:
                continue
            if self.scales_loss:
                finite = tf.reduce_all(tf.math.is_finite(gradient))
                overflows.append(tf.cast(tf.logical_not(finite), dtype))
            if self.clips_globally:
                effective = self._effective(gradient, i)
                squares.append(tf.cast(tf.reduce_sum(tf.square(effective)), dtype))
        return tf.stack([tf.add_n(squares), tf.add_n(overflows)])

    def _effective(self, gradient: Any, position: int) -> Any:
        """Return what Keras would clip: without loss scale, with earlier steps' gradients."""
        if self.scales_loss:
            gradient = gradient / tf.cast(self.optimizer.dynamic_scale.value, gradient.dtype)
        if self._inner.loss_scale_factor is not None:
            gradient = gradient / tf.cast(self._inner.loss_scale_factor, gradient.dtype)
        steps = self._inner.gradient_accumulation_steps
        if steps:
            gradient = (gradient + self._inner._accumulated_gradients[position].value) / steps
        return gradient

    def apply(self, gradients: Sequence[Any], norm_squared: Any, overflows: Any) -> None:
        """Update the weights.

        Args:
            gradients: one per weight, None where there is none.
            norm_squared: sum of squares of all gradients of the model.
            overflows: number of gradients of the model that are not finite.
        """
        found = [(g, w) for g, w in zip(gradients, self._weights, strict=True) if g is not None]
        if not found:
            self._count_only(overflows)
            return
        values = [gradient for gradient, _ in found]
        if self.scales_loss:
            # Keras's own optimizer takes the decision to skip; a NaN makes it take that of all.
            poison = tf.where(overflows > 0, float("nan"), 0.0)
            values[0] = values[0] + tf.cast(poison, values[0].dtype)
        self._norm_squared = norm_squared
        try:
            self.optimizer.apply(values, [weight for _, weight in found])
        finally:
            self._norm_squared = None

    def _count_only(self, overflows: Any) -> None:
        """Keep step with the other stages where there is no weight to update."""

        def count() -> None:
            self._inner._iterations.assign_add(1)

        def count_and_scale() -> None:
            self.optimizer._stateful_handle_finite_grads([], [])
            count()

        if not self.scales_loss:
            count()
            return
        keras.ops.cond(
            overflows > 0, self.optimizer._stateful_handle_non_finite_grads, count_and_scale
        )

    def _clip(self, gradients: Sequence[Any]) -> list[Any]:
        """Clip as Keras's clip_by_global_norm does, by the norm over all stages."""
        limit = self._inner.global_clipnorm
        norm = tf.sqrt(self._norm_squared)
        scale = limit * tf.minimum(1.0 / norm, 1.0 / limit) + (norm - norm)
        return [g if g is None else g * tf.cast(scale, g.dtype) for g in gradients]
