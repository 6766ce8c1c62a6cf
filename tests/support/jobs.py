"""Programs run as jobs of their own: through `hpcomm run`, a bare mpiexec, or alone.

Each job gets its own temporary folder and a mark in its environment, so that afterwards a test can
ask what it has left behind.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

MARK = "HPCOMM_TEST_MARK"


@dataclass
class Result:
    """How a job ended."""

    code: int
    output: str
    errors: str
    seconds: float
    mark: str
    folder: Path
    shm_before: set[str]

    def assert_nothing_is_left(self) -> None:
        """No process, no file in the temporary folder, none in /dev/shm."""
        end_s = time.monotonic() + 5
        while (left := marked_processes(self.mark)) and time.monotonic() < end_s:
            time.sleep(0.05)
        assert not left, f"processes left: {left}"
        assert not list(self.folder.iterdir())
        # Files of other jobs may be there for a moment without being mapped.
        while (files := unused_shm() - self.shm_before) and time.monotonic() < end_s:
            time.sleep(0.05)
        assert not files, f"files left: {files}"


def marked_processes(mark: str) -> list[str]:
    """The processes whose environment holds ``mark``."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            if mark.encode() in (folder / "environ").read_bytes():
                name = (folder / "cmdline").read_bytes().replace(b"\0", b" ").decode()
                if name:
                    found.append(f"{folder.name}: {name}")
        except OSError:
            continue
    return found


def unused_shm() -> set[str]:
    """Files in /dev/shm that no process maps: what somebody has left there."""
    files = {str(path) for path in Path("/dev/shm").iterdir()}
    for maps in Path("/proc").glob("[0-9]*/maps"):
        try:
            text = maps.read_text()
        except OSError:
            continue
        files -= {path for path in files if path in text}
    return files


def program(folder: Path, text: str) -> Path:
    """Write a program of its own."""
    path = folder.parent / f"{folder.name}-program.py"
    path.write_text(
        "from __future__ import annotations\nimport hpcomm, numpy as np, os, sys, time\n" + text
    )
    return path


class Job:
    """A program under way; a context manager that ends it for certain."""

    def __init__(
        self,
        tmp_path: Path,
        command: Sequence[str],
        environment: dict[str, str] | None = None,
        without: Sequence[str] = (),
    ) -> None:
        self.mark = uuid.uuid4().hex
        self.folder = tmp_path / f"t{self.mark[:6]}"
        self.folder.mkdir()
        self.shm_before = unused_shm()
        own = {name: value for name, value in os.environ.items() if not _is_of_a_launcher(name)}
        variables = {**own, "TMPDIR": str(self.folder), MARK: self.mark, **(environment or {})}
        for name in without:
            variables.pop(name, None)
        self.started_s = time.monotonic()
        self.process = subprocess.Popen(
            command,
            env=variables,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            stdin=subprocess.DEVNULL,
            text=True,
            cwd=tmp_path,
        )

    def send_signal(self, number: signal.Signals) -> None:
        self.process.send_signal(number)

    def wait_for(self, line: str, timeout_s: float = 30) -> None:
        """Read standard output up to a line that holds ``line``."""
        assert self.process.stdout is not None
        for text in self.process.stdout:
            if line in text:
                return
        raise AssertionError(f"the job ended without saying {line!r}")

    def finish(self, timeout_s: float = 60) -> Result:
        try:
            output, errors = self.process.communicate(timeout=timeout_s)
        except subprocess.TimeoutExpired:
            self.kill()
            output, errors = self.process.communicate()
            raise AssertionError(f"the job hangs; it said:\n{output}\n{errors}") from None
        seconds = time.monotonic() - self.started_s
        return Result(
            self.process.returncode,
            output,
            errors,
            seconds,
            self.mark,
            self.folder,
            self.shm_before,
        )

    def kill(self) -> None:
        for entry in marked_processes(self.mark):
            try:
                os.kill(int(entry.split(":")[0]), signal.SIGKILL)
            except ProcessLookupError:
                continue

    def __enter__(self) -> Job:
        return self

    def __exit__(self, *_: object) -> None:
        if self.process.poll() is None or marked_processes(self.mark):
            self.kill()
            self.process.wait()


def _is_of_a_launcher(name: str) -> bool:
    return name.startswith(
        ("PMI", "OMPI_COMM", "OMPI_UNIVERSE", "HPCOMM_", "MPI_LOCAL", "HYD", "PRTE_L")
    )


def hpcomm_run(ranks: int, path: Path, *arguments: str, options: Sequence[str] = ()) -> list[str]:
    """The command line of `hpcomm run` with the Python that runs the tests."""
    line = [sys.executable, "-m", "hpcomm", "run", "-n", str(ranks), *options]
    return [*line, "--", sys.executable, str(path), *arguments]


def mpiexec(ranks: int, *command: str) -> list[str]:
    """The command line of the mpiexec of the environment that runs the tests."""
    return [str(Path(sys.executable).parent / "mpiexec"), "-n", str(ranks), *command]


def run(
    tmp_path: Path,
    command: Sequence[str],
    environment: dict[str, str] | None = None,
    timeout_s: float = 60,
) -> Result:
    """Run a job to its end."""
    with Job(tmp_path, command, environment) as job:
        return job.finish(timeout_s)
