"""`hpcomm run`: start a program as several ranks."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from hpcomm.cli.flags import Bind

__all__ = ["app"]

app = typer.Typer(add_completion=False)


def memory_size(text: str) -> int:
    """Parse ``--memory``."""
    from hpcomm.config import parse_size

    try:
        return parse_size(text)
    except ValueError as error:
        raise typer.BadParameter(f"must be {error}") from None


@app.command(
    context_settings={"allow_interspersed_args": False, "help_option_names": ["-h", "--help"]}
)
def run(
    command: Annotated[
        list[str],
        typer.Argument(metavar="CMD…", help="Program and arguments; this Python runs FILE.py."),
    ],
    num_ranks: Annotated[
        int, typer.Option("-n", "--num-ranks", min=1, help="Number of ranks.")
    ] = 1,
    hosts: Annotated[
        str, typer.Option(help="Machines, separated by commas (needs MPI).", metavar="A,B")
    ] = "",
    hostfile: Annotated[
        str, typer.Option(help="File that names machines, as mpiexec takes it.", metavar="FILE")
    ] = "",
    bind: Annotated[
        Bind | None,
        typer.Option(
            help="Give each rank CPUs of its own (core; numa: within a memory node), or not "
            "(none). [default: core if there is a CPU per rank, else none]"
        ),
    ] = None,
    no_mpi: Annotated[
        bool, typer.Option("--no-mpi", help="Start ranks of this machine without MPI.")
    ] = False,
    grace: Annotated[
        float, typer.Option(min=0.0, help="Seconds that survivors of a failure have to finish.")
    ] = 10.0,
    timeout: Annotated[
        float | None,
        typer.Option(min=0.001, help="End the job after so many seconds with exit code 124."),
    ] = None,
    memory: Annotated[
        str, typer.Option(help="Most memory of each rank, such as 2G.", metavar="SIZE")
    ] = "",
    prefix: Annotated[
        bool, typer.Option("--prefix", help="Put the rank before each line of output.")
    ] = False,
) -> None:
    """Start a program as N ranks.

    Uses the mpiexec of this Python's MPI, and starts the ranks itself where there is none. The exit
    code is that of the first rank that failed (128 + signal if it was killed), 130 after Ctrl-C.
    """
    from hpcomm.launch.job import Job, Options

    if no_mpi and (hosts or hostfile):
        raise typer.BadParameter("ranks on several machines need MPI", param_hint="--no-mpi")
    if hosts and hostfile:
        raise typer.BadParameter("pass one of the two", param_hint="--hosts/--hostfile")
    options = Options(
        num_ranks=num_ranks,
        command=command,
        hosts=hosts,
        hostfile=hostfile,
        bind=bind.value if bind else "",
        use_mpi=not no_mpi,
        grace_s=grace,
        timeout_s=float("inf") if timeout is None else timeout,
        memory_bytes=memory_size(memory) if memory else 0,
        prefix=prefix,
    )
    sys.exit(Job(options).run())
