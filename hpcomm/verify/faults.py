"""Mistakes that are planted on purpose, to show that a verification notices them.

Each fault replaces one documented method of one trainer by a wrong one, from outside: the engine
knows nothing of this file. A fault that had nothing to spoil (one micro-batch cannot be swapped) is
an error, because a verification that fails for no reason proves nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from hpcomm.errors import InvalidArgumentError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

FAULTS = ("scale", "skip", "order")
"""``scale``: micro-batches count equally, whatever their size. ``skip``: of several partial errors
of a tensor only the first is kept. ``order``: on the rank that computes the loss, two neighbouring
micro-batches of the same size change places."""


def plant(name: str, trainer: Any) -> Callable[[], bool]:
    """Spoil a trainer.

    Args:
        name: one of ``FAULTS``.
        trainer: an engine; this rank's.

    Returns:
        A function that tells whether the fault has had an effect on this rank so far.

    Raises:
        InvalidArgumentError: there is no such fault.
    """
    if name not in FAULTS:
        raise InvalidArgumentError(f"--inject {name}: not known; known are {', '.join(FAULTS)}")
    acted = [False]

    def equal_weight(num_samples: int, global_samples: int) -> float:
        right = float(original(num_samples, global_samples))
        pieces = trainer.micro_batches * trainer.grid.replicas.size
        acted[0] = acted[0] or right != 1.0 / pieces
        return float(1.0 / pieces)

    def first_part_only(parts: Any) -> Any:
        kept = list(parts)
        acted[0] = acted[0] or len(kept) > 1
        return original(kept[:1])

    def swapped(array: Any, index: int, ranges: Sequence[tuple[int, int]]) -> Any:
        sizes = [stop - start for start, stop in ranges]
        # Equally long ones, so that nothing but the order is wrong.
        pair = next((i for i in range(len(sizes) - 1) if sizes[i] == sizes[i + 1]), None)
        if pair is None or not trainer.is_loss_stage or index not in (pair, pair + 1):
            return original(array, index, ranges)
        acted[0] = True
        return original(array, 2 * pair + 1 - index, ranges)

    method, wrong = {
        "scale": ("micro_batch_weight", equal_weight),
        "skip": ("sum_partial_errors", first_part_only),
        "order": ("slice_micro_batch", swapped),
    }[name]
    original = getattr(trainer, method)
    setattr(trainer, method, wrong)
    return lambda: acted[0]
