from __future__ import annotations

import time

import numpy as np
import pytest

import hpcomm
from hpcomm import timeline
from hpcomm.trace import Recorder, clock_offset_ns, gather


@pytest.mark.mpi(ranks=[1, 2, 3], timeout=60, unit="s")
def test_records_of_all_ranks_meet_on_one_clock(mpi_ranks):
    with hpcomm.init() as comm:
        assert comm.size == mpi_ranks
        # One machine has one clock, and the measurement finds that exactly.
        assert clock_offset_ns(comm) == 0
        recorder = Recorder(comm.rank)
        ring = np.zeros(1000)
        for _ in range(3):
            with recorder.step():
                with recorder.span("compute", "forward", micro_batch=0):
                    time.monotonic_ns()
                if comm.rank > 0:
                    with recorder.span("receive", "x", micro_batch=0, peer=comm.rank - 1):
                        comm.recv(comm.rank - 1, out=ring)
                if comm.rank < comm.size - 1:
                    with recorder.span("send", "x", micro_batch=0, peer=comm.rank + 1):
                        comm.send(ring + 1, comm.rank + 1)
        records = gather(comm, recorder)
        assert (records is not None) == (comm.rank == 0)
        if records is not None:
            assert sorted(records) == list(range(comm.size))
            assert all([r.step for r in steps] == [0, 1, 2] for steps in records.values())
            sends = {
                (rank, record.step): span
                for rank, steps in records.items()
                for record in steps
                for span in record.spans
                if span.category == "send"
            }
            for rank in range(1, comm.size):
                for record in records[rank]:
                    (wait,) = [s for s in record.spans if s.category == "receive"]
                    assert sends[rank - 1, record.step].start_ns <= wait.end_ns
            resolved = timeline.resolve_idle(records)
            assert timeline.summarize(resolved, comm.size).steps == 2
