"""Every environment variable of hpcomm, parsed once into one frozen object.

`load` reads the environment, `VARIABLES` documents it, and `hpcomm info` prints both. Variables
that the launcher sets for the ranks it starts are part of the table too, so that nothing reads the
environment behind its back.
"""

from __future__ import annotations

import functools
import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from hpcomm.errors import InvalidArgumentError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

__all__ = ["VARIABLES", "Config", "Variable", "load", "parse_size"]

BOOTSTRAPS = ("auto", "mpi", "launcher", "torchrun", "single")
LOG_LEVELS = ("debug", "info", "warning", "error")
_SUFFIXES = {"": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30, "t": 1 << 40}


@dataclass(frozen=True, slots=True)
class Variable:
    """One environment variable: how it is called, read and explained."""

    name: str
    field: str
    default: str
    parse: Callable[[str], Any]
    summary: str
    internal: bool = False


def parse_size(text: str) -> int:
    """Return the bytes that a text such as ``65536``, ``64k`` (k = 1024) or ``1.5GiB`` means."""
    lowered = text.strip().lower().removesuffix("b").removesuffix("i")
    digits = lowered.rstrip("kmgt")
    suffix = lowered[len(digits) :]
    try:
        value = float(digits) * _SUFFIXES[suffix]
    except (KeyError, ValueError):
        raise ValueError("a number of bytes such as 65536, 64k, 16M or 2G") from None
    if not 0 <= value < float(1 << 62):
        raise ValueError("a number of bytes >= 0 below 4E")
    return int(value)


def _seconds(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not value > 0:
        raise ValueError("a number of seconds > 0 (inf for no limit)")
    return value


def _seconds_or_zero(text: str) -> float:
    return 0.0 if text.strip() in ("0", "0.0") else _seconds(text)


def _count(text: str) -> int:
    if not text.strip().isdecimal():
        raise ValueError("a whole number >= 0")
    return int(text)


def _flag(text: str) -> bool:
    lowered = text.strip().lower()
    if lowered in ("1", "true", "yes", "on"):
        return True
    if lowered in ("0", "false", "no", "off", ""):
        return False
    raise ValueError("1 or 0")


def _one_of(*choices: str) -> Callable[[str], str]:
    def parse(text: str) -> str:
        lowered = text.strip().lower()
        if lowered not in choices:
            raise ValueError("one of " + ", ".join(choices))
        return lowered

    return parse


VARIABLES: tuple[Variable, ...] = (
    Variable("HPCOMM_TIMEOUT", "timeout_s", "600", _seconds,
             "seconds that any operation may wait for its peers unless the call says otherwise"),
    Variable("HPCOMM_BOOTSTRAP", "bootstrap", "auto", _one_of(*BOOTSTRAPS),
             "how ranks find each other: auto, mpi, launcher, torchrun or single"),
    Variable("HPCOMM_ALLOW_SINGLETON", "allow_singleton", "0", _flag,
             "1 accepts a group of one rank although a launcher started several"),
    Variable("HPCOMM_RANKS_PER_NODE", "ranks_per_node", "0", _count,
             "pretend that nodes hold this many ranks and reach the others over MPI; 0 looks"),
    Variable("HPCOMM_TUNE", "tune", "", str,
             "overrides of the selection table, such as allreduce:64k-:ring"),
    Variable("HPCOMM_SLOT_BYTES", "slot_bytes", "0", parse_size,
             "bytes of one staging slot in shared memory; 0 takes the default of the core"),
    Variable("HPCOMM_RING_BYTES", "ring_bytes", "0", parse_size,
             "bytes of the ring in shared memory for each sender; 0 takes the default of the core"),
    Variable("HPCOMM_CHUNK_LIMIT", "chunk_limit", "0", parse_size,
             "most bytes that go into one MPI call; 0 takes the largest that MPI allows"),
    Variable("HPCOMM_LOG", "log_level", "warning", _one_of(*LOG_LEVELS),
             "what is written to standard error: debug, info, warning or error"),
    Variable("HPCOMM_SESSION", "session", "", str,
             "folder in which the ranks of one job note failures", internal=True),
    Variable("HPCOMM_RENDEZVOUS", "rendezvous", "", str,
             "socket of the launcher over which ranks meet where there is no MPI", internal=True),
    Variable("HPCOMM_RANK", "launch_rank", "-1", int,
             "rank that the launcher gave this process", internal=True),
    Variable("HPCOMM_SIZE", "launch_size", "0", _count,
             "number of ranks that the launcher started", internal=True),
    Variable("HPCOMM_LOCAL_RANK", "launch_local_rank", "-1", int,
             "number of this process on its machine", internal=True),
    Variable("HPCOMM_LOCAL_SIZE", "launch_local_size", "0", _count,
             "number of ranks on this machine", internal=True),
    Variable("HPCOMM_RANK_PID", "launch_pid", "0", _count,
             "process id of the rank itself, so that its children are not taken for it",
             internal=True),
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Config:
    """The settings of this process; the meaning of each field is the summary in `VARIABLES`."""

    timeout_s: float
    bootstrap: str
    allow_singleton: bool
    ranks_per_node: int
    tune: str
    slot_bytes: int
    ring_bytes: int
    chunk_limit: int
    log_level: str
    session: str
    rendezvous: str
    launch_rank: int
    launch_size: int
    launch_local_rank: int
    launch_local_size: int
    launch_pid: int

    @classmethod
    def from_environment(cls, environment: Mapping[str, str]) -> Config:
        """Parse the variables of ``environment``.

        Raises:
            InvalidArgumentError: a variable has a value that cannot be understood; the message says
                what would be.
        """
        values: dict[str, Any] = {}
        for variable in VARIABLES:
            text = environment.get(variable.name, variable.default)
            try:
                values[variable.field] = variable.parse(text)
            except ValueError as error:
                raise InvalidArgumentError(
                    f"environment variable {variable.name} must be {error}, got {text!r}; "
                    f"unset it for the default {variable.default!r}"
                ) from None
        return cls(**values)


@functools.cache
def load() -> Config:
    """Return the settings of this process, read from ``os.environ`` at the first call."""
    return Config.from_environment(os.environ)
