from __future__ import annotations

import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hpcomm.hyparflow.balance import CallCost, ChainCosts, balance, evaluate
from hpcomm.hyparflow.refine import refine, run_dry
from hpcomm.hyparflow.schedule import kept_activations, make_schedule


def kept(schedule: str, stages: int, micro_batches: int) -> list[int]:
    return [
        kept_activations(make_schedule(schedule, stage, stages, micro_batches))
        for stage in range(stages)
    ]


def step_s(partition, schedule: str, micro_batches: int) -> float:
    return run_dry(partition.seconds, schedule, micro_batches).makespan_s


def fine_chain(size: int) -> ChainCosts:
    return ChainCosts([CallCost(1.0, 4, 8)] * size, [64] * (size + 1))


@pytest.mark.parametrize("micro_batches", [2, 4, 8, 32])
def test_two_gpipe_stages_first_one_carries_m_of_2m_minus_1(micro_batches):
    size = 60 * (2 * micro_batches - 1)
    costs = fine_chain(size)
    start = balance(costs, kept("gpipe", 2, micro_batches))
    best = refine(costs, start, "gpipe", micro_batches, tolerance=1e-4)
    if micro_batches > 2:  # with two, the errors of the first come too late for the first stage
        assert best.lpp[0] == pytest.approx(60 * micro_batches, rel=0.01)
        ideal = size * micro_batches**2 / (2 * micro_batches - 1)
        assert step_s(best, "gpipe", micro_batches) == pytest.approx(ideal, rel=0.01)
    assert step_s(best, "gpipe", micro_batches) < 0.99 * step_s(start, "gpipe", micro_batches)


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.integers(1, 20), min_size=2, max_size=14),
    st.integers(2, 9),
    st.sampled_from(["gpipe", "1f1b"]),
    st.data(),
)
def test_two_stages_of_any_chain_are_optimal(seconds, micro_batches, schedule, data):
    size = len(seconds)
    cut_bytes = [0, *data.draw(st.lists(st.integers(0, 30), min_size=size - 1, max_size=size - 1))]
    calls = [CallCost(float(s)) for s in seconds]
    costs = ChainCosts(calls, [*cut_bytes, 0], seconds_per_byte=0.05)
    numbers = kept(schedule, 2, micro_batches)
    best = refine(costs, balance(costs, numbers), schedule, micro_batches, tolerance=0.0)
    every = [
        step_s(evaluate(costs, (n, size - n), numbers), schedule, micro_batches)
        for n in range(1, size)
    ]
    assert step_s(best, schedule, micro_batches) == pytest.approx(min(every))


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.integers(1, 20), min_size=5, max_size=12),
    st.integers(2, 4),
    st.integers(2, 8),
    st.sampled_from(["gpipe", "1f1b"]),
)
def test_no_boundary_of_any_chain_can_be_moved_alone_for_more_than_the_tolerance(
    seconds, stages, micro_batches, schedule
):
    size = len(seconds)
    forbidden = frozenset([3])
    costs = ChainCosts([CallCost(float(s)) for s in seconds], [0] * (size + 1), forbidden)
    numbers = kept(schedule, stages, micro_batches)
    start = balance(costs, numbers)
    best = refine(costs, start, schedule, micro_batches)
    found_s = step_s(best, schedule, micro_batches)
    assert found_s <= step_s(start, schedule, micro_batches)
    cuts = list(itertools.accumulate(best.lpp))[:-1]
    assert not forbidden.intersection(cuts)
    for boundary, place in itertools.product(range(stages - 1), range(1, size)):
        moved = [*cuts[:boundary], place, *cuts[boundary + 1 :]]
        if place in forbidden or sorted(set(moved)) != moved:
            continue
        lpp = [b - a for a, b in itertools.pairwise([0, *moved, size])]
        other_s = step_s(evaluate(costs, lpp, numbers), schedule, micro_batches)
        assert other_s > found_s * (1 - 0.01) * (1 - 1e-12)


def test_memory_limit_is_kept():
    costs = fine_chain(60)
    numbers = kept("gpipe", 2, 8)
    start = balance(costs, numbers)
    limit = start.memory_bytes[0] + 100
    best = refine(costs, start, "gpipe", 8, memory_limit_bytes=limit)
    assert best.lpp[0] == start.lpp[0] + 1
    assert max(best.memory_bytes) <= limit


def test_of_nearly_equal_steps_the_one_with_least_traffic_is_taken():
    costs = fine_chain(1500)
    free = balance(costs, kept("gpipe", 2, 8))
    assert refine(costs, free, "gpipe", 8).lpp == (800, 700)
    cut_bytes = [64] * 1501
    cut_bytes[803] = 1
    narrow = ChainCosts(costs.calls, cut_bytes)
    assert refine(narrow, free, "gpipe", 8).lpp == (803, 697)


def test_long_chain_of_many_stages_takes_seconds():
    costs = ChainCosts([CallCost(1.0 + (i % 7) / 10, 4, 8) for i in range(3000)], [64] * 3001)
    start = balance(costs, [4] * 4)
    best = refine(costs, start, "gpipe", 8)
    assert step_s(best, "gpipe", 8) < 0.97 * step_s(start, "gpipe", 8)
