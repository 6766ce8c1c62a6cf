"""Whole jobs under ``hpcomm run``: started, watched, and looked after when they end."""

from __future__ import annotations

import os
import subprocess
import sys
import time
import uuid
from dataclasses import dataclass
from pathlib import Path

MARK = "HPCOMM_TEST_JOB"


@dataclass(frozen=True)
class JobResult:
    """How a job ended."""

    returncode: int
    output: str
    seconds: float
    processes_left: list[str]
    segments_left: list[str]


def run_job(
    ranks: int, source: str, folder: Path, *arguments: str, timeout_s: float = 90
) -> JobResult:
    """Run a program on several ranks and report what it printed and what it left behind.

    Args:
        ranks: how many.
        source: text of the program; written to ``folder``.
        folder: where it runs.
        arguments: for the program.
        timeout_s: when to give the job up.
    """
    program = folder / "program.py"
    program.write_text(source)
    mark = uuid.uuid4().hex
    before = _segments()
    tests = str(Path(__file__).resolve().parents[1])
    environment = os.environ | {
        MARK: mark,
        "PYTHONPATH": os.pathsep.join([tests, os.environ.get("PYTHONPATH", "")]),
        "TF_CPP_MIN_LOG_LEVEL": "3",
    }
    command = [sys.executable, "-m", "hpcomm", "run", "-n", str(ranks), str(program), *arguments]
    begin = time.monotonic()
    done = subprocess.run(
        command,
        env=environment,
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=timeout_s,
    )
    seconds = time.monotonic() - begin
    deadline = time.monotonic() + 5
    while (left := _processes(mark)) and time.monotonic() < deadline:
        time.sleep(0.05)  # a killed process takes a moment to leave the table
    segments = sorted(_segments() - before)
    return JobResult(done.returncode, done.stdout, seconds, left, segments)


def _segments() -> set[str]:
    return {entry.name for entry in Path("/dev/shm").iterdir()}


def _processes(mark: str) -> list[str]:
    found = []
    needle = f"{MARK}={mark}".encode()
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            if needle in (entry / "environ").read_bytes():
                found.append(f"{entry.name}: {(entry / 'cmdline').read_bytes()!r}")
        except OSError:
            continue
    return found
