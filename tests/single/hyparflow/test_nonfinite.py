from __future__ import annotations

import math

import pytest

from hpcomm.errors import NonFiniteLossError
from hpcomm.hyparflow.nonfinite import LossGuard


@pytest.mark.parametrize("loss", [math.nan, math.inf, -math.inf])
def test_a_loss_that_is_no_number_raises_where_it_happened(loss: float) -> None:
    guard = LossGuard()
    guard.check(1.0, skipped=False, epoch=0, step=0)
    with pytest.raises(NonFiniteLossError, match=rf"the loss is {loss} in epoch 2, step 4;"):
        guard.check(loss, skipped=False, epoch=1, step=3)


def test_updates_that_loss_scaling_skips_are_forgiven_for_a_while() -> None:
    guard = LossGuard()
    for _ in range(3):
        for step in range(29):
            guard.check(math.inf, skipped=True, epoch=0, step=step)
        guard.check(0.5, skipped=False, epoch=0, step=29)
    for step in range(29):
        guard.check(math.inf, skipped=True, epoch=0, step=step)
    with pytest.raises(NonFiniteLossError):
        guard.check(math.inf, skipped=True, epoch=0, step=29)
