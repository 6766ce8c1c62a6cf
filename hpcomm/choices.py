"""Names that users choose from, in one place that imports nothing heavy."""

from __future__ import annotations

from enum import StrEnum

__all__ = ["SCHEDULES", "STRATEGIES", "Schedule", "Strategy"]


class Strategy(StrEnum):
    """How ranks share the work."""

    data = "data"
    model = "model"
    hybrid = "hybrid"


class Schedule(StrEnum):
    """Order of forward and backward passes."""

    gpipe = "gpipe"
    one_forward_one_backward = "1f1b"


STRATEGIES = tuple(strategy.value for strategy in Strategy)
SCHEDULES = tuple(schedule.value for schedule in Schedule)
