"""Checks of arguments that several public calls share, with messages a user understands.

Each raises `hpcomm.errors.InvalidArgumentError` before anything is sent: what was asked, what was
got, on which rank, what to do instead.
"""

from __future__ import annotations

import math
import operator
from typing import TYPE_CHECKING, Any, NoReturn

from hpcomm.errors import InvalidArgumentError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from hpcomm.communicator import Communicator

__all__ = ["OPS", "counts", "fail", "op", "peer", "tag", "timeout_s", "whole"]

# In the order of the core's ReduceOp.
OPS = {name: code for code, name in enumerate(("sum", "avg", "min", "max", "prod"))}
# User tags end here, see csrc/transport/tag.hpp.
TAG_LIMIT = 16384


def fail(comm: Communicator, call: str, message: str) -> NoReturn:
    """Raise the error of a wrong argument of ``call`` on this rank."""
    raise InvalidArgumentError(
        f"{call} on rank {comm.rank} of {comm.name!r}: {message}", rank=comm.rank
    )


def whole(value: object, label: str) -> int:
    """Return ``value`` as an int if it is a whole number; raise else."""
    if isinstance(value, bool):
        raise InvalidArgumentError(f"{label} must be a whole number, got {value!r}")
    try:
        return operator.index(value)  # type: ignore[arg-type]
    except TypeError:
        raise InvalidArgumentError(f"{label} must be a whole number, got {value!r}") from None


def peer(comm: Communicator, call: str, label: str, value: object) -> int:
    """Return ``value`` if it is a rank of ``comm``."""
    if type(value) is int and 0 <= value < comm.size:  # the usual case, fast
        return value
    number = whole(value, f"{call}: {label}")
    if not 0 <= number < comm.size:
        fail(comm, call, f"{label}={number} is no rank; ranks are 0 to {comm.size - 1}")
    return number


def tag(comm: Communicator, call: str, value: object) -> int:
    """Return ``value`` if it is a tag that users may take."""
    if type(value) is int and 0 <= value < TAG_LIMIT:
        return value
    number = whole(value, f"{call}: tag")
    if not 0 <= number < TAG_LIMIT:
        fail(comm, call, f"tag={number} is out of range; tags are 0 to {TAG_LIMIT - 1}")
    return number


def timeout_s(value: float | None, label: str, default: float) -> float:
    """Return the seconds to wait at most; ``default`` for None."""
    if value is None:
        return default
    try:
        seconds = float(value)
    except (TypeError, ValueError):
        raise InvalidArgumentError(f"{label} must be a number of seconds, got {value!r}") from None
    if math.isnan(seconds) or seconds <= 0:
        raise InvalidArgumentError(
            f"{label} must be > 0 seconds (math.inf for no limit), got {value!r}"
        )
    return seconds


def op(comm: Communicator, call: str, name: str, dtype: str) -> int:
    """Return the core's code of a reduction that is defined for ``dtype``."""
    code = OPS.get(name)
    if code is None:
        fail(comm, call, f"op={name!r} is unknown; use one of {', '.join(OPS)}")
    if name == "avg" and dtype[0] in "iub" and dtype != "bfloat16":
        fail(
            comm,
            call,
            f"op='avg' of {dtype} would have to round; reduce a floating-point copy, "
            "or use op='sum' and divide",
        )
    if dtype == "bool" and name == "sum":
        fail(
            comm,
            call,
            "op='sum' of bool is ambiguous; use op='max' for or, 'min' for and, or reduce integers",
        )
    return code


def counts(comm: Communicator, call: str, value: Iterable[Any]) -> list[int]:
    """Return the number of rows of each rank as a list of one whole number >= 0 per rank."""
    rows = [whole(item, f"{call}: counts") for item in value]
    if len(rows) != comm.size:
        fail(comm, call, f"counts has {len(rows)} entries, but there are {comm.size} ranks")
    if any(item < 0 for item in rows):
        fail(comm, call, f"counts must be >= 0, got {rows}")
    return rows
