"""Nested tuples, lists and dicts of arrays, as training data come; None is a missing array."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

__all__ = ["concatenate", "flatten", "is_nested", "map_arrays", "unpack"]


def is_nested(value: Any) -> bool:
    """Tell whether ``value`` is a container rather than an array or None."""
    return isinstance(value, (list, tuple, dict))


def flatten(value: Any) -> Iterator[Any]:
    """Yield the leaves of ``value`` that are not None; dicts in the order of their sorted keys."""
    if isinstance(value, dict):
        for key in sorted(value, key=str):
            yield from flatten(value[key])
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from flatten(item)
    elif value is not None:
        yield value


def map_arrays(function: Callable[..., Any], value: Any, *others: Any) -> Any:
    """Apply ``function`` to every leaf, in the order of `flatten`, and rebuild the containers.

    Args:
        function: takes one leaf of ``value`` and the leaves of ``others`` at the same place.
        value: a leaf or nested containers of leaves.
        others: structures that have the same containers.

    Returns:
        The same containers around the results (named tuples too); None stays None.
    """
    if value is None:
        return None
    if isinstance(value, dict):
        done = {
            key: map_arrays(function, value[key], *(other[key] for other in others))
            for key in sorted(value, key=str)
        }
        return {key: done[key] for key in value}
    if isinstance(value, (list, tuple)):
        items = [
            map_arrays(function, item, *(other[i] for other in others))
            for i, item in enumerate(value)
        ]
        if isinstance(value, list):
            return items
        return type(value)(*items) if hasattr(value, "_fields") else tuple(items)
    return function(value, *others)


def concatenate(parts: Iterable[Any], join: Callable[[list[Any]], Any]) -> Any:
    """Join structures that look alike, leaf by leaf.

    Args:
        parts: structures with the same containers; at least one.
        join: makes one leaf of a list of leaves.

    Returns:
        One structure of joined leaves.
    """
    parts = list(parts)
    return map_arrays(lambda *leaves: join(list(leaves)), parts[0], *parts[1:])


def unpack(batch: Any) -> tuple[Any, Any, Any]:
    """Read ``x``, ``(x,)``, ``(x, y)`` or ``(x, y, sample_weight)``.

    Args:
        batch: what a data set yields, or validation data.

    Returns:
        ``(x, y, sample_weight)``, None for what is missing.

    Raises:
        ValueError: a tuple with more than three or without any member.
    """
    if isinstance(batch, list):
        batch = tuple(batch)
    if not isinstance(batch, tuple):
        return batch, None, None
    if not 1 <= len(batch) <= 3:
        raise ValueError(
            "data must come as x, (x,), (x, y) or (x, y, sample_weight); "
            f"got a tuple of {len(batch)}"
        )
    return (*batch, None, None)[:3]
