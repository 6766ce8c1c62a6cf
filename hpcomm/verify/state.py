"""The file that makes a long verification resumable: one line per finished case.

Before the results stands a line that names their environment. Results of another one are not mixed
in; those of other sources of hpcomm stay in the file, behind a line of their own, and count for
these sources only. A line that a killed run left unfinished is ignored.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from hpcomm.environment import sources
from hpcomm.errors import InvalidArgumentError

if TYPE_CHECKING:
    from pathlib import Path


def state_key(case_key: str, inject: str | None) -> str:
    """Return the name under which a state file keeps a case."""
    return f"{case_key}/inject={inject}"


class StateFile:
    """Finished cases by key, kept in a file of JSON lines.

    Args:
        path: file; made with the first result.
        version: hash of the sources whose results count; None takes those of this process.
    """

    def __init__(self, path: Path, version: str | None = None) -> None:
        self.path = path
        self.version = sources() if version is None else version

    def results(self) -> dict[str, dict[str, Any]]:
        """Return what has been finished with these sources, by key."""
        return {line["key"]: line["result"] for line in self._lines() if "result" in line}

    def outdated(self) -> set[str]:
        """Return the keys of what has been finished with other sources only."""
        known = {line["key"] for line in self._all_lines() if "result" in line}
        return known - self.results().keys()

    def unfinished(self) -> str | None:
        """Return the key of the case that was begun last and not finished, or None."""
        begun = None
        for line in self._lines():
            if "begun" in line:
                begun = line["begun"]
            elif "result" in line:
                begun = None
        return begun

    def num_begun(self) -> int:
        """Return how often a case was begun."""
        return sum(1 for line in self._lines() if "begun" in line)

    def environment(self) -> dict[str, Any] | None:
        """Return the environment of the results, None where there are none yet."""
        return next((line["environment"] for line in self._lines() if "environment" in line), None)

    def open(self, environment: dict[str, Any]) -> None:
        """Name the environment of the results to come; the sources are added to it.

        Raises:
            InvalidArgumentError: the file has results of another environment.
        """
        environment = environment | {"sources": self.version}
        known = self.environment()
        if known is not None and known != environment:
            raise InvalidArgumentError(
                f"--state {self.path}: its results come from another environment ({known}), this "
                f"one is {environment}; name another file"
            )
        if self._last_version() != self.version:
            self._append({"environment": environment})

    def begin(self, key: str) -> None:
        """Note that a case is being worked on."""
        self._append({"begun": key})

    def finish(self, key: str, result: dict[str, Any]) -> None:
        """Keep the result of a case."""
        self._append({"key": key, "result": result})

    def _append(self, line: dict[str, Any]) -> None:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with self.path.open("a", encoding="utf-8") as file:
            if file.tell() and not self._ends_with_newline():
                file.write("\n")
            file.write(json.dumps(line) + "\n")

    def _ends_with_newline(self) -> bool:
        with self.path.open("rb") as file:
            file.seek(-1, 2)
            return file.read() == b"\n"

    def _lines(self) -> list[dict[str, Any]]:
        """Return the lines that belong to these sources."""
        own, is_own = [], False
        for line in self._all_lines():
            if "environment" in line:
                is_own = line["environment"].get("sources") == self.version
            if is_own:
                own.append(line)
        return own

    def _last_version(self) -> str | None:
        found = [line["environment"] for line in self._all_lines() if "environment" in line]
        return found[-1].get("sources") if found else None

    def _all_lines(self) -> list[dict[str, Any]]:
        if not self.path.exists():
            return []
        lines = []
        for text in self.path.read_text(encoding="utf-8").splitlines():
            try:
                line = json.loads(text)
            except json.JSONDecodeError:
                continue
            if isinstance(line, dict):
                lines.append(line)
        return lines
