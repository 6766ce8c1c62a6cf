"""What the launcher says about a job that failed."""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hpcomm.launch.session import Failure

__all__ = ["first_failure", "others"]

_NOT_STARTED = (126, 127)  # as a shell: the program cannot be executed, or is not there
_HINTS = {
    signal.SIGKILL: "somebody killed it, or the machine ran out of memory",
    signal.SIGSEGV: "it read or wrote memory that is not its own",
    signal.SIGBUS: "memory behind a mapping is gone, for instance because a disk is full",
    signal.SIGILL: "its code does not fit this CPU",
    signal.SIGABRT: "a library gave up; see its message above",
}


def _how(failure: Failure) -> str:
    if failure.told and not failure.traceback:
        return "had to be ended"
    if failure.signal:
        try:
            name = signal.Signals(failure.signal).name
        except ValueError:
            name = f"signal {failure.signal}"
        hint = _HINTS.get(failure.signal, "")  # type: ignore[call-overload]
        return f"was killed by {name}" + (f" ({hint})" if hint else "")
    if failure.traceback:
        return f"failed with {failure.error.splitlines()[0] if failure.error else 'an exception'}"
    if failure.error:
        if failure.exit_code in _NOT_STARTED:
            return f"could not start: {failure.error}"
        return f"ended with {failure.error}"
    return f"ended with exit code {failure.exit_code}"


def first_failure(failure: Failure, num_ranks: int, grace_s: float) -> str:
    """Return the report on the failure that ends a job."""
    where = f"on {failure.host}" + (f" (process {failure.pid})" if failure.pid else "")
    lines = [f"hpcomm run: rank {failure.rank} of {num_ranks} {where} {_how(failure)}"]
    if failure.traceback:
        lines.append(failure.traceback.rstrip())
    if num_ranks > 1:
        lines.append(f"hpcomm run: the other ranks have {grace_s:g} s to finish")
    return "\n".join(lines)


def others(first: Failure, ends: Sequence[Failure], exit_code: int) -> str:
    """Return the last line on a job that failed: how it and the other ranks ended."""
    alike: dict[str, list[int]] = {}
    for end in sorted(ends, key=lambda end: end.rank):
        if end.rank != first.rank:
            alike.setdefault(_how(end), []).append(end.rank)
    notes = []
    # Those that ended as the first one are named first and need no text of their own.
    for how, ranks in sorted(alike.items(), key=lambda item: item[0] != _how(first)):
        who = f"rank{'' if len(ranks) == 1 else 's'} {', '.join(map(str, ranks))}"
        same = "with the same error" if first.error else "in the same way"
        notes.append(f"{who}, {same}" if how == _how(first) else f"{who} {how.splitlines()[0]}")
    tail = f"; also {', '.join(notes)}" if notes else ""
    return f"hpcomm run: ended with exit code {exit_code}{tail}"
