"""What the recorded spans of all ranks say together: idle time, bubble, exposed communication.

A rank that waits for a message cannot know why. With the records of all ranks side by side the wait
splits in two: until the sender began to send (idle: the pipeline had nothing for this rank), and
from then on (communication). Pure functions over what ``hpcomm.trace`` recorded.
"""

from __future__ import annotations

import itertools
import statistics
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from hpcomm.trace import Span, StepRecord

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

_COMMUNICATION = ("send", "receive", "allreduce")

_HALVES = {
    "forward": ("forward",),
    "backward": ("backward",),
    # The last stage runs both at once.
    "forward and backward": ("forward", "backward"),
    # Once in a step, for all micro-batches; waits for nobody.
    "regularization": (),
}

Steps = dict[int, list[StepRecord]]


@dataclass(frozen=True, slots=True)
class Summary:
    """Figures of a run.

    Attributes:
        steps: steps that were looked at.
        step_seconds: median length of a step.
        bubble_fraction: measured share of the pipeline's time in which its ranks did not compute;
            median over steps, mean over replicas.
        ideal_bubble: (p-1)/(m+p-1) for p stages and m micro-batches.
        expected_bubble: what the measured times of forward and backward of each stage make of it,
            that is the ideal plus the imbalance of the stages.
        compute_seconds: mean over ranks of the time spent computing, all steps.
        comm_seconds: mean over ranks of the time with communication in progress, hidden or not.
        exposed_comm_seconds: mean over ranks of the time blocked in communication.
        idle_seconds: mean over ranks of the time with nothing to do.
    """

    steps: int
    step_seconds: float
    bubble_fraction: float
    ideal_bubble: float
    expected_bubble: float
    compute_seconds: float
    comm_seconds: float
    exposed_comm_seconds: float
    idle_seconds: float


def ideal_bubble(partitions: int, micro_batches: int) -> float:
    """Return the idle share of a pipeline of equal stages, (p-1)/(m+p-1), for gpipe and 1f1b.

    Args:
        partitions: p.
        micro_batches: m.

    Source: Narayanan et al., SC 2021, section 2.2 (relative to the total time here).
    """
    if micro_batches < 1:
        return 0.0
    return (partitions - 1) / (micro_batches + partitions - 1)


def resolve_idle(steps_by_rank: Steps) -> Steps:
    """Split waiting into idle time and communication, and fill gaps with idle spans.

    Args:
        steps_by_rank: records of all ranks on one clock, as ``trace.gather`` returns them.

    Returns:
        The same with spans of category "idle" added; waits whose counterpart was not recorded stay
        as they are.
    """
    sent = {
        (span.step, rank, span.peer, span.name, span.micro_batch): span.start_ns
        for rank, span in _all_spans(steps_by_rank)
        if span.category == "send"
    }
    joined: dict[tuple[int, str | None, str], int] = {}
    for _, span in _all_spans(steps_by_rank):
        if span.category == "allreduce" and not span.hidden:
            key = (span.step, span.group, span.name)
            joined[key] = max(joined.get(key, span.start_ns), span.start_ns)

    def ready_ns(rank: int, span: Span) -> int | None:
        if span.category == "receive":
            return sent.get((span.step, span.peer or 0, rank, span.name, span.micro_batch))
        if span.category == "allreduce" and span.group is not None:
            return joined.get((span.step, span.group, span.name))
        return None

    resolved: Steps = {}
    for rank, steps in steps_by_rank.items():
        resolved[rank] = []
        for record in steps:
            spans: list[Span] = []
            for span in record.spans:
                begin_ns = None if span.hidden else ready_ns(rank, span)
                spans.extend([span] if begin_ns is None else _split(span, begin_ns))
            spans.extend(_gaps(record, spans))
            spans.sort(key=lambda span: (span.start_ns, span.end_ns))
            resolved[rank].append(replace(record, spans=spans))
    return resolved


def summarize(steps_by_rank: Steps, partitions: int, *, skip_steps: int = 1) -> Summary:
    """Compute the figures of a run.

    Args:
        steps_by_rank: as ``resolve_idle`` returns them; world rank = replica · partitions + stage.
        partitions: stages of a pipeline.
        skip_steps: steps at the start to leave out, because they compile; kept if there are no
            others.

    Returns:
        The figures; all 0 where nothing was recorded.
    """
    lanes = {rank: _without_first(steps, skip_steps) for rank, steps in steps_by_rank.items()}
    count = min((len(steps) for steps in lanes.values()), default=0)
    if count == 0:
        return Summary(0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0)
    pipelines = [
        [lanes[first + stage] for stage in range(partitions)]
        for first in range(0, len(lanes), partitions)
    ]
    measured = []
    for pipeline in pipelines:
        per_step = [measured_bubble([lane[index] for lane in pipeline]) for index in range(count)]
        measured.append(statistics.median(per_step))
    computed = {s.micro_batch for s in lanes[0][-1].spans if s.category == "compute"}
    micro_batches = len(computed - {None})
    everything = [[span for record in steps for span in record.spans] for steps in lanes.values()]
    ranks = len(everything)

    def mean_seconds(categories: Sequence[str], *, hidden: bool) -> float:
        return (
            sum(
                _union_ns(s for s in spans if s.category in categories and (hidden or not s.hidden))
                for spans in everything
            )
            / ranks
            / 1e9
        )

    return Summary(
        steps=count,
        step_seconds=statistics.median(
            (record.end_ns - record.start_ns) / 1e9 for record in lanes[0]
        ),
        bubble_fraction=statistics.mean(measured),
        ideal_bubble=ideal_bubble(partitions, max(1, micro_batches)),
        expected_bubble=statistics.mean(expected_bubble(pipeline) for pipeline in pipelines),
        compute_seconds=mean_seconds(("compute", "update"), hidden=True),
        comm_seconds=mean_seconds(_COMMUNICATION, hidden=True),
        exposed_comm_seconds=mean_seconds(_COMMUNICATION, hidden=False),
        idle_seconds=mean_seconds(("idle",), hidden=False),
    )


def measured_bubble(pipeline: Sequence[StepRecord]) -> float:
    """Return the share of one step in which the stages did not compute.

    Args:
        pipeline: the record of every stage for the same step.

    Returns:
        1 - computing time / (stages · time from the first computation's begin to the last one's
        end); 0 where nothing was computed.
    """
    lanes = [_stage_work(record) for record in pipeline]
    spans = [span for lane in lanes for span in lane]
    if not spans:
        return 0.0
    window_ns = max(span.end_ns for span in spans) - min(span.start_ns for span in spans)
    busy_ns = sum(span.duration_ns for span in spans)
    return max(0.0, 1.0 - busy_ns / (len(pipeline) * window_ns)) if window_ns else 0.0


def expected_bubble(pipeline: Sequence[Sequence[StepRecord]]) -> float:
    """Return the bubble that the stages' own times imply, communication being free.

    Each stage's mean times of forward and backward over its steps are played through the recorded
    order: a forward waits for the same micro-batch of the stage before, a backward for that of the
    stage behind.

    Args:
        pipeline: for every stage its steps.

    Returns:
        Idle share of the played step; 0 where nothing was recorded.
    """
    orders: list[list[tuple[str, int]]] = []
    durations: list[dict[str, float]] = []
    for lane in pipeline:
        by_kind: dict[str, list[int]] = {}
        for record in lane:
            for span in _stage_work(record):
                by_kind.setdefault(span.name, []).append(span.duration_ns)
        orders.append([(span.name, span.micro_batch or 0) for span in _stage_work(lane[-1])])
        durations.append({kind: statistics.mean(values) for kind, values in by_kind.items()})
    done: dict[tuple[int, str, int], float] = {}
    clock = [0.0] * len(orders)
    position = [0] * len(orders)
    while any(position[stage] < len(order) for stage, order in enumerate(orders)):
        moved = False
        for stage, order in enumerate(orders):
            while position[stage] < len(order):
                kind, micro_batch = order[position[stage]]
                before = _predecessor(orders, stage, kind, micro_batch)
                if before is not None and before not in done:
                    break
                ready = done[before] if before is not None else 0.0
                clock[stage] = max(clock[stage], ready) + durations[stage][kind]
                for half in _HALVES[kind]:
                    done[stage, half, micro_batch] = clock[stage]
                position[stage] += 1
                moved = True
        if not moved:
            return 0.0
    busy = sum(durations[stage][kind] for stage, order in enumerate(orders) for kind, _ in order)
    makespan = max(clock, default=0.0)
    return 1.0 - busy / (len(orders) * makespan) if makespan else 0.0


def _predecessor(
    orders: Sequence[Sequence[tuple[str, int]]], stage: int, kind: str, micro_batch: int
) -> tuple[int, str, int] | None:
    """Return what must be done on the neighbouring stage before an action can begin."""
    if not _HALVES[kind]:
        return None
    half = "backward" if kind == "backward" else "forward"
    neighbour = stage + (1 if half == "backward" else -1)
    if not 0 <= neighbour < len(orders):
        return None
    found = any(half in _HALVES[k] and m == micro_batch for k, m in orders[neighbour])
    return (neighbour, half, micro_batch) if found else None


def representative_step(steps_by_rank: Steps) -> int:
    """Return the number of the step whose length is the median, the first one left out."""
    lane = _without_first(next(iter(steps_by_rank.values())), 1)
    ordered = sorted(lane, key=lambda record: record.end_ns - record.start_ns)
    return ordered[len(ordered) // 2].step


def _stage_work(record: StepRecord) -> list[Span]:
    """Return the computations of a stage; what it did ahead of the first micro-batch is no part."""
    work = [span for span in record.spans if span.category == "compute" and span.name in _HALVES]
    return list(itertools.dropwhile(lambda span: span.micro_batch is None, work))


def _all_spans(steps_by_rank: Steps) -> Iterable[tuple[int, Span]]:
    for rank, steps in steps_by_rank.items():
        for record in steps:
            for span in record.spans:
                yield rank, span


def _without_first(steps: Sequence[StepRecord], skip: int) -> list[StepRecord]:
    kept = list(steps)
    return kept[skip:] if len(kept) > skip else kept


def _split(span: Span, begin_ns: int) -> list[Span]:
    """Cut a wait at the moment when its counterpart began."""
    cut_ns = min(max(begin_ns, span.start_ns), span.end_ns)
    idle = replace(span, category="idle", end_ns=cut_ns, nbytes=None)
    rest = replace(span, start_ns=cut_ns)
    return [part for part in (idle, rest) if part.duration_ns > 0]


def _gaps(record: StepRecord, spans: Sequence[Span]) -> list[Span]:
    """Return idle spans where the main thread recorded nothing."""
    gaps = []
    reached_ns = record.start_ns
    for span in sorted((s for s in spans if not s.hidden), key=lambda span: span.start_ns):
        if span.start_ns > reached_ns:
            gaps.append(Span("idle", "idle", reached_ns, span.start_ns, record.step))
        reached_ns = max(reached_ns, span.end_ns)
    if record.end_ns > reached_ns:
        gaps.append(Span("idle", "idle", reached_ns, record.end_ns, record.step))
    return gaps


def _union_ns(spans: Iterable[Span]) -> int:
    """Return the time covered by at least one of the spans."""
    total = 0
    reached: int | None = None
    for span in sorted(spans, key=lambda span: span.start_ns):
        start_ns = span.start_ns if reached is None else max(span.start_ns, reached)
        total += max(0, span.end_ns - start_ns)
        reached = span.end_ns if reached is None else max(reached, span.end_ns)
    return total
