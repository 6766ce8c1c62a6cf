from __future__ import annotations

import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hpcomm.errors import InvalidArgumentError, ModelError
from hpcomm.hyparflow.balance import (
    CallCost,
    ChainCosts,
    balance,
    check_lpp,
    check_num_stages,
    evaluate,
)


def all_partitions(size: int, stages: int, forbidden: frozenset[int]):
    for cuts in itertools.combinations(range(1, size), stages - 1):
        if not forbidden.intersection(cuts):
            bounds = [0, *cuts, size]
            yield [b - a for a, b in itertools.pairwise(bounds)]


def stage_seconds(costs: ChainCosts, start: int, stop: int, kept: int) -> float:
    """Written independently of the balancer: sums, no prefix sums."""
    total = sum(call.seconds for call in costs.calls[start:stop])
    if kept > 1:
        stored = sum(call.activation_bytes for call in costs.calls[start:stop])
        total += stored * costs.seconds_per_kept_byte
    for position in (start, stop):
        if 0 < position < len(costs.calls):
            total += 2 * costs.cut_bytes[position] * costs.seconds_per_byte
    return total


def stage_memory(costs: ChainCosts, start: int, stop: int, kept: int) -> int:
    total = sum(c.weight_bytes + kept * c.activation_bytes for c in costs.calls[start:stop])
    for early, late, nbytes in costs.shared:
        if start <= late < stop and early < start:
            total += nbytes
    return total


def figures(costs, lpp, kept):
    bounds = [0, *itertools.accumulate(lpp)]
    spans = list(itertools.pairwise(bounds))
    seconds = [stage_seconds(costs, a, b, k) for (a, b), k in zip(spans, kept, strict=True)]
    memory = [stage_memory(costs, a, b, k) for (a, b), k in zip(spans, kept, strict=True)]
    return seconds, memory, sum(costs.cut_bytes[b] for b in bounds[1:-1])


@st.composite
def chains(draw):
    size = draw(st.integers(2, 9))
    calls = [
        CallCost(
            seconds=draw(st.integers(0, 20)) / 4,
            weight_bytes=draw(st.integers(0, 50)),
            activation_bytes=draw(st.integers(0, 50)),
        )
        for _ in range(size)
    ]
    cut_bytes = [0, *(draw(st.integers(0, 30)) for _ in range(size - 1)), 0]
    stages = draw(st.integers(1, size))
    forbidden = draw(st.sets(st.integers(1, size - 1), max_size=size - stages))
    shared = []
    if size > 2 and draw(st.booleans()):
        early = draw(st.integers(0, size - 2))
        shared = [(early, draw(st.integers(early + 1, size - 1)), draw(st.integers(1, 80)))]
    costs = ChainCosts(
        calls,
        cut_bytes,
        frozenset(forbidden),
        shared,
        draw(st.sampled_from([0, 0.05])),
        draw(st.sampled_from([0, 0.1])),
    )
    kept = [draw(st.integers(1, 4)) for _ in range(stages)]
    return costs, kept


@settings(max_examples=300, deadline=None)
@given(chains(), st.sampled_from(["time", "memory"]))
def test_balance_any_chain_is_lexicographically_optimal(case, objective):
    costs, kept = case
    result = balance(costs, kept, objective=objective, tolerance=0.0)

    def rank(lpp):
        seconds, memory, traffic = figures(costs, lpp, kept)
        first, second = max(seconds), max(memory)
        return (first, second, traffic) if objective == "time" else (second, first, traffic)

    best = min(rank(p) for p in all_partitions(len(costs.calls), len(kept), costs.forbidden))
    assert rank(result.lpp) == pytest.approx(best)
    seconds, memory, traffic = figures(costs, result.lpp, kept)
    assert result.seconds == pytest.approx(seconds)
    assert result.memory_bytes == pytest.approx(memory)
    assert result.traffic_bytes == traffic


@settings(max_examples=150, deadline=None)
@given(chains(), st.integers(0, 400))
def test_balance_memory_limit_is_kept_or_refused(case, limit):
    costs, kept = case
    fitting = [
        p
        for p in all_partitions(len(costs.calls), len(kept), costs.forbidden)
        if max(figures(costs, p, kept)[1]) <= limit
    ]
    if not fitting:
        with pytest.raises(ModelError, match=str(limit)):
            balance(costs, kept, memory_limit_bytes=limit)
        return
    result = balance(costs, kept, memory_limit_bytes=limit, tolerance=0.0)
    assert max(result.memory_bytes) <= limit
    best = min(max(figures(costs, p, kept)[0]) for p in fitting)
    assert max(result.seconds) == pytest.approx(best)


def test_balance_greedy_trap_finds_the_optimum():
    # Filling each stage up to the mean (8) gives 7 | 9 | 8; no partition is below 9.
    costs = ChainCosts([CallCost(s) for s in (3, 4, 5, 4, 1, 7)], [0] * 7)
    result = balance(costs, [1, 1, 1])
    assert max(result.seconds) == 9
    assert result.imbalance == pytest.approx(9 / 8 - 1)


def test_balance_tolerance_trades_little_time_for_much_memory():
    seconds, activations = (1, 1, 0.01, 1.99), (0, 0, 50, 90)
    calls = [CallCost(s, 0, a) for s, a in zip(seconds, activations, strict=True)]
    costs = ChainCosts(calls, [0] * 5)
    assert balance(costs, [1, 1], tolerance=0.0).lpp == (2, 2)
    assert balance(costs, [1, 1], tolerance=0.01).lpp == (3, 1)


def test_balance_long_chain_takes_little_time():
    costs = ChainCosts([CallCost(1.0 + (i % 7) / 10, 4, 8) for i in range(3000)], [64] * 3001)
    result = balance(costs, [4] * 4)
    assert sum(result.lpp) == 3000
    assert result.imbalance < 0.01


def test_evaluate_shared_weights_count_once_per_stage():
    calls = [CallCost(1, 100, 0), CallCost(1, 0, 0), CallCost(1, 0, 0)]
    costs = ChainCosts(calls, [0] * 4, shared=[(0, 2, 100)])
    assert evaluate(costs, [3], [1]).memory_bytes == (100,)
    assert evaluate(costs, [1, 2], [1, 1]).memory_bytes == (100, 100)


@pytest.mark.parametrize(
    ("lpp", "message"),
    [
        ([3, 4], "adds up to 7, but the model has 8"),
        ([2, 3, 3], "3 entries"),
        ([8, 0], "at least one layer"),
        ([True, 7], "at least one layer"),
    ],
)
def test_check_lpp_bad_lists_say_what_is_wrong(lpp, message):
    with pytest.raises(InvalidArgumentError, match=message):
        check_lpp(lpp, 8, 2, frozenset())


def test_check_lpp_boundary_inside_shared_state_is_refused():
    check_lpp([4, 4], 8, 2, frozenset({3, 5}))
    with pytest.raises(ModelError, match="after layer 4"):
        check_lpp([4, 4], 8, 2, frozenset({4}))


def test_check_num_stages_more_than_layers_says_both_numbers():
    with pytest.raises(ModelError, match=r"5 partitions .* only 4 layers"):
        check_num_stages(4, 5, frozenset())
    with pytest.raises(ModelError, match="only 3 are possible"):
        check_num_stages(4, 4, frozenset({2}))
