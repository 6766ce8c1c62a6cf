from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.pipeline import MS, pipeline_records

from hpcomm.timeline import (
    expected_bubble,
    ideal_bubble,
    measured_bubble,
    representative_step,
    resolve_idle,
    summarize,
)
from hpcomm.trace import Span, StepRecord


@pytest.mark.parametrize(
    ("stages", "micro_batches"), [(1, 1), (1, 4), (2, 1), (2, 8), (3, 4), (4, 3)]
)
def test_bubble_of_equal_stages_is_the_ideal(stages, micro_batches):
    records = pipeline_records([10] * stages, [20] * stages, micro_batches)
    lanes = list(records.values())
    want = (stages - 1) / (micro_batches + stages - 1)
    assert ideal_bubble(stages, micro_batches) == pytest.approx(want)
    assert measured_bubble([lane[0] for lane in lanes]) == pytest.approx(want)
    assert expected_bubble(lanes) == pytest.approx(want)


def test_bubble_counts_imbalance():
    records = pipeline_records([10, 30], [20, 40], 4)
    lanes = list(records.values())
    window = (10 + 4 * 30) + (4 * 40 + 20)
    want = 1 - 4 * (10 + 30 + 20 + 40) / (2 * window)
    assert want > ideal_bubble(2, 4)
    assert measured_bubble([lane[0] for lane in lanes]) == pytest.approx(want)
    assert expected_bubble(lanes) == pytest.approx(want)


def test_expected_bubble_knows_a_last_stage_that_does_both_at_once():
    """Two equal stages, of which the last runs forward and backward of a micro-batch together."""
    forward, both, backward, pieces = 10, 30, 20, 4
    first, last = [], []
    clock = 0
    for m in range(pieces):
        first.append(Span("compute", "forward", clock * MS, (clock + forward) * MS, 0, m))
        clock += forward
    for m in range(pieces):
        begin = forward + m * both
        last.append(Span("compute", "forward and backward", begin * MS, (begin + both) * MS, 0, m))
        begin += both
        first.append(Span("compute", "backward", begin * MS, (begin + backward) * MS, 0, m))
    end = forward + pieces * both + backward
    lanes = [[StepRecord(0, 0, end * MS, first)], [StepRecord(0, 0, end * MS, last)]]
    assert measured_bubble([lane[0] for lane in lanes]) == pytest.approx(1 / 5)
    assert expected_bubble(lanes) == pytest.approx(1 / 5) == pytest.approx(ideal_bubble(2, 4))


def test_regularization_is_computing_once_the_pipeline_has_begun():
    """Ahead of the first micro-batch, where the last stage does it, it is no part of the bubble."""
    first = [
        Span("compute", "forward", 0, 10 * MS, 0, 0),
        Span("compute", "regularization", 10 * MS, 14 * MS, 0),
        Span("compute", "backward", 40 * MS, 60 * MS, 0, 0),
    ]
    last = [
        Span("compute", "regularization", -9 * MS, -5 * MS, 0),
        Span("compute", "forward and backward", 10 * MS, 40 * MS, 0, 0),
    ]
    lanes = [[StepRecord(0, 0, 60 * MS, first)], [StepRecord(0, -9 * MS, 60 * MS, last)]]
    want = 1 - (10 + 4 + 20 + 30) / (2 * 60)
    assert measured_bubble([lane[0] for lane in lanes]) == pytest.approx(want)
    assert expected_bubble(lanes) == pytest.approx(want)
    assert summarize(dict(enumerate(lanes)), 2).ideal_bubble == ideal_bubble(2, 1)


def test_expected_bubble_leaves_communication_out():
    quick = pipeline_records([10, 10], [20, 20], 4)
    slow = pipeline_records([10, 10], [20, 20], 4, send_ms=5)
    assert expected_bubble(list(slow.values())) == pytest.approx(
        expected_bubble(list(quick.values()))
    )
    assert measured_bubble([lane[0] for lane in slow.values()]) > ideal_bubble(2, 4)


@settings(max_examples=30, deadline=None)
@given(
    times=st.lists(st.tuples(st.integers(1, 30), st.integers(1, 30)), min_size=1, max_size=4),
    micro_batches=st.integers(1, 6),
)
def test_expected_bubble_replays_any_recorded_pipeline(times, micro_batches):
    records = pipeline_records([f for f, _ in times], [b for _, b in times], micro_batches)
    lanes = list(records.values())
    assert expected_bubble(lanes) == pytest.approx(
        measured_bubble([lane[0] for lane in lanes]), abs=1e-9
    )


def test_resolve_idle_splits_a_wait_where_the_sender_began():
    records = {
        0: [StepRecord(0, 0, 10 * MS, [Span("send", "x", 4 * MS, 6 * MS, 0, 0, 1, 8)])],
        1: [StepRecord(0, 0, 10 * MS, [Span("receive", "x", 1 * MS, 6 * MS, 0, 0, 0, 8)])],
    }
    spans = [
        (s.category, s.start_ns // MS, s.end_ns // MS) for s in resolve_idle(records)[1][0].spans
    ]
    assert spans == [("idle", 0, 1), ("idle", 1, 4), ("receive", 4, 6), ("idle", 6, 10)]


def test_resolve_idle_waits_for_the_last_rank_of_an_allreduce():
    def wait(start):
        return Span("allreduce", "kernel", start * MS, 8 * MS, 0, group="replicas 0")

    records = {rank: [StepRecord(0, 0, 8 * MS, [wait(start)])] for rank, start in ((0, 2), (1, 7))}
    resolved = resolve_idle(records)
    late = [(s.category, s.start_ns // MS) for s in resolved[0][0].spans]
    assert late == [("idle", 0), ("idle", 2), ("allreduce", 7)]
    assert [s.category for s in resolved[1][0].spans] == ["idle", "allreduce"]


def test_resolve_idle_leaves_unmatched_waits_alone():
    lonely = Span("receive", "x", 0, 5 * MS, 0, 0, 1)
    hidden = Span("allreduce", "g", 0, 5 * MS, 0, group="a", hidden=True)
    resolved = resolve_idle({0: [StepRecord(0, 0, 5 * MS, [lonely, hidden])]})
    assert sorted(s.category for s in resolved[0][0].spans) == ["allreduce", "receive"]


def test_summary_counts_hidden_communication_once_and_not_as_exposed():
    spans = [
        Span("compute", "forward", 0, 10 * MS, 0, 0),
        Span("allreduce", "a", 2 * MS, 6 * MS, 0, group="g", hidden=True),
        Span("send", "x", 4 * MS, 8 * MS, 0, 0, 1, hidden=True),
        Span("receive", "y", 10 * MS, 13 * MS, 0, 0, 1),
    ]
    summary = summarize(resolve_idle({0: [StepRecord(0, 0, 15 * MS, spans)]}), 1)
    assert summary.comm_seconds == pytest.approx(9e-3)
    assert summary.exposed_comm_seconds == pytest.approx(3e-3)
    assert summary.idle_seconds == pytest.approx(2e-3)
    assert summary.compute_seconds == pytest.approx(10e-3)
    assert summary.step_seconds == pytest.approx(15e-3)


def test_summary_leaves_the_compiling_step_out():
    records = pipeline_records([10, 10], [20, 20], 3, steps=3)
    slow = records[0][0].spans[0]
    records[0][0].spans[0] = Span("compute", "forward", slow.start_ns - 900 * MS, slow.end_ns, 0, 0)
    summary = summarize(resolve_idle(records), 2)
    assert summary.steps == 2
    assert summary.bubble_fraction == pytest.approx(1 / 4)
    assert summary.expected_bubble == pytest.approx(1 / 4)
    assert summary.ideal_bubble == pytest.approx(1 / 4)
    assert representative_step(records) in (1, 2)


def test_summary_takes_the_mean_over_replicas():
    one = pipeline_records([10, 10], [10, 10], 1)
    other = pipeline_records([10, 10], [10, 10], 1)
    records = {0: one[0], 1: one[1], 2: other[0], 3: other[1]}
    assert summarize(resolve_idle(records), 2).bubble_fraction == pytest.approx(0.5)


def test_summary_of_nothing_is_zero():
    assert summarize({0: [], 1: []}, 2).steps == 0
