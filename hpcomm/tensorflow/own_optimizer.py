"""What a user's optimizer does differently from Keras's, as far as a copy per stage must know."""

from __future__ import annotations

import copy
from types import FunctionType
from typing import TYPE_CHECKING, Any

import keras
import numpy as np

from hpcomm.tensorflow.slots import layers_of_optimizer

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["copy_attributes", "find_own_methods"]

_OF_ALL_WEIGHTS = (
    "apply",
    "apply_gradients",
    "stateless_apply",
    "finalize_variable_values",
    "_apply_weight_decay",
    "_backend_apply_gradients",
    "_backend_increment_gradient_accumulators",
    "_backend_reset_gradient_accumulators",
    "_backend_update_step",
    "_clip_gradients",
    "_filter_empty_gradients",
    "_overwrite_model_variables_with_average_value",
    "_overwrite_variables_directly_with_gradients",
    "_update_model_variables_moving_average",
)
"""Methods of Keras's optimizers that are given all gradients or weights of a model at once."""

_STATE = frozenset({"built", "_lock", "_trainable_variables_indices"})
"""Attributes that say how far an optimizer has come, not how it was set."""

_CONTAINERS = (list, set, dict)
_PLAIN = (
    *(bool, int, float, complex, str, bytes, type(None)),
    *(np.generic, np.ndarray, FunctionType),
)
_MISSING = object()


def find_own_methods(optimizer: Any) -> Iterator[str]:
    """Yield names of methods that expect the whole model, or that a copy would not have.

    Args:
        optimizer: of a compiled model, or None.
    """
    if optimizer is None:
        return
    for _, part in layers_of_optimizer(optimizer):
        kind = type(part).__name__
        if hasattr(part, "inner_optimizer") and not isinstance(
            part, keras.optimizers.LossScaleOptimizer
        ):
            yield f"{kind}.inner_optimizer"
        for name in _OF_ALL_WEIGHTS:
            if _is_own(type(part), name):
                yield f"{kind}.{name}"
        for name in vars(part):
            if callable(getattr(type(part), name, None)):
                yield f"{kind}.{name}"  # a method of this very object; copies would not have it


def _is_own(kind: type, name: str) -> bool:
    definer = next((base for base in kind.__mro__ if name in vars(base)), None)
    return definer is not None and definer.__module__.partition(".")[0] != "keras"


def copy_attributes(optimizer: Any, clone: Any) -> None:
    """Give a copy what was set on an optimizer and its configuration does not hold.

    Args:
        optimizer: the original, built or not.
        clone: made from its configuration, not built.
    """
    for name, value in vars(optimizer).items():
        mine = vars(clone).get(name, _MISSING)
        if name in _STATE or not _is_setting(value):
            continue
        if optimizer.built and isinstance(mine, _CONTAINERS) and not mine:
            continue  # it is filled by build
        if isinstance(value, np.ndarray) or not _is_setting(mine) or mine != value:
            setattr(clone, name, copy.copy(value))


def _is_setting(value: Any) -> bool:
    """Tell whether a value can only be a setting; what ``build`` makes are variables in lists."""
    if isinstance(value, dict):
        value = tuple(value.values())
    if isinstance(value, (*_CONTAINERS, tuple, frozenset)):
        return all(_is_setting(member) and not isinstance(member, np.ndarray) for member in value)
    return isinstance(value, _PLAIN)
