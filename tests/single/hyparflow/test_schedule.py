from __future__ import annotations

import pytest

from hpcomm.errors import InternalError, InvalidArgumentError
from hpcomm.hyparflow.schedule import (
    SCHEDULES,
    Action,
    kept_activations,
    make_schedule,
)
from hpcomm.hyparflow.simulate import Step, expand, simulate
from hpcomm.timeline import ideal_bubble


def table(name: str, stages: int, micro_batches: int) -> list[str]:
    return [
        " ".join(
            f"{a.kind[0]}{a.micro_batch}" for a in make_schedule(name, s, stages, micro_batches)
        )
        for s in range(stages)
    ]


def test_gpipe_three_stages_four_micro_batches():
    assert table("gpipe", 3, 4) == [
        "f0 f1 f2 f3 b0 b1 b2 b3",
        "f0 f1 f2 f3 b0 b1 b2 b3",
        "f0 b0 f1 b1 f2 b2 f3 b3",
    ]


def test_1f1b_three_stages_four_micro_batches():
    assert table("1f1b", 3, 4) == [
        "f0 f1 f2 b0 f3 b1 b2 b3",
        "f0 f1 b0 f2 b1 f3 b2 b3",
        "f0 b0 f1 b1 f2 b2 f3 b3",
    ]


def test_1f1b_fewer_micro_batches_than_stages():
    assert table("1f1b", 4, 2) == [
        "f0 f1 b0 b1",
        "f0 f1 b0 b1",
        "f0 f1 b0 b1",
        "f0 b0 f1 b1",
    ]


def test_one_stage_accumulates_gradients():
    for name in SCHEDULES:
        assert table(name, 1, 3) == ["f0 b0 f1 b1 f2 b2"]
        assert table(name, 1, 0) == [""]


def test_kept_activations_as_documented():
    for stages in range(1, 7):
        for micro_batches in range(1, 9):
            for stage in range(stages):
                last = stage == stages - 1
                fill = make_schedule("gpipe", stage, stages, micro_batches)
                assert kept_activations(fill) == (1 if last else micro_batches)
                lean = make_schedule("1f1b", stage, stages, micro_batches)
                assert kept_activations(lean) == min(micro_batches, stages - stage)


def edges_with_skips(stages: int) -> list[tuple[int, int, str]]:
    chain = [(s, s + 1, f"x{s}") for s in range(stages - 1)]
    return chain + [(s, t, f"skip{s}") for s in range(stages) for t in range(s + 2, stages)]


@pytest.mark.parametrize("name", sorted(SCHEDULES))
def test_simulate_all_small_pipelines_with_skips_finish(name):
    for stages in range(1, 7):
        edges = edges_with_skips(stages)
        for micro_batches in range(1, 11):
            simulate(
                [
                    expand(s, make_schedule(name, s, stages, micro_batches), edges, edges)
                    for s in range(stages)
                ]
            )


@pytest.mark.parametrize("name", sorted(SCHEDULES))
def test_simulate_bubble_is_the_formula(name):
    for stages, micro_batches in ((2, 8), (4, 4), (4, 16), (8, 8)):
        chain = [(s, s + 1, "x") for s in range(stages - 1)]
        programs = [
            expand(s, make_schedule(name, s, stages, micro_batches), chain, chain, (1.0, 2.0))
            for s in range(stages)
        ]
        result = simulate(programs)
        assert result.idle_fraction == pytest.approx(ideal_bubble(stages, micro_batches))


def test_simulate_circle_of_waiting_ranks_is_reported():
    wait = [Step(Action("forward", 0), receives=((1, "a"),), sends=((1, "b"),))]
    also = [Step(Action("forward", 0), receives=((0, "b"),), sends=((0, "a"),))]
    with pytest.raises(InternalError, match="stage 0 waits before forward 0 for a from stage 1"):
        simulate([wait, also])


def test_simulate_wrong_micro_batch_order_is_reported():
    sender = [Step(Action("forward", i), sends=((1, "x"),)) for i in (1, 0)]
    receiver = [Step(Action("forward", i), receives=((0, "x"),)) for i in (0, 1)]
    with pytest.raises(InternalError, match="micro-batch 0, but stage 0 sends that of 1"):
        simulate([sender, receiver])


def test_simulate_message_without_receiver_is_reported():
    with pytest.raises(InternalError, match="nobody receives: x from stage 0 to 1"):
        simulate([[Step(Action("forward", 0), sends=((1, "x"),))], []])


def test_make_schedule_unknown_name_lists_the_known():
    with pytest.raises(InvalidArgumentError, match="1f1b, gpipe"):
        make_schedule("zigzag", 0, 2, 4)


def test_ideal_bubble_no_micro_batches_is_zero():
    assert ideal_bubble(4, 0) == 0.0
