"""The compiled loss of a model, computed for one micro-batch on the last stage."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import keras
from keras.src.trainers.compile_utils import CompileLoss

from hpcomm.tensorflow.refusals import refuse

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["StageLoss"]

_MEAN = ("sum_over_batch_size", "mean")
_WEIGHTED_MEAN = "mean_with_sample_weight"


class StageLoss:
    """What ``model.compile(loss=…)`` asks for, without touching the model's own metrics.

    Attributes:
        reduction: "mean" (a micro-batch counts by its samples), "sum" (by one) or "weighted" (by
            its sample weights); None where the model was compiled without a loss.
        is_scalar: whether a loss function gave one number instead of one per sample; known once
            the loss was computed. Such a loss cannot be put together from micro-batches.
    """

    def __init__(self, model: Any) -> None:
        """Read the loss of a compiled model.

        Raises:
            UnsupportedError: a reduction that cannot be put together from micro-batches.
        """
        compiled = model._compile_loss
        self.is_scalar = False
        self.reduction: str | None = None
        self._loss: Any = None
        if compiled is None:
            return
        losses = [x for x in keras.tree.flatten(compiled._user_loss) if x is not None]
        self.reduction = _common_reduction(losses)
        self._loss = CompileLoss(
            compiled._user_loss, compiled._user_loss_weights, output_names=compiled.output_names
        )

    def __call__(self, targets: Any, predictions: Any, sample_weight: Any) -> Any:
        """Return the loss of one micro-batch as Keras computes it for a batch, or None.

        Args:
            targets: as the model's loss expects them.
            predictions: in the structure of the model's outputs.
            sample_weight: None, a tensor, or a structure.
        """
        if self._loss is None:
            return None
        value = self._loss(targets, predictions, sample_weight)
        for path, loss, _, _ in self._loss._flat_losses:
            if not self.is_scalar and _is_custom(loss):
                self.is_scalar = _gives_scalar(loss, path, targets, predictions)
        return value


def _common_reduction(losses: Sequence[Any]) -> str | None:
    found = {getattr(loss, "reduction", "sum_over_batch_size"): loss for loss in losses}
    kinds = {_kind(reduction): loss for reduction, loss in found.items()}
    if not kinds:
        return None
    if "none" in kinds:
        raise refuse("loss-without-reduction", _name(kinds["none"]))
    if len(kinds) > 1:
        raise refuse("mixed-reductions", ", ".join(sorted(map(str, found))))
    (kind,) = kinds
    if kind == "weighted" and len(losses) > 1:
        raise refuse("weighted-mean-of-several-losses", _name(losses[0]))
    return kind


def _kind(reduction: str | None) -> str:
    if reduction in _MEAN:
        return "mean"
    if reduction == _WEIGHTED_MEAN:
        return "weighted"
    return "sum" if reduction == "sum" else "none"


def _name(loss: Any) -> str:
    return str(getattr(loss, "name", None) or getattr(loss, "__name__", None) or loss)


def _is_custom(loss: Any) -> bool:
    function = getattr(loss, "fn", type(loss))
    return not str(getattr(function, "__module__", "")).startswith("keras.")


def _gives_scalar(loss: Any, path: Any, targets: Any, predictions: Any) -> bool:
    """Tell whether a loss function written by the user reduces by itself."""
    try:
        for key in path:
            targets, predictions = targets[key], predictions[key]
        convert = keras.ops.convert_to_tensor
        value = loss.call(
            convert(targets, dtype=loss.dtype), convert(predictions, dtype=loss.dtype)
        )
    except (KeyError, IndexError, TypeError):
        # Keras reconciles lists, tuples and dicts; where it had to, the check is left out.
        return False
    return len(value.shape) == 0
