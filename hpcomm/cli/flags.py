"""Flags that several sub-commands share, and their parsing."""

from __future__ import annotations

import contextlib
import os
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

from hpcomm.choices import Schedule, Strategy
from hpcomm.errors import InvalidArgumentError, ModelError
from hpcomm.launch import environment

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = [
    "Bind",
    "Framework",
    "JsonFile",
    "NumRanks",
    "Schedule",
    "Strategy",
    "check_num_ranks",
    "numbers",
    "words",
    "wrong_usage",
]


class Framework(StrEnum):
    """Whose models are trained."""

    keras = "keras"


class Bind(StrEnum):
    """How ranks of one machine share its CPUs."""

    none = "none"
    core = "core"
    numa = "numa"


NumRanks = Annotated[
    int | None,
    typer.Option(
        "-n",
        "--num-ranks",
        min=1,
        help="Ranks to start; partitions × replicas if left out. Not under a launcher.",
    ),
]
JsonFile = Annotated[
    str,
    typer.Option(
        "--json", "--report", metavar="FILE", help="Write the report; - for standard output."
    ),
]


@contextlib.contextmanager
def wrong_usage() -> Iterator[None]:
    """Turn a refused argument into wrong usage: the flags are at fault, so the exit code is 2."""
    try:
        yield
    except (InvalidArgumentError, ModelError) as error:
        raise typer.BadParameter(str(error)) from error


def check_num_ranks(num_ranks: int | None) -> None:
    """Refuse ``-n`` in a rank of a job that has another number of ranks.

    Raises:
        typer.BadParameter: the launcher has decided otherwise.
    """
    size = environment.job_size(os.environ)
    if num_ranks is not None and size not in (0, num_ranks):
        raise typer.BadParameter(
            f"this process is one of {size} ranks that a launcher has started, got {num_ranks}; "
            "leave -n out",
            param_hint="-n",
        )


def words(text: str) -> list[str]:
    """Split a list separated by commas; blanks and empty items are dropped."""
    return [word.strip() for word in text.split(",") if word.strip()]


def numbers(text: str, flag: str, *, smallest: int = 1, required: bool = False) -> list[int]:
    """Split a list of whole numbers separated by commas.

    Args:
        text: the list.
        flag: where it was given.
        smallest: least number that is allowed, 0 or above.
        required: refuse an empty list.

    Raises:
        typer.BadParameter: something else is in it, or nothing though it is required.
    """
    found = words(text)
    right = all(word.isdecimal() and int(word) >= smallest for word in found)
    if not right or (required and not found):
        raise typer.BadParameter(
            f"must be whole numbers from {smallest} on, separated by commas, got {text!r}",
            param_hint=flag,
        )
    return [int(word) for word in found]
