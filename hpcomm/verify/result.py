"""The result of a case, and of many, as they are written and shown."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from hpcomm.verify.case import QUANTITIES, SETTINGS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.table import Table

    from hpcomm.verify.case import Case


def make_result(
    case: Case,
    tolerance: float,
    seconds: float,
    *,
    distances: dict[str, float] | None = None,
    where: dict[str, str] | None = None,
    error: str | None = None,
) -> dict[str, Any]:
    """Return the record of a case.

    Args:
        case: what was compared.
        tolerance: largest relative difference that passes.
        seconds: how long it took.
        distances: largest relative difference by quantity; None where there was an error.
        where: tensor with that difference by quantity.
        error: why nothing could be compared.

    Returns:
        A dictionary for JSON; a difference that is infinite appears as the largest finite number.
    """
    record = _identity(case) | {"tolerance": tolerance, "seconds": round(seconds, 2)}
    if error is not None or distances is None:
        return record | {"max_rel_error": None, "error": error, "passed": False}
    finite = {name: min(distances[name], sys.float_info.max) for name in QUANTITIES}
    return record | {
        "max_rel_error": finite,
        "worst_tensor": where,
        "passed": _passes(finite, tolerance),
    }


def restate(case: Case, tolerance: float, record: dict[str, Any]) -> dict[str, Any]:
    """Return the record of a case that a state file kept, as this run would have made it.

    The file may come from a version that wrote fewer fields of a case, or from a run with another
    tolerance; what was measured stands in it all the same.

    Args:
        case: what the record belongs to.
        tolerance: largest relative difference that passes now.
        record: from the file.
    """
    distances = record["max_rel_error"]
    passed = distances is not None and _passes(distances, tolerance)
    return _identity(case) | record | {"tolerance": tolerance, "passed": passed}


def _identity(case: Case) -> dict[str, Any]:
    return {
        "model": case.model,
        "framework": case.framework,
        "strategy": case.strategy,
        "partitions": case.partitions,
        "replicas": case.replicas,
        "micro_batches": case.micro_batches,
        "spatial": None,
        "schedule": case.schedule,
        **{name: getattr(case, name) for name in SETTINGS},
    }


def _passes(distances: dict[str, float], tolerance: float) -> bool:
    return all(value <= tolerance for value in distances.values())


def make_report(results: Sequence[dict[str, Any]], environment: dict[str, Any]) -> dict[str, Any]:
    """Return the document of a run: one record, or all with a verdict over all."""
    if len(results) == 1:
        return {**results[0], "environment": environment}
    passed = bool(results) and all(result["passed"] for result in results)
    return {"cases": list(results), "passed": passed, "environment": environment}


def make_table(results: Sequence[dict[str, Any]], settings: Sequence[str] = ()) -> Table:
    """Return the results as a table for the terminal.

    Args:
        results: the rows.
        settings: those of ``SETTINGS`` that get a column.
    """
    from rich.table import Table

    table = Table(title="largest relative difference to one process", box=None)
    more = [name.replace("_size", "").replace("image", "pixels") for name in settings]
    for column in ("model", "strategy", "P×R", "M", "schedule", *more):
        table.add_column(column, no_wrap=True)
    for quantity in QUANTITIES:
        table.add_column(quantity.split("_")[0], justify="right", no_wrap=True)
    table.add_column("verdict", no_wrap=True)
    for result in results:
        distances = result["max_rel_error"]
        shown = [f"{distances[name]:.1e}" if distances else "–" for name in QUANTITIES]
        table.add_row(
            result["model"],
            result["strategy"],
            f"{result['partitions']}×{result['replicas']}",
            str(result["micro_batches"]),
            result["schedule"],
            *("–" if result[name] is None else str(result[name]) for name in settings),
            *shown,
            "passed" if result["passed"] else "[red]FAILED[/red]",
        )
    return table
