"""`hpcomm verify`: compare split trainings with the same training in one process."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from hpcomm.choices import SCHEDULES
from hpcomm.cli.flags import (
    Bind,
    Framework,
    JsonFile,
    NumRanks,
    check_num_ranks,
    numbers,
    words,
    wrong_usage,
)
from hpcomm.cli.outputs import check_output

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["app"]

app = typer.Typer(add_completion=False)


@app.command(context_settings={"help_option_names": ["-h", "--help"]})
def verify(
    model: Annotated[
        str, typer.Option(metavar="NAME[,NAME…]", help="Models. (default: all that --list shows)")
    ] = "",
    framework: Annotated[Framework, typer.Option(help="Whose models.")] = Framework.keras,
    strategy: Annotated[
        str, typer.Option(metavar="S[,S…]", help="model, data, hybrid. (default: all)")
    ] = "",
    partitions: Annotated[
        str, typer.Option(metavar="P[,P…]", help="(default: 2,3,4; hybrid: 2)")
    ] = "",
    replicas: Annotated[str, typer.Option(metavar="R[,R…]", help="(default: 2)")] = "",
    micro_batches: Annotated[str, typer.Option(metavar="M[,M…]")] = "1,3,4",
    schedule: Annotated[str, typer.Option(metavar="S[,S…]", help="gpipe, 1f1b.")] = "gpipe",
    dtype: Annotated[str, typer.Option(metavar="D[,D…]", help="float64, float32.")] = "float64",
    batch_size: Annotated[
        str, typer.Option(metavar="B[,B…]", help="Samples of a global batch.")
    ] = "10",
    steps: Annotated[str, typer.Option(metavar="N[,N…]", help="Training steps.")] = "2",
    image_size: Annotated[
        str,
        typer.Option(metavar="N[,N…]", help="Pixels per side, of models that take images."),
    ] = "8",
    seed: Annotated[str, typer.Option(metavar="N[,N…]", help="Of weights and data.")] = "0",
    tolerance: Annotated[
        float | None,
        typer.Option(
            help="Largest relative difference that passes. (default: 1e-9; float32: 1e-3)"
        ),
    ] = None,
    pairwise: Annotated[
        bool,
        typer.Option("--pairwise", help="Only so many cases that every pair of settings occurs."),
    ] = False,
    inject: Annotated[
        str,
        typer.Option(
            metavar="FAULT",
            help="Plant a mistake, which must be noticed: scale, skip or order.",
        ),
    ] = "",
    state: Annotated[
        str,
        typer.Option(metavar="FILE", help="Keep finished cases there and go on where it ended."),
    ] = "",
    json_file: JsonFile = "",
    num_ranks: NumRanks = None,
    bind: Annotated[
        Bind | None, typer.Option(help="How ranks share the CPUs, as in hpcomm run.")
    ] = None,
    verbose: Annotated[
        bool, typer.Option("--verbose/--quiet", help="Show every case on standard error.")
    ] = True,
    list_cases: Annotated[
        bool, typer.Option("--list", help="Show models and cases, run nothing.")
    ] = False,
) -> None:
    """Train the same batches split over ranks and in one process, and compare.

    Every list makes a case of each combination. Compared are loss, outputs, gradients and the
    weights after some steps; the figure is max|a-b| / max|b| of each tensor. The reference is the
    framework's own code on the unsplit model. Exit code 0 only if every case passes.
    """
    from hpcomm.cli.verify_job import VerifyOptions, check, control, list_all, work
    from hpcomm.launch import under_launcher
    from hpcomm.verify.case import MODELS, TOLERANCES, make_cases, make_grids
    from hpcomm.verify.case import pairwise as reduce
    from hpcomm.verify.faults import FAULTS

    if inject and inject not in FAULTS:
        raise typer.BadParameter(f"must be one of {', '.join(FAULTS)}", param_hint="--inject")
    check_num_ranks(num_ranks)
    schedules = _some_of(SCHEDULES, schedule, "--schedule")
    dtypes = _some_of(tuple(TOLERANCES), dtype, "--dtype")
    with wrong_usage():
        grids = make_grids(
            words(strategy), numbers(partitions, "--partitions"), numbers(replicas, "--replicas")
        )
        cases = make_cases(
            words(model) or list(MODELS),
            grids,
            numbers(micro_batches, "--micro-batches") or [1],
            schedules,
            framework=framework.value,
            dtypes=dtypes,
            image_sizes=numbers(image_size, "--image-size", required=True),
            batch_sizes=numbers(batch_size, "--batch-size", required=True),
            steps=numbers(steps, "--steps", required=True),
            seeds=numbers(seed, "--seed", smallest=0, required=True),
        )
        check(cases, num_ranks)
    if pairwise:
        cases = reduce(cases)
    if list_cases:
        list_all(cases)
        return
    with wrong_usage():
        check_output("--state", state, makes_folders=True)
        if state:  # the report may go to the same folder
            Path(state).absolute().parent.mkdir(parents=True, exist_ok=True)
        check_output("--json", "" if json_file == "-" else json_file)
    options = VerifyOptions(
        cases=cases,
        tolerance=tolerance,
        inject=inject or None,
        state=state,
        json_file=json_file,
        verbose=verbose,
    )
    if under_launcher():
        passed = work(options)
    else:
        passed = control(
            options, sys.argv[1:], num_ranks=num_ranks, bind=bind.value if bind else ""
        )
    if not passed:
        raise typer.Exit(1)


def _some_of(known: Sequence[str], text: str, flag: str) -> list[str]:
    """Split a list of names, of which there must be at least one and no unknown one."""
    found = words(text)
    if not found or not set(found) <= set(known):
        raise typer.BadParameter(f"must be some of {', '.join(known)}", param_hint=flag)
    return found
