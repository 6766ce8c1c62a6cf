"""What `hpcomm verify` does: the process that starts ranks, and the ranks."""

from __future__ import annotations

import json
import os
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

from hpcomm.cli.outputs import take_standard_output, write_report
from hpcomm.errors import HpcommError, InvalidArgumentError
from hpcomm.models import registry
from hpcomm.verify.case import varying
from hpcomm.verify.result import make_report, make_result, make_table, restate
from hpcomm.verify.state import StateFile, state_key

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hpcomm.verify.case import Case

__all__ = ["VerifyOptions", "check", "control", "list_all", "work"]

STATE_VARIABLE = "HPCOMM_VERIFY_STATE"
"""Path of the state file, from the process that starts ranks to them."""


@dataclass(frozen=True, slots=True)
class VerifyOptions:
    """What to verify and where results go.

    Attributes:
        cases: all of them, finished ones included.
        tolerance: largest relative difference that passes; None takes that of a case's dtype.
        inject: fault to plant, or None.
        state: file of finished cases; empty for a temporary one.
        json_file: where the report goes; "-" is standard output, empty is nowhere.
        verbose: show every case.
    """

    cases: list[Case]
    tolerance: float | None
    inject: str | None
    state: str
    json_file: str
    verbose: bool

    def tolerance_of(self, case: Case) -> float:
        """Return the largest relative difference with which a case passes."""
        return case.tolerance if self.tolerance is None else self.tolerance


def list_all(cases: Sequence[Case]) -> None:
    """Print the models that can be verified and the cases of these flags."""
    from rich.console import Console
    from rich.table import Table

    from hpcomm.verify.case import MODELS

    console = Console(highlight=False, width=None if sys.stdout.isatty() else 120)
    table = Table("model", "what it is", box=None)
    for name in MODELS:
        table.add_row(name, registry.get(name).summary)
    console.print(table)
    console.print(f"\n{len(cases)} cases:")
    settings = varying(cases)
    for case in cases:
        console.print(f"  {case.title}{case.settings(settings)}")


def check(cases: Sequence[Case], num_ranks: int | None) -> None:
    """Refuse what cannot work before anything is started.

    Args:
        cases: what to verify.
        num_ranks: ranks to start; None for as many as are needed.

    Raises:
        InvalidArgumentError: too few ranks.
    """
    needed = max(case.world_size for case in cases)
    if num_ranks is not None and num_ranks < needed:
        raise InvalidArgumentError(
            f"-n {num_ranks}: the largest case needs {needed} ranks; leave -n out, or choose other "
            "--partitions and --replicas"
        )


def control(
    options: VerifyOptions, arguments: Sequence[str], *, num_ranks: int | None, bind: str
) -> bool:
    """Start ranks until every case has a result, and report.

    A job that dies loses one case, which fails; a new job goes on behind it. A signal to this
    process ends the command and leaves the case without a result.

    Args:
        options: what to verify.
        arguments: the command line, for the ranks.
        num_ranks: ranks to start; None for as many as the largest case needs.
        bind: how ranks share CPUs; empty chooses.

    Returns:
        Whether every case passed.

    Raises:
        ModelError: a case has more partitions than its model has layers.
    """
    from hpcomm.launch import relaunch_under

    needed = max(case.world_size for case in options.cases)
    with tempfile.TemporaryDirectory(prefix="hpcomm-verify-") as folder:
        state = StateFile(Path(options.state or Path(folder) / "state.jsonl"))
        os.environ[STATE_VARIABLE] = str(state.path.absolute())
        _tell_outdated(options, state)
        _check_layers(_missing(options, state))
        while True:
            before = len(_missing(options, state))
            if not before:
                break
            num_begun = state.num_begun()
            code = relaunch_under(
                num_ranks or needed, arguments, quiet=not options.verbose, bind=bind
            )
            if code in (2, 130):
                sys.exit(code)
            # A case that an interrupted run began before is not to blame for this job.
            is_blamed = code and state.num_begun() > num_begun and _blame(options, state, code)
            if not is_blamed and len(_missing(options, state)) == before:
                if not code:
                    raise HpcommError(
                        "verify: the sources of hpcomm changed under way; start again"
                    )
                sys.exit(code)
        return _report(options, state)


def work(options: VerifyOptions) -> bool:
    """Verify as one rank of a job; rank 0 reports if nobody else will.

    Args:
        options: equal on every rank.

    Returns:
        Whether every case passed; True where another process will tell.
    """
    import hpcomm
    from hpcomm.environment import environment
    from hpcomm.verify.references import versions

    versions()  # loads the framework, quietly if it is done first
    from hpcomm.verify.runner import run_cases

    standard_output = take_standard_output() if options.json_file == "-" else None
    controlled = os.environ.get(STATE_VARIABLE, "")
    settings = varying(options.cases)
    with hpcomm.init() as comm, tempfile.TemporaryDirectory(prefix="hpcomm-verify-") as folder:
        path = Path(controlled or options.state or Path(folder) / "state.jsonl")
        state = StateFile(path)
        if comm.rank == 0:
            if not controlled:
                _tell_outdated(options, state)
            state.open(environment())
        run_cases(
            options.cases,
            comm,
            tolerance=options.tolerance,
            references=path.with_name(path.name + ".references"),
            state=state,
            inject=options.inject,
            on_result=(lambda result: _show(result, settings)) if options.verbose else None,
        )
        if controlled:
            return True
        passed = _report(options, state, standard_output) if comm.rank == 0 else None
        return bool(comm.broadcast_object(passed))


def _check_layers(cases: Sequence[Case]) -> None:
    """Refuse more partitions than a model has layers before anything is started."""
    from hpcomm.cli.layers import Question, check_partitions

    most: dict[tuple[str, int | None], int] = {}
    for case in cases:
        key = (case.model, case.image_size)
        most[key] = max(most.get(key, 1), case.partitions)
    check_partitions(
        *(
            Question(model, number, image_size, dropout=0.0, label=f"--model {model}: ")
            for (model, image_size), number in most.items()
        )
    )


def _missing(options: VerifyOptions, state: StateFile) -> list[Case]:
    done = state.results()
    return [case for case in options.cases if state_key(case.key, options.inject) not in done]


def _tell_outdated(options: VerifyOptions, state: StateFile) -> None:
    """Say once that results of other sources are there which do not count."""
    outdated = state.outdated()
    count = sum(state_key(case.key, options.inject) in outdated for case in options.cases)
    if count:
        sys.stderr.write(
            f"verify: {state.path} has results of other sources of hpcomm for {count} of the "
            "cases, which run again\n"
        )


def _blame(options: VerifyOptions, state: StateFile, code: int) -> bool:
    """Give the case in which a job died a result; tell whether there was one."""
    begun = state.unfinished()
    for case in options.cases:
        key = state_key(case.key, options.inject)
        if key == begun:
            error = f"the job ended with exit code {code} in this case; its message stands above"
            state.finish(key, make_result(case, options.tolerance_of(case), 0.0, error=error))
            return True
    return False


def _report(
    options: VerifyOptions, state: StateFile, standard_output: TextIO | None = None
) -> bool:
    done = state.results()
    results = [
        restate(case, options.tolerance_of(case), done[state_key(case.key, options.inject)])
        for case in options.cases
    ]
    report = make_report(results, state.environment() or {})
    report["command"] = " ".join(["hpcomm", *sys.argv[1:]])
    write_report(options.json_file, json.dumps(report, indent=1), standard_output)
    from rich.console import Console

    width = None if sys.stderr.isatty() else 120
    console = Console(stderr=True, highlight=False, width=width)
    if options.verbose:
        console.print(make_table(results, varying(options.cases)))
    failed = [result for result in results if not result["passed"]]
    if failed:
        console.print(f"verify: {len(failed)} of {len(results)} cases FAILED", style="bold red")
    elif options.verbose:
        console.print(f"verify: all {len(results)} cases passed")
    return not failed


def _show(result: dict[str, Any], settings: Sequence[str]) -> None:
    distances = result["max_rel_error"]
    figures = (
        " ".join(f"{name} {value:.1e}" for name, value in distances.items())
        if distances
        else result["error"]
    )
    verdict = "passed" if result["passed"] else "FAILED"
    more = "".join(f" {name.replace('_', ' ')} {result[name]}" for name in settings)
    sys.stderr.write(
        f"{verdict}  {result['model']} {result['strategy']} {result['partitions']}×"
        f"{result['replicas']} micro-batches {result['micro_batches']}{more}: {figures} "
        f"({result['seconds']:.1f} s)\n"
    )
