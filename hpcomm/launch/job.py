"""One job of several ranks, from the start of the first process to the end of the last."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from hpcomm.errors import LaunchError
from hpcomm.launch import mpiexec, report
from hpcomm.launch.events import Events, adopt_orphans
from hpcomm.launch.rendezvous import Server
from hpcomm.launch.session import Session

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["Job", "Options"]

TIMED_OUT = 124  # as coreutils' timeout
# How long supervisors need, after the grace period, to end ranks that do not want to; then the
# launcher ends everything by itself.
LAST_RESORT_S = 15.0


@dataclass(frozen=True, slots=True)
class Options:
    """How a job is to be run.

    Attributes:
        num_ranks: number of ranks.
        command: program and arguments of every rank.
        hosts: machines, separated by commas; empty for this one.
        hostfile: file that names machines; empty for none.
        bind: "none", "core" or "numa"; empty chooses.
        use_mpi: False starts the ranks without MPI, on this machine.
        grace_s: seconds that survivors of a failure have to finish.
        timeout_s: seconds that the whole job may take.
        memory_bytes: most memory of each rank; 0 for no limit.
        prefix: put the rank before each line of output.
        quiet: say nothing about how CPUs are shared.
    """

    num_ranks: int
    command: Sequence[str]
    hosts: str = ""
    hostfile: str = ""
    bind: str = ""
    use_mpi: bool = True
    grace_s: float = 10.0
    timeout_s: float = float("inf")
    memory_bytes: int = 0
    prefix: bool = False
    quiet: bool = False


class Job:
    """Starts ranks under supervisors, waits for them and tidies up."""

    def __init__(self, options: Options) -> None:
        self.options = options
        self.is_remote = bool(options.hosts or options.hostfile)
        self.session = Session.create(Path.cwd() if self.is_remote else None)
        self.events = Events([signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
        self.server: Server | None = None
        self.processes: list[subprocess.Popen[bytes]] = []
        self.asked: int = 0  # the signal that this process was told to end with
        self.has_timed_out = False
        self.has_reported = False
        self.forced_s = float("inf")

    def run(self) -> int:
        """Run the job to its end and return its exit code."""
        started_s = time.monotonic()
        adopt_orphans()
        self.events.watch_folder(self.session.path)
        try:
            self._start()
            while any(process.poll() is None for process in self.processes):
                self.events.wait(min(self.forced_s, started_s + self.options.timeout_s)
                                 - time.monotonic())  # fmt: skip
                self._react(started_s)
            return self._conclude()
        finally:
            self._tidy()

    def _start(self) -> None:
        launcher = mpiexec.find() if self.options.use_mpi else None
        if launcher is None and self.is_remote:
            raise LaunchError(
                "ranks on several machines need MPI; install one (pip install 'hpcomm[mpich]')"
            )
        words = self._supervisor()
        environment = {**os.environ, "HPCOMM_SESSION": str(self.session.path)}
        if launcher is None:
            self._start_without_mpi(words, environment)
            return
        exported = [name for name in environment if name.startswith(("HPCOMM_", "PYTHON"))]
        line = mpiexec.command(
            launcher,
            self.options.num_ranks,
            words,
            hosts=self.options.hosts,
            hostfile=self.options.hostfile,
            exported=exported,
        )
        self._spawn(line, mpiexec.environment(launcher, environment))

    def _start_without_mpi(self, words: list[str], environment: dict[str, str]) -> None:
        self.server = Server(self.options.num_ranks)
        size = str(self.options.num_ranks)
        for rank in range(self.options.num_ranks):
            place = {
                "HPCOMM_RENDEZVOUS": self.server.address,
                "HPCOMM_RANK": str(rank),
                "HPCOMM_SIZE": size,
                "HPCOMM_LOCAL_RANK": str(rank),
                "HPCOMM_LOCAL_SIZE": size,
            }
            self._spawn(words, {**environment, **place})

    def _supervisor(self) -> list[str]:
        words = [sys.executable, "-m", "hpcomm.launch.supervisor"]
        words += ["--session", str(self.session.path), "--bind", self.options.bind]
        words += ["--grace", str(self.options.grace_s), "--memory", str(self.options.memory_bytes)]
        words += ["--prefix"] if self.options.prefix else []
        words += [] if self.options.quiet else ["--announce"]
        if not self.is_remote:
            # Rank 0 opens it itself: some launchers of MPI lose the end of what they pass on.
            words += ["--input", f"/proc/{os.getpid()}/fd/0" if _has_input() else os.devnull]
        program = self.options.command[0]
        named = [sys.executable] if Path(program).suffix == ".py" else []
        rest = self.options.command
        if program in ("python", "python3"):  # whatever PATH says: the one hpcomm is installed in
            rest = [sys.executable, *self.options.command[1:]]
        return [*words, "--", *named, *rest]

    def _spawn(self, line: Sequence[str], environment: dict[str, str]) -> None:
        # A group of its own: Ctrl-C reaches this process alone, which passes it on in order. If
        # this process is killed, supervisors notice.
        source = None if self.is_remote and _has_input() else subprocess.DEVNULL
        try:
            process = subprocess.Popen(line, env=environment, process_group=0, stdin=source)
        except OSError as error:
            raise LaunchError(f"cannot start {line[0]!r}: {error.strerror}") from error
        self.processes.append(process)
        self.events.watch_process(process.pid)

    def _react(self, started_s: float) -> None:
        now_s = time.monotonic()
        if self.events.signals and not self.asked:
            self.asked = self.events.signals[0]
            self._stop(self.asked, now_s)
        elif len(self.events.signals) > 1:  # impatient user
            self.forced_s = now_s
        if now_s - started_s > self.options.timeout_s and not self.has_timed_out:
            self.has_timed_out = True
            _say(f"hpcomm run: the job took more than {self.options.timeout_s:g} s; ending it")
            self._stop(signal.SIGTERM, now_s)
        if not self.has_reported and self.session.is_there("failure"):
            self._report()
            self.forced_s = min(self.forced_s, now_s + self.options.grace_s + LAST_RESORT_S)
        if self.session.num_done() == self.options.num_ranks and self.forced_s == float("inf"):
            self.forced_s = now_s + LAST_RESORT_S
        if now_s >= self.forced_s:
            self._kill()

    def _stop(self, number: int, now_s: float) -> None:
        self.session.ask_to_stop(number)
        self._release_waiters("the job was told to end")
        self.forced_s = min(self.forced_s, now_s + LAST_RESORT_S)

    def _release_waiters(self, message: str) -> None:
        if self.server is not None:
            self.server.fail(message)

    def _report(self) -> None:
        failure = self.session.first_failure()
        if failure is None:
            return
        self.has_reported = True
        if not self.asked and not self.has_timed_out:
            _say(report.first_failure(failure, self.options.num_ranks, self.options.grace_s))
        self._release_waiters(f"rank {failure.rank} failed before all ranks had met")

    def _conclude(self) -> int:
        if self.asked:
            return 128 + self.asked
        if self.has_timed_out:
            return TIMED_OUT
        if not self.has_reported and self.session.is_there("failure"):
            self._report()
        first = self.session.first_failure()
        if first is not None:
            code = first.exit_code or 1
            _say(report.others(first, self.session.ends(), code))
            return code
        worst = max((abs(process.returncode) for process in self.processes), default=0)
        if worst:
            _say(f"hpcomm run: the launcher {self.processes[0].args[0]!r} ended with {worst}")  # type: ignore[index]
        elif self.session.num_done() < self.options.num_ranks and not self.is_remote:
            _say("hpcomm run: not all ranks were started")
            return 1
        return worst

    def _kill(self) -> None:
        """End everything at once."""
        self._each_group(signal.SIGKILL)
        self.forced_s = time.monotonic() + 1.0

    def _each_group(self, number: signal.Signals) -> None:
        for process in self.processes:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(process.pid, number)

    def _tidy(self) -> None:
        for process in self.processes:
            if process.poll() is None:
                self._each_group(signal.SIGKILL)
                process.wait()
        # Orphans of a launcher that was killed are children of this process now.
        with contextlib.suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG) != (0, 0):
                pass
        if self.server is not None:
            self.server.close()
        self.events.close()
        self.session.remove()


def _has_input() -> bool:
    """Return whether standard input is a file or a pipe; ranks do not read from terminals."""
    return not os.isatty(0)


def _say(text: str) -> None:
    with contextlib.suppress(OSError):
        sys.stderr.write(text + "\n")
        sys.stderr.flush()
