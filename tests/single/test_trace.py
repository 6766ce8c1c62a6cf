from __future__ import annotations

import json
import threading

import pytest
from support.pipeline import MS, pipeline_records

from hpcomm.errors import InvalidArgumentError
from hpcomm.trace import (
    NO_TRACE,
    Recorder,
    Span,
    StepRecord,
    chrome_events,
    clock_offset_ns,
    write_chrome_trace,
)


def test_recorder_keeps_spans_of_steps_in_order():
    recorder = Recorder(rank=3)
    for _ in range(2):
        with recorder.step():
            with recorder.span("compute", "forward", micro_batch=0):
                pass
            with recorder.span("send", "x", micro_batch=0, peer=1, nbytes=8):
                pass
    assert [record.step for record in recorder.steps] == [0, 1]
    first, second = recorder.steps[1].spans
    assert (first.category, first.name, first.micro_batch, first.step) == (
        "compute",
        "forward",
        0,
        1,
    )
    assert (second.peer, second.nbytes) == (1, 8)
    assert first.start_ns <= first.end_ns <= second.start_ns <= second.end_ns
    assert recorder.steps[1].start_ns <= first.start_ns
    assert second.end_ns <= recorder.steps[1].end_ns


def test_recorder_drops_old_steps_and_numbers_on():
    recorder = Recorder(rank=0, keep_steps=2)
    for _ in range(5):
        with recorder.step():
            pass
    assert [record.step for record in recorder.steps] == [3, 4]


def test_recorder_ignores_spans_outside_a_step():
    recorder = Recorder(rank=0)
    with recorder.span("compute", "forward"):
        pass
    recorder.flight("send", "x", 0, 1)
    assert not recorder.steps


def test_recorder_forgets_a_step_that_failed():
    recorder = Recorder(rank=0)
    with pytest.raises(RuntimeError), recorder.step():
        raise RuntimeError("stage failed")
    with recorder.step():
        pass
    assert [record.step for record in recorder.steps] == [1]


@pytest.mark.parametrize(
    "record",
    [
        lambda recorder: recorder.span("nonsense", "x").__enter__(),
        lambda recorder: recorder.flight("nonsense", "x", 0, 1),
    ],
    ids=["span", "flight"],
)
def test_recorder_refuses_unknown_category(record):
    with pytest.raises(InvalidArgumentError, match="unknown category 'nonsense'"):
        record(Recorder(rank=0))


def test_recorder_refuses_nested_steps_and_empty_history():
    recorder = Recorder(rank=0)
    with pytest.raises(InvalidArgumentError, match="do not nest"), recorder.step(), recorder.step():
        pass
    with pytest.raises(InvalidArgumentError, match="keep_steps"):
        Recorder(rank=0, keep_steps=0)


def test_no_trace_takes_the_same_calls():
    with NO_TRACE.step(), NO_TRACE.span("compute", "forward", micro_batch=1):
        NO_TRACE.flight("send", "x", 0, 1, peer=1)


def test_chrome_events_name_ranks_and_use_microseconds(tmp_path):
    hidden = Span("allreduce", "kernel", 2 * MS, 5 * MS, 0, group="replicas", hidden=True)
    records = {
        0: [StepRecord(0, MS, 6 * MS, [Span("compute", "forward", 2 * MS, 3 * MS, 0, 4), hidden])],
        1: [StepRecord(0, 3 * MS, 6 * MS, [])],
    }
    events = chrome_events(records)
    names = {(e["pid"], e["tid"]): e["args"]["name"] for e in events if e["ph"] == "M" and e["tid"]}
    assert names == {(0, 1): "in flight"}
    compute = next(e for e in events if e.get("cat") == "compute")
    assert (compute["ts"], compute["dur"], compute["args"]) == (
        1000.0,
        1000.0,
        {"step": 0, "micro_batch": 4},
    )
    flight = next(e for e in events if e.get("cat") == "allreduce")
    assert flight["tid"] == 1
    assert flight["args"] == {"step": 0, "group": "replicas"}
    path = tmp_path / "trace.json"
    write_chrome_trace(path, pipeline_records([1, 1], [2, 2], 3))
    written = json.loads(path.read_text())
    assert {e["pid"] for e in written["traceEvents"]} == {0, 1}
    assert all(e["dur"] >= 0 for e in written["traceEvents"] if e["ph"] == "X")


class _Pair:
    """Two ranks in two threads that send each other objects."""

    def __init__(self, rank, box, skew_ns):
        self.rank, self.size, self._box, self.skew_ns = rank, 2, box, skew_ns

    def send_object(self, item, dst):
        if item is not None:
            item += self.skew_ns
        self._box[dst].append(item)
        self._box["event", dst].set()

    def recv_object(self, src):
        while not self._box[self.rank]:
            self._box["event", self.rank].wait(timeout=10)
            self._box["event", self.rank].clear()
        return self._box[self.rank].pop(0)


@pytest.mark.parametrize(("skew_ns", "tolerance_ns"), [(0, 0), (5_000 * MS, 50 * MS)])
def test_clock_offset_finds_the_difference_of_clocks(skew_ns, tolerance_ns):
    box = {0: [], 1: [], ("event", 0): threading.Event(), ("event", 1): threading.Event()}
    found = {}

    def rank(number):
        found[number] = clock_offset_ns(_Pair(number, box, skew_ns))

    threads = [threading.Thread(target=rank, args=(number,)) for number in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=30)
    assert found[0] == 0
    assert abs(found[1] - skew_ns) <= tolerance_ns
