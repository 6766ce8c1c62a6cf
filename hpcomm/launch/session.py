"""The folder in which one job's processes note failures; the standard library only.

Every file appears whole (written under another name, then linked), and the first failure wins
because linking to a name that exists fails. All ranks of a node see the folder; ranks of other
nodes see it where the file system is shared, and do without it elsewhere.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import socket
import tempfile
import time
from dataclasses import asdict, dataclass
from pathlib import Path

__all__ = ["Failure", "Session"]

_VARIABLE = "HPCOMM_SESSION"


@dataclass(frozen=True, slots=True)
class Failure:
    """How a rank ended that did not end well.

    Attributes:
        rank: in the job.
        host: name of its machine.
        pid: of the rank's process.
        exit_code: what the job should exit with: the rank's, or 128 + signal.
        signal: number of the signal that ended it; 0 for none.
        error: class and message of the Python exception; empty if none is known.
        traceback: of that exception, as Python prints it.
        secondary: the exception only says that another rank failed.
        told: the rank ended because its supervisor told it to.
        at_s: seconds since the epoch.
    """

    rank: int
    host: str
    pid: int
    exit_code: int
    signal: int = 0
    error: str = ""
    traceback: str = ""
    secondary: bool = False
    told: bool = False
    at_s: float = 0.0


class Session:
    """A job's folder, seen by its launcher, its supervisors and its ranks."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @classmethod
    def create(cls, parent: Path | None = None, *, is_read: bool = True) -> Session:
        """Make a folder that only this user can read.

        Args:
            parent: where; None means the temporary folder.
            is_read: the launcher reads the folder and prints what ranks write into it.
        """
        session = cls(Path(tempfile.mkdtemp(prefix="hpcomm-", dir=parent)))
        owner = {"pid": os.getpid(), "host": socket.gethostname(), "is_read": is_read}
        session._publish("launcher", owner)
        return session

    @classmethod
    def of_environment(cls) -> Session | None:
        """Return the session this process belongs to; None outside of `hpcomm run`."""
        text = os.environ.get(_VARIABLE, "")
        return cls(Path(text)) if text and Path(text).is_dir() else None

    def remove(self) -> None:
        """Delete the folder."""
        shutil.rmtree(self.path, ignore_errors=True)

    def _publish(self, name: str, content: dict[str, object]) -> bool:
        """Make a file appear whole; False if the name is taken or the folder is gone."""
        try:
            handle, temporary = tempfile.mkstemp(dir=self.path, prefix=".")
        except OSError:
            return False
        try:
            with os.fdopen(handle, "w") as file:
                json.dump(content, file)
            Path(self.path, name).hardlink_to(temporary)
        except OSError:
            return False
        finally:
            Path(temporary).unlink(missing_ok=True)
        return True

    def _read(self, name: str) -> dict[str, object] | None:
        try:
            content = json.loads(Path(self.path, name).read_text())
        except (OSError, ValueError):
            return None
        return content if isinstance(content, dict) else None

    def launcher(self) -> tuple[int, str]:
        """Return process id and host of the launcher; (0, "") if the folder is gone."""
        content = self._read("launcher") or {}
        return int(str(content.get("pid", 0))), str(content.get("host", ""))

    def is_read(self) -> bool:
        """Return whether a launcher prints what is written here."""
        return bool((self._read("launcher") or {}).get("is_read"))

    def note_exception(self, failure: Failure) -> bool:
        """Keep a rank's exception for its supervisor, and claim the job's first failure with it.

        Returns:
            Whether the launcher will print it.
        """
        written = self._publish(f"exception.{failure.rank}", asdict(failure))
        if written and not failure.secondary:
            self.claim(failure)
        return written and self.is_read()

    def exception_of(self, rank: int) -> Failure | None:
        """Return what a rank noted with `note_exception`."""
        content = self._read(f"exception.{rank}")
        return None if content is None else Failure(**content)  # type: ignore[arg-type]

    def note_end(self, failure: Failure) -> None:
        """Note that a rank ended badly."""
        self._publish(f"end.{failure.rank}", asdict(failure))

    def note_done(self, rank: int) -> None:
        """Note that a rank's process is gone, well or badly."""
        self._publish(f"done.{rank}", {"at_s": time.time()})

    def num_done(self) -> int:
        """Return how many ranks are gone."""
        return sum(1 for _ in self.path.glob("done.*"))

    def note_leftovers(self, who: str, paths: list[str]) -> None:
        """Note files of this machine that `remove_leftovers` has to delete."""
        self._publish(f"leftovers.{who}", {"host": socket.gethostname(), "paths": paths})

    def remove_leftovers(self) -> None:
        """Delete the files of this machine that `note_leftovers` was told about."""
        for file in self.path.glob("leftovers.*"):
            content = self._read(file.name) or {}
            paths = content.get("paths")
            if content.get("host") == socket.gethostname() and isinstance(paths, list):
                for path in paths:
                    with contextlib.suppress(OSError):
                        Path(str(path)).unlink()

    def ends(self) -> list[Failure]:
        """Return all ranks that ended badly, in the order of time."""
        found = [self._read(path.name) for path in self.path.glob("end.*")]
        failures = [Failure(**content) for content in found if content]  # type: ignore[arg-type]
        return sorted(failures, key=lambda failure: failure.at_s)

    def claim(self, failure: Failure) -> bool:
        """Make ``failure`` the job's first one; False if another rank was faster."""
        return self._publish("failure", asdict(failure))

    def first_failure(self) -> Failure | None:
        """Return the failure that ended the job; None while all is well."""
        content = self._read("failure")
        return None if content is None else Failure(**content)  # type: ignore[arg-type]

    def ask_to_stop(self, signal_number: int) -> None:
        """Ask all supervisors to end their ranks, beginning with ``signal_number``."""
        self._publish("stop", {"signal": signal_number, "at_s": time.time()})

    def stop_signal(self) -> int:
        """Return the signal that `ask_to_stop` was given; 0 if it was not called."""
        content = self._read("stop")
        return 0 if content is None else int(str(content["signal"]))

    def is_there(self, name: str) -> bool:
        """Return whether a file has appeared; one system call."""
        return Path(self.path, name).exists()
