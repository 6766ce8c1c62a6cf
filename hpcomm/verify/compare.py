"""How far two sets of arrays lie apart."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from hpcomm.errors import InternalError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

Arrays = dict[str, "NDArray[Any]"]


@dataclass(slots=True)
class Outcome:
    """What a training of a few steps left behind.

    Attributes:
        losses: loss of every step, penalties included.
        outputs: outputs of the first training step by output name, and (prefix "after/") those of
            inference after the last step.
        gradients: gradients of the first step by variable path, before clipping.
        weights: all variables of the model after the last step, statistics included, and the
            optimizer's moving averages where it keeps such (prefix "average/").
    """

    losses: list[float] = field(default_factory=list)
    outputs: Arrays = field(default_factory=dict)
    gradients: Arrays = field(default_factory=dict)
    weights: Arrays = field(default_factory=dict)


def relative_difference(got: NDArray[Any], want: NDArray[Any]) -> float:
    """Return max|got - want| / max|want|.

    Args:
        got: array of any shape.
        want: array of the same shape.

    Returns:
        0 where both are equal or empty; infinity where ``want`` is all zero and ``got`` is not,
        where shapes differ, or where one has a value that is not finite.
    """
    got, want = np.asarray(got, np.float64), np.asarray(want, np.float64)
    if got.shape != want.shape:
        return math.inf
    if want.size == 0 or np.array_equal(got, want):
        return 0.0
    if not (np.isfinite(got).all() and np.isfinite(want).all()):
        return math.inf
    scale = float(np.abs(want).max())
    return float(np.abs(got - want).max()) / scale if scale else math.inf


def worst(got: Mapping[str, NDArray[Any]], want: Mapping[str, NDArray[Any]]) -> tuple[float, str]:
    """Return the largest relative difference over named arrays, and the name where it is.

    A name that is missing on one side counts as infinitely far.
    """
    names = sorted(set(got) | set(want))
    distances = {
        name: relative_difference(got[name], want[name])
        if name in got and name in want
        else math.inf
        for name in names
    }
    name = max(distances, key=lambda key: distances[key], default="")
    return distances.get(name, 0.0), name


def compare(got: Outcome, want: Outcome) -> tuple[dict[str, float], dict[str, str]]:
    """Compare two trainings.

    Args:
        got: of the split model.
        want: of the reference.

    Returns:
        Largest relative difference of "loss", "outputs", "gradients" and "weights_after_steps",
        and where each is.

    Raises:
        InternalError: the reference is empty, so that nothing would be compared.
    """
    if not (want.losses and want.outputs and want.gradients and want.weights):
        raise InternalError("verify: the reference has no losses, outputs, gradients or weights")
    losses = [
        {f"step {step}": np.asarray(loss) for step, loss in enumerate(outcome.losses)}
        for outcome in (got, want)
    ]
    found = {
        "loss": worst(losses[0], losses[1]),
        "outputs": worst(got.outputs, want.outputs),
        "gradients": worst(got.gradients, want.gradients),
        "weights_after_steps": worst(got.weights, want.weights),
    }
    return (
        {name: distance for name, (distance, _) in found.items()},
        {name: where for name, (_, where) in found.items()},
    )
