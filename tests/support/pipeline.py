"""Records of an imagined pipeline, in the form a recorder leaves them."""

from __future__ import annotations

from hpcomm.trace import Span, StepRecord

MS = 1_000_000


def pipeline_records(
    forward_ms: list[int],
    backward_ms: list[int],
    micro_batches: int,
    *,
    steps: int = 1,
    send_ms: int = 0,
) -> dict[int, list[StepRecord]]:
    """Play a fill-and-drain pipeline with one stage per entry and return the ranks' records.

    A stage waits in a "receive" span from its previous action's end until the message has arrived.
    """
    stages = len(forward_ms)
    records: dict[int, list[StepRecord]] = {stage: [] for stage in range(stages)}
    begin = 0
    for step in range(steps):
        clock = [begin] * stages
        spans: dict[int, list[Span]] = {stage: [] for stage in range(stages)}
        arrival: dict[tuple[str, int, int], int] = {}
        for kind, lengths, order, towards in (
            ("forward", forward_ms, range(stages), 1),
            ("backward", backward_ms, range(stages - 1, -1, -1), -1),
        ):
            for stage in order:
                for micro_batch in range(micro_batches):
                    source = stage - towards
                    if 0 <= source < stages:
                        here = max(clock[stage], arrival[kind, source, micro_batch])
                        spans[stage].append(
                            Span(
                                "receive",
                                f"{kind} x",
                                clock[stage],
                                here,
                                step,
                                micro_batch,
                                source,
                            )
                        )
                        clock[stage] = here
                    end = clock[stage] + lengths[stage] * MS
                    spans[stage].append(Span("compute", kind, clock[stage], end, step, micro_batch))
                    clock[stage] = end
                    target = stage + towards
                    if 0 <= target < stages:
                        end = clock[stage] + send_ms * MS
                        spans[stage].append(
                            Span(
                                "send",
                                f"{kind} x",
                                clock[stage],
                                end,
                                step,
                                micro_batch,
                                target,
                                64,
                            )
                        )
                        clock[stage] = end
                        arrival[kind, stage, micro_batch] = end
        finish = max(clock)
        for stage in range(stages):
            records[stage].append(StepRecord(step, begin, finish, spans[stage]))
        begin = finish
    return records
