"""Where to cut a chain of calls so that the slowest stage is as fast as possible: exactly.

Dynamic programming over (stages used, calls placed). Three objectives one after another, each only
among the partitions that are as good (within ``tolerance``) as the best for the objectives before:

1. the time of the slowest stage, compute plus the transfer of what crosses its boundaries;
2. the memory of the fullest stage, weights plus the activations of the micro-batches it keeps;
3. the bytes that cross boundaries.

``objective="memory"`` swaps the first two. A memory limit is a constraint in every pass.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

import numpy as np

from hpcomm.errors import InvalidArgumentError, ModelError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Any

    import numpy.typing as npt

    Row = Callable[[int, int], npt.NDArray[Any]]


@dataclass(frozen=True, slots=True)
class CallCost:
    """What one call needs.

    Attributes:
        seconds: forward and backward of one micro-batch.
        weight_bytes: of the variables that this call is the first to use, with gradients and
            optimizer slots.
        activation_bytes: kept from its forward to its backward, for one micro-batch.
    """

    seconds: float
    weight_bytes: int = 0
    activation_bytes: int = 0


@dataclass(frozen=True)
class ChainCosts:
    """All that the balancer knows about a chain of n calls.

    Attributes:
        calls: cost per call, length n.
        cut_bytes: forward traffic of a boundary at position 0 … n, length n+1.
        forbidden: positions where no boundary may lie.
        shared: (first call, later call, bytes) of weights that consecutive users share: they count
            once in a stage that has both calls, and twice if a boundary separates them.
        seconds_per_byte: what traffic costs; a boundary is crossed twice (activation and partial
            error).
        seconds_per_kept_byte: what an activation costs beyond its computation in a stage that keeps
            more than one micro-batch: it goes to memory and back instead of staying in the cache.
    """

    calls: Sequence[CallCost]
    cut_bytes: Sequence[int]
    forbidden: frozenset[int] = frozenset()
    shared: Sequence[tuple[int, int, int]] = ()
    seconds_per_byte: float = 0.0
    seconds_per_kept_byte: float = 0.0


@dataclass(frozen=True, slots=True)
class Partition:
    """A cut chain.

    Attributes:
        lpp: calls per stage.
        seconds: time of each stage for one micro-batch.
        memory_bytes: of each stage.
        traffic_bytes: that cross boundaries forward, per micro-batch.
    """

    lpp: tuple[int, ...]
    seconds: tuple[float, ...] = field(default=())
    memory_bytes: tuple[int, ...] = field(default=())
    traffic_bytes: int = 0

    @property
    def imbalance(self) -> float:
        """Time of the slowest stage over the mean, minus one."""
        mean = sum(self.seconds) / len(self.seconds) if self.seconds else 0.0
        return max(self.seconds) / mean - 1.0 if mean > 0 else 0.0


def check_lpp(
    lpp: Sequence[Any], num_calls: int, num_stages: int, forbidden: frozenset[int]
) -> None:
    """Check layers per partition as a user gave them.

    Args:
        lpp: layers per partition.
        num_calls: layers of the model, input layers not counted.
        num_stages: partitions asked for.
        forbidden: positions where no boundary may lie.

    Raises:
        InvalidArgumentError: wrong length, an entry below one, or a wrong sum.
        ModelError: a boundary separates the calls of a layer with state.
    """
    given = list(lpp)
    if any(not isinstance(n, (int, np.integer)) or isinstance(n, bool) or n < 1 for n in given):
        raise InvalidArgumentError(f"lpp: every partition needs at least one layer, got {given}")
    if len(given) != num_stages:
        raise InvalidArgumentError(
            f"lpp: {len(given)} entries {given} for {num_stages} partitions; "
            "give one number per partition"
        )
    if sum(given) != num_calls:
        raise InvalidArgumentError(
            f"lpp: {given} adds up to {sum(given)}, but the model has {num_calls} layers "
            "(calls of layers, input layers not counted); the numbers must add up to that"
        )
    for position in np.cumsum(given)[:-1]:
        if int(position) in forbidden:
            raise ModelError(
                f"lpp: the boundary after layer {int(position)} separates two calls of a layer "
                "whose "
                "non-trainable state (batch norm statistics, for example) lives in one process; "
                "move the boundary"
            )


def check_num_stages(num_calls: int, num_stages: int, forbidden: frozenset[int]) -> None:
    """Check that a model can be cut into so many stages.

    Raises:
        ModelError: more stages than layers, or than the layers that may be separated allow.
    """
    if num_stages > num_calls:
        raise ModelError(
            f"{num_stages} partitions were asked for, but the model has only {num_calls} layers "
            "(calls of layers, input layers not counted); use fewer partitions"
        )
    allowed = num_calls - len(forbidden)
    if num_stages > allowed:
        raise ModelError(
            f"{num_stages} partitions were asked for, but only {allowed} are possible: calls that "
            "share a layer with non-trainable state must stay together; use fewer partitions"
        )


def evaluate(costs: ChainCosts, lpp: Sequence[int], kept: Sequence[int]) -> Partition:
    """Return times and memory of a given partition.

    Args:
        costs: of the chain.
        lpp: calls per stage.
        kept: micro-batches whose activations each stage keeps.
    """
    rows = _Rows(costs)
    seconds, memory, traffic, start = [], [], 0, 0
    for stage, count in enumerate(lpp):
        stop = start + count
        seconds.append(float(rows.seconds(kept[stage])(start, stop)[0]))
        memory.append(int(rows.memory(kept[stage])(start, stop)[0]))
        traffic += costs.cut_bytes[stop] if stop < len(costs.calls) else 0
        start = stop
    return Partition(tuple(lpp), tuple(seconds), tuple(memory), traffic)


def balance(
    costs: ChainCosts,
    kept: Sequence[int],
    *,
    memory_limit_bytes: int | None = None,
    objective: Literal["time", "memory"] = "time",
    tolerance: float = 0.01,
) -> Partition:
    """Return the best partition of a chain into ``len(kept)`` stages.

    Args:
        costs: of the chain, n calls.
        kept: micro-batches whose activations each stage keeps (depends on the schedule).
        memory_limit_bytes: no stage may need more; None sets no limit.
        objective: what comes first.
        tolerance: how much worse (relative) the first objective may get for the sake of the next
            ones.

    Returns:
        The partition with its figures.

    Raises:
        ModelError: more stages than calls, or no partition within the memory limit.

    Cost:
        O(stages · n²) additions in NumPy, n² shrunk by an upper bound on the time.
    """
    size, stages = len(costs.calls), len(kept)
    check_num_stages(size, stages, costs.forbidden)
    rows = _Rows(costs)
    seconds = [rows.seconds(number) for number in kept]
    memory = [rows.memory(number) for number in kept]
    limit = math.inf if memory_limit_bytes is None else float(memory_limit_bytes)
    time_limit = math.inf
    for goal in ("time", "memory") if objective == "time" else ("memory", "time"):
        bounds = [time_limit]
        if goal == "time":
            # A time that is certainly reached without a memory limit spares most of the n² starts.
            bounds.insert(0, min(time_limit, _reachable_seconds(costs, stages)))
        tries = (_Solver(costs, stages, seconds, memory, b, limit).bottleneck(goal) for b in bounds)
        value = next((v for v in tries if v is not None), None)
        if value is None:
            raise ModelError(
                f"no partition into {stages} stages fits into {memory_limit_bytes} bytes per "
                "process; allow more memory, use more partitions, or more (smaller) micro-batches"
            )
        if goal == "time":
            time_limit = min(time_limit, value * (1 + tolerance))
        else:
            limit = min(limit, value * (1 + tolerance))
    cuts = _Solver(costs, stages, seconds, memory, time_limit, limit).least_traffic()
    return evaluate(costs, cuts, kept)


class _Rows:
    """Cost of the stage [start, stop) for all starts at once, by prefix sums."""

    def __init__(self, costs: ChainCosts) -> None:
        self._costs = costs
        self._seconds = prefix_sums([call.seconds for call in costs.calls])
        self._weights = prefix_sums([call.weight_bytes for call in costs.calls])
        self._activations = prefix_sums([call.activation_bytes for call in costs.calls])
        traffic = np.asarray(costs.cut_bytes, dtype=np.float64) * costs.seconds_per_byte * 2
        traffic[0] = traffic[-1] = 0.0
        self._traffic_s = traffic

    def seconds(self, kept: int) -> Row:
        """Return a function for the time of [start, stop) for start = first … stop-1.

        Args:
            kept: micro-batches whose activations the stage keeps.
        """
        per_byte = self._costs.seconds_per_kept_byte if kept > 1 else 0.0

        def row(first: int, stop: int) -> npt.NDArray[Any]:
            starts = slice(first, stop)
            compute = self._seconds[stop] - self._seconds[starts]
            stored = per_byte * (self._activations[stop] - self._activations[starts])
            return np.asarray(compute + stored + self._traffic_s[starts] + self._traffic_s[stop])

        return row

    def memory(self, kept: int) -> Row:
        """Return the like function for the memory of a stage that keeps ``kept`` micro-batches."""

        def row(first: int, stop: int) -> npt.NDArray[Any]:
            starts = np.arange(first, stop)
            weights = self._weights[stop] - self._weights[starts]
            for early, late, nbytes in self._costs.shared:
                # The later user counts its weights itself only where the earlier one is in another
                # stage.
                if late < stop:
                    weights = weights + nbytes * ((starts > early) & (starts <= late))
            return np.asarray(
                weights + kept * (self._activations[stop] - self._activations[starts])
            )

        return row


def _reachable_seconds(costs: ChainCosts, stages: int) -> float:
    """Return a time that some partition keeps if memory does not matter."""
    blocks, start = [], 0
    for stop in range(1, len(costs.calls) + 1):
        if stop not in costs.forbidden:
            blocks.append(
                sum(
                    call.seconds + call.activation_bytes * costs.seconds_per_kept_byte
                    for call in costs.calls[start:stop]
                )
            )
            start = stop
    traffic_s = max(costs.cut_bytes) * costs.seconds_per_byte * 4
    return (sum(blocks) / stages + max(blocks)) * (1 + 1e-9) + traffic_s


def prefix_sums(values: Sequence[float]) -> npt.NDArray[np.float64]:
    """Return the sums of the first 0, 1, … n values."""
    return np.concatenate([[0.0], np.cumsum(np.asarray(values, dtype=np.float64))])


class _Solver:
    """One dynamic program over the chain, under limits on the time and the memory of a stage."""

    def __init__(
        self,
        costs: ChainCosts,
        stages: int,
        seconds: Sequence[Row],
        memory: Sequence[Row],
        time_limit: float,
        memory_limit: float,
    ) -> None:
        self._costs = costs
        self._size = len(costs.calls)
        self._stages = stages
        self._seconds = seconds
        self._memory = memory
        self._time_limit = time_limit
        self._memory_limit = memory_limit
        # A stage never needs to be slower than a limit, so starts far before its end need no look.
        self._compute = prefix_sums([call.seconds for call in costs.calls])

    def bottleneck(self, goal: str) -> float | None:
        """Return the smallest possible maximum of ``goal`` over the stages; None: impossible."""
        best = np.full(self._size + 1, np.inf)
        best[0] = 0.0
        for stage in range(self._stages):
            following = np.full(self._size + 1, np.inf)
            for stop in self._stops(stage):
                first, seconds, memory = self._segment(stage, stop)
                own = seconds if goal == "time" else memory
                allowed = self._allowed(seconds, memory)
                reached = np.where(allowed, np.maximum(best[first:stop], own), np.inf)
                following[stop] = reached.min(initial=np.inf)
            best = following
        value = float(best[self._size])
        return None if np.isinf(value) else value

    def least_traffic(self) -> list[int]:
        """Return calls per stage of the allowed partition that moves the fewest bytes."""
        best = np.full(self._size + 1, np.inf)
        best[0] = 0.0
        choices = []
        for stage in range(self._stages):
            following = np.full(self._size + 1, np.inf)
            choice = np.zeros(self._size + 1, dtype=np.int64)
            for stop in self._stops(stage):
                first, seconds, memory = self._segment(stage, stop)
                reached = np.where(self._allowed(seconds, memory), best[first:stop], np.inf)
                if reached.size and np.isfinite(reached).any():
                    start = int(reached.argmin())
                    following[stop] = reached[start] + self._costs.cut_bytes[stop]
                    choice[stop] = first + start
            best = following
            choices.append(choice)
        lpp, stop = [], self._size
        for choice in reversed(choices):
            start = int(choice[stop])
            lpp.append(stop - start)
            stop = start
        return lpp[::-1]

    def _stops(self, stage: int) -> list[int]:
        if stage == self._stages - 1:
            return [self._size]
        stops = range(stage + 1, self._size - (self._stages - 2 - stage))
        return [stop for stop in stops if stop not in self._costs.forbidden]

    def _segment(self, stage: int, stop: int) -> tuple[int, npt.NDArray[Any], npt.NDArray[Any]]:
        first = 0
        if np.isfinite(self._time_limit):
            reach = self._compute[stop] - self._time_limit * (1 + 1e-12)
            first = min(int(np.searchsorted(self._compute, reach)), stop)
        return first, self._seconds[stage](first, stop), self._memory[stage](first, stop)

    def _allowed(self, seconds: npt.NDArray[Any], memory: npt.NDArray[Any]) -> npt.NDArray[Any]:
        slack = 1 + 1e-12
        return np.asarray(
            (seconds <= self._time_limit * slack) & (memory <= self._memory_limit * slack)
        )
