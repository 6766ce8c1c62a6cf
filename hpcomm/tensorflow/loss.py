"""The compiled loss of a model, computed for one micro-batch on the last stage."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import keras
import tensorflow as tf
from keras.src.trainers.compile_utils import CompileLoss

from hpcomm.tensorflow.refusals import refuse

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hpcomm.errors import UnsupportedError

__all__ = ["StageLoss", "refuse_in_pieces"]

_MEAN = ("sum_over_batch_size", "mean")
_WEIGHTED_MEAN = "mean_with_sample_weight"


class StageLoss:
    """What ``model.compile(loss=…)`` asks for, without touching the model's own metrics.

    Attributes:
        reduction: "mean" (a micro-batch counts by its samples), "sum" (by one) or "weighted" (by
            its sample weights); None where the model was compiled without a loss.
        is_scalar: whether a loss function does not give one value per sample, or whether these
            depend on other samples; known once the loss was computed. Such a loss cannot be put
            together from micro-batches; see `refuse_in_pieces`.
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
        self._is_watched = False
        if compiled is None:
            return
        losses = _losses(model)
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
        if not self._is_watched:
            # Keras resolves names and structures when it computes the loss for the first time.
            self._loss(targets, predictions, sample_weight)
            self._loss._flat_losses = [
                entry._replace(loss=self._watched(entry.loss)) for entry in self._loss._flat_losses
            ]
            self._is_watched = True
        return self._loss(targets, predictions, sample_weight)

    def _watched(self, loss: Any) -> Any:
        """Return a copy of a Keras loss that takes note of the shape of its values."""
        if _calls_itself(loss) or _compares_samples(loss) or _reduces_batch(loss):
            self.is_scalar = True
            return loss

        def call(targets: Any, predictions: Any) -> Any:
            values = loss.call(targets, predictions)
            if not _has_samples(values, targets, predictions):
                self.is_scalar = True
            return values

        # copy.copy would make Keras write the loss down and read it again.
        watched = object.__new__(type(loss))
        vars(watched).update(vars(loss), call=call)
        return watched


def refuse_in_pieces(model: Any, pieces: int) -> UnsupportedError:
    """Return the error for a loss that cannot be put together from pieces of a batch.

    Args:
        model: compiled; the loss was found to be such a one.
        pieces: of a batch.
    """
    for loss in _losses(model):
        if _calls_itself(loss):
            return refuse("loss-call", f"{type(loss).__name__}; {pieces} pieces per batch")
        if _compares_samples(loss):
            return refuse("comparing-loss", f"{_name(loss)}; {pieces} pieces per batch")
    return refuse("scalar-loss", f"{pieces} micro-batches per batch")


def _losses(model: Any) -> list[Any]:
    compiled = getattr(model, "_compile_loss", None)
    if compiled is None:
        return []
    return [x for x in keras.tree.flatten(compiled._user_loss) if x is not None]


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


def _calls_itself(loss: Any) -> bool:
    """Tell whether a loss does more than `keras.Loss` around its values per sample."""
    return isinstance(loss, keras.Loss) and type(loss).__call__ is not keras.Loss.__call__


def _compares_samples(loss: Any) -> bool:
    """Tell whether the value of a sample depends on the others of its batch."""
    if isinstance(loss, str):
        return loss.lower() == "circle"
    return isinstance(loss, keras.losses.Circle) or keras.losses.circle in (
        loss,
        getattr(loss, "fn", None),
    )


def _reduces_batch(loss: Any) -> bool:
    """Tell whether one of Keras's losses with an ``axis`` was told to sum over the batch."""
    if not isinstance(loss, (keras.losses.Dice, keras.losses.Tversky)):
        return False
    return loss.axis is None or 0 in keras.tree.flatten(loss.axis)


def _has_samples(values: Any, targets: Any, predictions: Any) -> bool:
    """Tell whether the first axis of a loss's values can be that of the batch."""
    shape = tf.TensorShape(values.shape)
    if not shape.rank:  # also where the rank is not known
        return False
    given = keras.tree.flatten((targets, predictions))
    batch = {tf.TensorShape(x.shape)[0] for x in given if tf.TensorShape(x.shape).rank}
    if shape[0] is None or None in batch:
        return shape[0] is None
    return any(size and shape[0] % size == 0 for size in batch) or 0 in batch
