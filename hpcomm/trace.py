"""Record what a rank does with its time, and write it as a Chrome/Perfetto trace.

A trainer wraps what it does in spans; everything derived from them (idle time, bubble, exposed
communication) is computed afterwards in ``hpcomm.timeline``, from the spans of all ranks, so that
recording stays cheap:

    recorder = Recorder(rank=comm.rank)
    with recorder.step():
        with recorder.span("receive", "block3", peer=0, micro_batch=1):
            work.wait()
        with recorder.span("compute", "forward", micro_batch=1):
            ...

``NO_TRACE`` has the same methods and records nothing. Times are nanoseconds of CLOCK_MONOTONIC,
which all processes of a machine share; ``clock_offset_ns`` measures the difference between
machines.
"""

from __future__ import annotations

import contextlib
import json
import statistics
import time
from collections import deque
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from hpcomm.errors import InvalidArgumentError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

CATEGORIES = ("compute", "update", "send", "receive", "allreduce", "other")
"""What a span can be: computation of a stage, optimizer update, time blocked in a call of
communication, or other."""

_PING_ROUNDS = 9


@dataclass(frozen=True, slots=True)
class Span:
    """One thing a rank did.

    Attributes:
        category: one of ``CATEGORIES`` (or ``"idle"``, which only ``hpcomm.timeline`` creates).
        name: what exactly, for a reader ("forward", a tensor's name).
        start_ns: begin, CLOCK_MONOTONIC of the recording machine until ``shifted``.
        end_ns: end.
        step: number of the training step, counted from 0.
        micro_batch: index inside the step, or None.
        peer: world rank at the other end of a send or receive, or None.
        nbytes: size of the message, or None.
        group: name of the communicator of a collective, or None.
        hidden: True where the rank's main thread went on meanwhile (an asynchronous operation in
            flight).
    """

    category: str
    name: str
    start_ns: int
    end_ns: int
    step: int
    micro_batch: int | None = None
    peer: int | None = None
    nbytes: int | None = None
    group: str | None = None
    hidden: bool = False

    @property
    def duration_ns(self) -> int:
        """Length in nanoseconds."""
        return self.end_ns - self.start_ns

    def shifted(self, offset_ns: int) -> Span:
        """Return this span with both times moved by ``offset_ns``."""
        values = asdict(self)
        values["start_ns"] += offset_ns
        values["end_ns"] += offset_ns
        return Span(**values)


@dataclass(slots=True)
class StepRecord:
    """All spans of one step of one rank, with the step's own begin and end."""

    step: int
    start_ns: int
    end_ns: int = 0
    spans: list[Span] = field(default_factory=list)

    def shifted(self, offset_ns: int) -> StepRecord:
        """Return a copy with all times moved by ``offset_ns``."""
        return StepRecord(
            self.step,
            self.start_ns + offset_ns,
            self.end_ns + offset_ns,
            [span.shifted(offset_ns) for span in self.spans],
        )


class Trace(Protocol):
    """What a trainer may call; implemented by ``Recorder`` and by ``NO_TRACE``."""

    def step(self) -> contextlib.AbstractContextManager[None]:
        """Open the next step; spans recorded inside belong to it."""

    def span(
        self,
        category: str,
        name: str,
        *,
        micro_batch: int | None = None,
        peer: int | None = None,
        nbytes: int | None = None,
        group: str | None = None,
    ) -> contextlib.AbstractContextManager[None]:
        """Record the time until the context ends."""

    def flight(
        self,
        category: str,
        name: str,
        start_ns: int,
        end_ns: int,
        *,
        micro_batch: int | None = None,
        peer: int | None = None,
        nbytes: int | None = None,
        group: str | None = None,
    ) -> None:
        """Record an asynchronous operation that ran beside the main thread."""


class _NoTrace:
    """The free default: every method does nothing."""

    def __init__(self) -> None:
        self._context: contextlib.AbstractContextManager[None] = contextlib.nullcontext()

    def step(self) -> contextlib.AbstractContextManager[None]:
        """Return a context that does nothing."""
        return self._context

    def span(
        self,
        category: str,  # noqa: ARG002
        name: str,  # noqa: ARG002
        **_: object,
    ) -> contextlib.AbstractContextManager[None]:
        """Return a context that does nothing."""
        return self._context

    def flight(self, category: str, name: str, start_ns: int, end_ns: int, **_: object) -> None:
        """Do nothing."""


NO_TRACE: Trace = _NoTrace()
"""A trace that records nothing and costs next to nothing."""


class Recorder:
    """Keeps the spans of the last steps of one rank.

    Not thread-safe: only the thread that trains records. Memory is bounded by ``keep_steps``.

    Args:
        rank: world rank, the lane in pictures and traces.
        keep_steps: steps to keep; older ones are dropped. None keeps all.
    """

    def __init__(self, rank: int, *, keep_steps: int | None = 200) -> None:
        if keep_steps is not None and keep_steps < 1:
            raise InvalidArgumentError(f"Recorder: keep_steps must be at least 1, got {keep_steps}")
        self.rank = rank
        self.steps: deque[StepRecord] = deque(maxlen=keep_steps)
        self._next_step = 0
        self._open: StepRecord | None = None

    @contextlib.contextmanager
    def step(self) -> Iterator[None]:
        """Open the next step; spans recorded inside belong to it."""
        if self._open is not None:
            raise InvalidArgumentError("Recorder: a step is open already; steps do not nest")
        record = StepRecord(self._next_step, time.monotonic_ns())
        self._next_step += 1
        self._open = record
        try:
            yield
            record.end_ns = time.monotonic_ns()
            self.steps.append(record)
        finally:
            self._open = None

    @contextlib.contextmanager
    def span(
        self,
        category: str,
        name: str,
        *,
        micro_batch: int | None = None,
        peer: int | None = None,
        nbytes: int | None = None,
        group: str | None = None,
    ) -> Iterator[None]:
        """Record the time until the context ends; outside a step nothing is recorded."""
        if category not in CATEGORIES:
            raise InvalidArgumentError(
                f"Recorder: unknown category {category!r}; known: {CATEGORIES}"
            )
        record = self._open
        start_ns = time.monotonic_ns()
        try:
            yield
        finally:
            if record is not None:
                end_ns = time.monotonic_ns()
                record.spans.append(
                    Span(
                        category,
                        name,
                        start_ns,
                        end_ns,
                        record.step,
                        micro_batch,
                        peer,
                        nbytes,
                        group,
                    )
                )

    def flight(
        self,
        category: str,
        name: str,
        start_ns: int,
        end_ns: int,
        *,
        micro_batch: int | None = None,
        peer: int | None = None,
        nbytes: int | None = None,
        group: str | None = None,
    ) -> None:
        """Record an asynchronous operation that ran beside the main thread."""
        if category not in CATEGORIES:
            raise InvalidArgumentError(
                f"Recorder: unknown category {category!r}; known: {CATEGORIES}"
            )
        if self._open is not None:
            self._open.spans.append(
                Span(
                    category,
                    name,
                    start_ns,
                    end_ns,
                    self._open.step,
                    micro_batch,
                    peer,
                    nbytes,
                    group,
                    True,
                )
            )


def clock_offset_ns(comm: Any) -> int:
    """Measure what must be added to this rank's clock to get rank 0's.

    Collective over ``comm``. Ping-pong with rank 0, one rank after another; the round with the
    shortest trip counts. An offset smaller than half of that trip cannot be told from none and is
    taken as 0, which is exact on one machine.

    Args:
        comm: an ``hpcomm`` communicator.

    Returns:
        Nanoseconds to add to ``time.monotonic_ns()``.
    """
    if comm.rank == 0:
        for peer in range(1, comm.size):
            for _ in range(_PING_ROUNDS):
                comm.recv_object(peer)
                comm.send_object(time.monotonic_ns(), peer)
        return 0
    samples = []
    for _ in range(_PING_ROUNDS):
        sent_ns = time.monotonic_ns()
        comm.send_object(None, 0)
        root_ns = int(comm.recv_object(0))
        trip_ns = time.monotonic_ns() - sent_ns
        samples.append((trip_ns, root_ns - (sent_ns + trip_ns // 2)))
    trip_ns = min(samples)[0]
    offset_ns = int(statistics.median(offset for trip, offset in samples if trip <= 2 * trip_ns))
    return 0 if abs(offset_ns) <= trip_ns // 2 else offset_ns


def gather(comm: Any, recorder: Recorder) -> dict[int, list[StepRecord]] | None:
    """Collect the records of all ranks on rank 0, on rank 0's clock.

    Collective over ``comm``.

    Args:
        comm: world communicator.
        recorder: this rank's recorder.

    Returns:
        Steps by world rank on rank 0, None elsewhere.
    """
    offset_ns = clock_offset_ns(comm)
    mine = [record.shifted(offset_ns) for record in recorder.steps]
    if comm.rank != 0:
        comm.send_object(mine, 0)
        return None
    return {0: mine} | {peer: comm.recv_object(peer) for peer in range(1, comm.size)}


def chrome_events(steps_by_rank: dict[int, list[StepRecord]]) -> list[dict[str, Any]]:
    """Turn records into events of the Chrome trace format.

    Each rank is a process with two lanes: what its main thread did, and what was in flight beside
    it.

    Args:
        steps_by_rank: as ``gather`` returns them, usually after ``timeline.resolve_idle``.

    Returns:
        Events (``ph`` "X" with ``ts`` and ``dur`` in microseconds, "M" for names), earliest time =
        0.

    Source:
        Trace Event Format; opens in chrome://tracing and ui.perfetto.dev.
    """
    starts = [record.start_ns for steps in steps_by_rank.values() for record in steps]
    origin_ns = min(starts, default=0)
    events: list[dict[str, Any]] = []
    for rank, steps in sorted(steps_by_rank.items()):
        events.append(_name_event("process_name", rank, 0, f"rank {rank}"))
        events.append(_name_event("thread_name", rank, 0, "main thread"))
        if any(span.hidden for record in steps for span in record.spans):
            events.append(_name_event("thread_name", rank, 1, "in flight"))
        for record in steps:
            events.extend(_span_event(span, rank, origin_ns) for span in record.spans)
    return events


def write_chrome_trace(path: str | Path, steps_by_rank: dict[int, list[StepRecord]]) -> None:
    """Write a trace that chrome://tracing and ui.perfetto.dev open.

    Args:
        path: file to write (JSON).
        steps_by_rank: as ``gather`` returns them.
    """
    document = {"traceEvents": chrome_events(steps_by_rank), "displayTimeUnit": "ms"}
    Path(path).write_text(json.dumps(document), encoding="utf-8")


def _name_event(what: str, rank: int, lane: int, name: str) -> dict[str, Any]:
    return {"ph": "M", "name": what, "pid": rank, "tid": lane, "args": {"name": name}}


def _span_event(span: Span, rank: int, origin_ns: int) -> dict[str, Any]:
    details: Iterable[tuple[str, Any]] = (
        ("step", span.step),
        ("micro_batch", span.micro_batch),
        ("peer", span.peer),
        ("nbytes", span.nbytes),
        ("group", span.group),
    )
    return {
        "ph": "X",
        "name": span.name,
        "cat": span.category,
        "pid": rank,
        "tid": 1 if span.hidden else 0,
        "ts": (span.start_ns - origin_ns) / 1e3,
        "dur": span.duration_ns / 1e3,
        "args": {key: value for key, value in details if value is not None},
    }
