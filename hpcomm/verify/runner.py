"""Run many cases in one job of enough ranks."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from hpcomm.errors import InvalidArgumentError, UnsupportedError
from hpcomm.verify.case import by_split
from hpcomm.verify.compare import compare
from hpcomm.verify.references import reference
from hpcomm.verify.result import make_result
from hpcomm.verify.split import SplitTraining
from hpcomm.verify.state import state_key

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from hpcomm.communicator import Communicator
    from hpcomm.verify.case import Case
    from hpcomm.verify.state import StateFile


def run_cases(
    cases: Sequence[Case],
    comm: Communicator,
    *,
    tolerance: float | None = None,
    references: Path,
    state: StateFile,
    inject: str | None = None,
    on_result: Callable[[dict[str, Any]], None] | None = None,
) -> None:
    """Work through the cases that the state file does not have yet.

    Collective over ``comm``. A case uses its first ranks; the others wait for it at the next split.

    Args:
        cases: what to verify.
        comm: all ranks.
        tolerance: largest relative difference that passes; None takes that of a case's dtype.
        references: folder of the references.
        state: where results are kept; only rank 0 touches it.
        inject: fault to plant.
        on_result: called on rank 0 with every new result.

    Raises:
        InvalidArgumentError: a case needs more ranks than there are, or a fault had no effect.
    """
    largest = max(case.world_size for case in cases)
    if largest > comm.size:
        raise InvalidArgumentError(
            f"verify: {largest} ranks are needed, this job has {comm.size}; start it with more, or "
            "choose other --partitions and --replicas"
        )
    done = comm.broadcast_object(list(state.results()) if comm.rank == 0 else None)
    for group in by_split(case for case in cases if state_key(case.key, inject) not in done):
        inside = comm.rank < group[0].world_size
        part = comm.split(0 if inside else None, name=f"verify {group[0].model}")
        if part is None:
            continue
        with part:
            _run_group(group, part, tolerance, references, state, inject, on_result)
    comm.barrier()


def _run_group(
    group: Sequence[Case],
    comm: Communicator,
    tolerance: float | None,
    references: Path,
    state: StateFile,
    inject: str | None,
    on_result: Callable[[dict[str, Any]], None] | None,
) -> None:
    """Verify cases that share compiled stages."""
    root = comm.rank == 0
    training: SplitTraining | None = None
    for case in group:
        begun_s = time.monotonic()
        bound = case.tolerance if tolerance is None else tolerance
        key = state_key(case.key, inject)
        if root:
            state.begin(key)
        want = reference(case, references) if root else None
        try:
            if training is None:
                training = SplitTraining(case, comm, inject)
            got = training.run(case)
        except (InvalidArgumentError, UnsupportedError) as error:
            # Raised alike on every rank, and the communicator is as good as before.
            result = make_result(case, bound, time.monotonic() - begun_s, error=str(error))
        else:
            if not any(comm.allgather_object(training.fault_has_acted)):
                raise InvalidArgumentError(
                    f"--inject {inject}: had no effect in: {case.title}; choose a case where it can"
                )
            seconds = time.monotonic() - begun_s
            result = {}
            if got is not None and want is not None:
                distances, where = compare(got, want)
                result = make_result(case, bound, seconds, distances=distances, where=where)
        if root:
            state.finish(key, result)
            if on_result is not None:
                on_result(result)
    if training is not None:
        training.close()
