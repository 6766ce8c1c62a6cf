"""Which optimizer variable belongs to which weight, for any Keras optimizer.

Optimizers create their slots in loops over the weights, in an order of their own. The weights are
handed to ``build`` in a list that notices whose turn it is, so that every variable created
meanwhile has an owner. From the owner comes a key that does not depend on how a model is split.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, NamedTuple

import keras
from keras.src import backend

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

__all__ = ["Slot", "build_recorded", "layers_of_optimizer", "layout"]


class Slot(NamedTuple):
    """A variable of an optimizer.

    Attributes:
        key: "optimizer/<slot>/<key of the weight>", or "optimizer/<name>" without an owner.
        owner: position of the weight in the list that the optimizer was built with, or None.
        variable: the Keras variable.
    """

    key: str
    owner: int | None
    variable: Any


class _Noticing(list[Any]):
    """A list that tells after every element that its turn is over."""

    def __init__(self, items: Sequence[Any], notice: Any) -> None:
        super().__init__(items)
        self._notice = notice

    def __iter__(self) -> Iterator[Any]:
        for position, item in enumerate(list.__iter__(self)):
            self._notice(None)
            yield item
            self._notice(position)


def layers_of_optimizer(optimizer: Any) -> list[tuple[str, Any]]:
    """Return the optimizer and, under a prefix, the one that it wraps."""
    inner = getattr(optimizer, "inner_optimizer", None)
    return [("", optimizer)] if inner is None else [("", optimizer), ("inner/", inner)]


def build_recorded(optimizer: Any, variables: Sequence[Any], keys: Sequence[str]) -> list[Slot]:
    """Build an optimizer and say what its variables are.

    Args:
        optimizer: not yet built.
        variables: weights, as ``optimizer.build`` wants them.
        keys: of these weights.

    Returns:
        One entry per variable, in the order of ``optimizer.variables``.
    """
    parts = layers_of_optimizer(optimizer)
    owners: list[list[int | None]] = [[None] * len(part._variables) for _, part in parts]

    def notice(position: int | None) -> None:
        for (_, part), found in zip(parts, owners, strict=True):
            found.extend([position] * (len(part._variables) - len(found)))

    with backend.name_scope(optimizer.name, caller=optimizer):
        optimizer.build(_Noticing(variables, notice))
    notice(None)
    slots: list[Slot] = []
    used: dict[str, int] = {}
    for (prefix, part), found in zip(parts, owners, strict=True):
        for variable, owner in zip(part._variables, found, strict=True):
            key = _key(prefix, variable, owner, variables, keys)
            used[key] = used.get(key, 0) + 1
            slots.append(Slot(key if used[key] == 1 else f"{key}#{used[key]}", owner, variable))
    return slots


def layout(optimizer: Any, variables: Sequence[Any], keys: Sequence[str]) -> list[Slot]:
    """Return what `build_recorded` would, without memory for slots.

    Args:
        optimizer: a throw-away copy, not yet built.
        variables: weights; they need not have values.
        keys: of these weights.

    Returns:
        Slots whose ``variable`` is of no use.
    """
    stand_ins = []
    for variable in variables:
        stand_in = keras.Variable(
            "zeros", shape=(1,) * len(variable.shape), dtype=variable._dtype, name=variable.name
        )
        stand_in._path = variable.path
        stand_ins.append(stand_in)
    return build_recorded(optimizer, stand_ins, keys)


def _key(
    prefix: str, variable: Any, owner: int | None, variables: Sequence[Any], keys: Sequence[str]
) -> str:
    if owner is None:
        # Keras numbers nameless variables through the whole process.
        name = re.sub(r"^variable(_\d+)?$", "variable", variable.name)
        return f"optimizer/{prefix}{name}"
    weight = variables[owner].path.replace("/", "_")
    name = variable.name.removeprefix(f"{weight}_")
    if name == variable.name:
        name = "slot"
    return f"optimizer/{prefix}{name}/{keys[owner]}"
