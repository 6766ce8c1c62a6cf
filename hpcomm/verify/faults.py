"""Mistakes that are planted on purpose, to show that a verification notices them.

Each fault is a trainer with one documented method that does the wrong thing; the engine knows
nothing of this file. A fault that had nothing to spoil (one micro-batch cannot be swapped) is an
error, because a verification that fails for no reason proves nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from hpcomm.errors import InvalidArgumentError

if TYPE_CHECKING:
    from collections.abc import Sequence

FAULTS = ("scale", "skip", "order")
"""``scale``: micro-batches count equally, whatever their size. ``skip``: of several partial errors
of a tensor only the first is kept. ``order``: on the rank that computes the loss, two neighbouring
micro-batches of the same size change places."""


def spoil(trainer: type[Any], name: str) -> type[Any]:
    """Return a trainer that makes a mistake.

    Args:
        trainer: class of the engine.
        name: one of ``FAULTS``.

    Returns:
        A subclass; its instances' ``fault_has_acted`` tells whether the mistake has had an effect
        on this rank so far.

    Raises:
        InvalidArgumentError: there is no such fault.
    """
    if name not in FAULTS:
        raise InvalidArgumentError(f"--inject {name}: not known; known are {', '.join(FAULTS)}")

    class Scale(trainer):
        fault_has_acted = False

        def micro_batch_weight(self, num_samples: int, global_samples: int) -> float:
            right = super().micro_batch_weight(num_samples, global_samples)
            wrong: float = 1.0 / (self.micro_batches * self.grid.replicas.size)
            self.fault_has_acted |= right != wrong
            return wrong

    class Skip(trainer):
        fault_has_acted = False

        def sum_partial_errors(self, parts: Sequence[Any]) -> Any:
            self.fault_has_acted |= len(parts) > 1
            return super().sum_partial_errors(parts[:1])

    class Order(trainer):
        fault_has_acted = False

        def slice_micro_batch(
            self, array: Any, index: int, ranges: Sequence[tuple[int, int]]
        ) -> Any:
            sizes = [stop - start for start, stop in ranges]
            # Equally long ones, so that nothing but the order is wrong.
            pair = next((i for i in range(len(sizes) - 1) if sizes[i] == sizes[i + 1]), None)
            if pair is not None and self.is_loss_stage and index in (pair, pair + 1):
                self.fault_has_acted = True
                index = 2 * pair + 1 - index
            return super().slice_micro_batch(array, index, ranges)

    return {"scale": Scale, "skip": Skip, "order": Order}[name]
