"""Pipeline schedules as data: for every stage the order in which it runs forwards and backwards.

All stages run their forwards in the order of the micro-batches, and their backwards too, so that
messages between two ranks need no other order than that of the micro-batches. The last stage runs
the backward of a micro-batch right after its forward in every schedule: there is nothing to wait
for, and it then keeps the activations of one micro-batch only.

Source: GPipe (Huang et al., NeurIPS 2019) for fill and drain, PipeDream-Flush / Megatron-LM
(Narayanan et al., SC 2021) for one forward, one backward.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, NamedTuple

from hpcomm.choices import Schedule
from hpcomm.errors import InvalidArgumentError

if TYPE_CHECKING:
    from collections.abc import Callable


class Action(NamedTuple):
    """One thing a stage does."""

    kind: Literal["forward", "backward"]
    micro_batch: int


def gpipe(stage: int, num_stages: int, micro_batches: int) -> list[Action]:
    """Fill and drain: all forwards, then all backwards.

    Args:
        stage: 0 … num_stages-1.
        num_stages: length of the pipeline.
        micro_batches: pieces of the batch.

    Returns:
        The stage's actions in order. Activations kept: ``micro_batches``, on the last stage one.
    """
    if stage == num_stages - 1:
        return _pairs(0, micro_batches)
    forwards = [Action("forward", i) for i in range(micro_batches)]
    return forwards + [Action("backward", i) for i in range(micro_batches)]


def one_forward_one_backward(stage: int, num_stages: int, micro_batches: int) -> list[Action]:
    """Start backwards as early as possible; the bubble is that of ``gpipe``, the memory is less.

    Args:
        stage: 0 … num_stages-1.
        num_stages: length of the pipeline.
        micro_batches: pieces of the batch.

    Returns:
        The stage's actions in order. Activations kept: min(micro_batches, num_stages - stage).
    """
    ahead = min(num_stages - 1 - stage, micro_batches)
    actions = [Action("forward", i) for i in range(ahead)]
    for i in range(ahead, micro_batches):
        actions += [Action("forward", i), Action("backward", i - ahead)]
    return actions + [Action("backward", i) for i in range(micro_batches - ahead, micro_batches)]


def _pairs(first: int, micro_batches: int) -> list[Action]:
    order: list[Action] = []
    for i in range(first, micro_batches):
        order += [Action("forward", i), Action("backward", i)]
    return order


SCHEDULES: dict[str, Callable[[int, int, int], list[Action]]] = {
    Schedule.gpipe.value: gpipe,
    Schedule.one_forward_one_backward.value: one_forward_one_backward,
}
"""Generators by the name that users give."""


def make_schedule(name: str, stage: int, num_stages: int, micro_batches: int) -> list[Action]:
    """Return the actions of one stage.

    Args:
        name: key of ``SCHEDULES``.
        stage: 0 … num_stages-1.
        num_stages: at least 1.
        micro_batches: at least 0; none gives no actions.

    Raises:
        InvalidArgumentError: unknown name.
    """
    if name not in SCHEDULES:
        raise InvalidArgumentError(
            f"schedule: {name!r} is not known; choose one of {', '.join(sorted(SCHEDULES))}"
        )
    return SCHEDULES[name](stage, num_stages, micro_batches)


def kept_activations(actions: list[Action]) -> int:
    """Return for how many micro-batches at most activations are kept at the same time."""
    alive = peak = 0
    for action in actions:
        alive += 1 if action.kind == "forward" else -1
        peak = max(peak, alive)
    return peak


def kept_by_stage(name: str, num_stages: int, micro_batches: int) -> list[int]:
    """Return `kept_activations` of every stage of a schedule; arguments as for `make_schedule`."""
    return [
        kept_activations(make_schedule(name, stage, num_stages, micro_batches))
        for stage in range(num_stages)
    ]
