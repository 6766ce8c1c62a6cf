"""Every planted fault moves the result far beyond rounding, in one launch."""

from __future__ import annotations

import pytest

import hpcomm

pytestmark = pytest.mark.tensorflow


@pytest.mark.mpi(ranks=[4], timeout=240, unit="s")
def test_planted_faults_are_noticed(mpi_ranks):
    from hpcomm.tensorflow.quiet import import_quietly

    import_quietly()
    from hpcomm.verify.case import Case
    from hpcomm.verify.compare import compare
    from hpcomm.verify.faults import FAULTS
    from hpcomm.verify.references import compute
    from hpcomm.verify.split import SplitTraining

    case = Case("two-towers", partitions=mpi_ranks, replicas=1, micro_batches=3)
    with hpcomm.init() as comm:
        want = compute(case) if comm.rank == 0 else None
        found = {}
        for fault in (None, *FAULTS):
            training = SplitTraining(case, comm, fault)
            got = training.run(case)
            assert any(comm.allgather_object(training.fault_has_acted)), fault
            distances = None if got is None or want is None else compare(got, want)[0]
            found[fault] = comm.broadcast_object(distances)
            training.close()
    assert max(found.pop(None).values()) < 1e-9
    assert set(found) == set(FAULTS)
    for fault, distances in found.items():
        assert distances["gradients"] > 1e-3, fault
        assert distances["weights_after_steps"] > 1e-3, fault
