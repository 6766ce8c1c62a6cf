"""Move the boundaries of a balanced chain so that a whole step, ramps included, is shortest.

Equal stages are not the fastest pipeline of few stages: the first stage never waits for the ramp,
so it can carry more than its share. With two stages and m micro-batches under ``gpipe`` it should
carry m/(2m-1) of the work, which turns a step of (m+1)/2 into m²/(2m-1) (times one micro-batch of
the whole model): 5 % less at m = 8.

Coordinate descent over the boundaries, every candidate judged by the dry run of its schedule. A
stage that begins after work P (per micro-batch) and has c itself cannot end before P + m·c, so most
candidates are excluded without a run; for two stages the search is therefore exact.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from hpcomm.hyparflow.balance import evaluate, prefix_sums
from hpcomm.hyparflow.schedule import kept_by_stage, make_schedule
from hpcomm.hyparflow.simulate import expand, simulate

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from hpcomm.hyparflow.balance import ChainCosts, Partition
    from hpcomm.hyparflow.simulate import Simulation

__all__ = ["FORWARD_SHARE", "refine", "run_dry"]

FORWARD_SHARE = 1 / 3
"""Of the time of a forward and its backward: a backward multiplies twice, for two gradients."""

_WORK_LIMIT = 3_000_000
"""Computations that all dry runs together may play, a few seconds."""


def run_dry(seconds: Sequence[float], schedule: str, micro_batches: int) -> Simulation:
    """Play a step of a chain of stages.

    Args:
        seconds: of each stage for one micro-batch, forward and backward.
        schedule: name.
        micro_batches: pieces of a replica's batch.
    """
    num_stages = len(seconds)
    edges = [(stage, stage + 1, "boundary") for stage in range(num_stages - 1)]
    return simulate(
        [
            expand(
                stage,
                make_schedule(schedule, stage, num_stages, micro_batches),
                edges,
                edges,
                (own * FORWARD_SHARE, own * (1 - FORWARD_SHARE)),
            )
            for stage, own in enumerate(seconds)
        ]
    )


def refine(
    costs: ChainCosts,
    start: Partition,
    schedule: str,
    micro_batches: int,
    *,
    memory_limit_bytes: int | None = None,
    tolerance: float = 0.01,
) -> Partition:
    """Return a partition whose step is at most as long as that of ``start``.

    Args:
        costs: of the chain.
        start: where to begin, from `hpcomm.hyparflow.balance.balance`.
        schedule: name.
        micro_batches: pieces of a replica's batch.
        memory_limit_bytes: no stage may need more; None sets no limit.
        tolerance: moves that gain less (relative) are not made; among boundaries whose steps differ
            by less than half of it, the one with the least traffic is taken.
    """
    num_stages = len(start.lpp)
    kept = kept_by_stage(schedule, num_stages, micro_batches)
    work = 2 * num_stages * micro_batches
    runs_left = _WORK_LIMIT // max(work, 1)

    def step_s(partition: Partition) -> float:
        return run_dry(partition.seconds, schedule, micro_batches).makespan_s

    best, best_s = start, step_s(start)
    improved = num_stages > 1 and micro_batches > 1
    while improved:
        improved = False
        for boundary in range(num_stages - 1):
            found: list[tuple[float, Partition]] = []
            limit_s = best_s * (1 - tolerance)
            for bound_s, lpp in _moves(costs, best.lpp, boundary, micro_batches):
                if bound_s > limit_s or runs_left <= 0:
                    break
                candidate = evaluate(costs, lpp, kept)
                if (
                    memory_limit_bytes is not None
                    and max(candidate.memory_bytes) > memory_limit_bytes
                ):
                    continue
                runs_left -= 1
                candidate_s = step_s(candidate)
                if candidate_s <= limit_s:
                    found.append((candidate_s, candidate))
                    # What is worse by half the tolerance than one that was found is of no use.
                    limit_s = min(limit_s, candidate_s * (1 + tolerance / 2))
            near = [pair for pair in found if pair[0] <= limit_s]
            if near:
                best_s, best = min(near, key=lambda pair: (pair[1].traffic_bytes, pair[0]))
                improved = True
    return best


def _moves(
    costs: ChainCosts, lpp: Sequence[int], boundary: int, micro_batches: int
) -> Iterator[tuple[float, tuple[int, ...]]]:
    """Yield other places of a boundary with a time below which no step can stay, shortest first."""
    compute = prefix_sums([call.seconds for call in costs.calls])
    first = sum(lpp[:boundary])
    stop = first + lpp[boundary] + lpp[boundary + 1]
    places = np.array(
        [at for at in range(first + 1, stop) if at not in costs.forbidden], dtype=np.int64
    )
    places = places[places != first + lpp[boundary]]
    early = compute[first] + micro_batches * (compute[places] - compute[first])
    late = compute[places] + micro_batches * (compute[stop] - compute[places])
    bounds = np.maximum(early, late)
    for index in np.argsort(bounds, kind="stable"):
        moved = list(lpp)
        moved[boundary] = int(places[index]) - first
        moved[boundary + 1] = stop - int(places[index])
        yield float(bounds[index]), tuple(moved)
