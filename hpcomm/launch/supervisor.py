"""The small process between a launcher and a rank; the standard library only.

MPI launchers end all ranks as soon as one process that they started ends badly. Under `hpcomm run`
the process that they started is this one: it holds the launcher's connection (which the rank
inherits), starts the rank as its child, notes how it ended in the session folder, and stays until
all ranks have ended. So the survivors of a failure have the time to notice it, to raise an error
and to save their work.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import resource
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

from hpcomm.launch import cpus, environment
from hpcomm.launch.events import Events, adopt_orphans, die_with_parent
from hpcomm.launch.leftovers import mpi_files
from hpcomm.launch.output import LabelledCopy
from hpcomm.launch.session import Failure, Session

__all__ = ["main"]

# From one signal to the next harder one.
ESCALATION = {signal.SIGINT: signal.SIGTERM, signal.SIGTERM: signal.SIGKILL}
PATIENCE_S = {signal.SIGINT: 3.0, signal.SIGTERM: 3.0, signal.SIGKILL: 5.0}
# How long a rank that only reports another one's failure waits for that one to be noted.
SECONDARY_WAIT_S = 1.0


class Supervisor:
    """Watches one rank."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.options = options
        self.rank, self.size = environment.place(os.environ)
        self.session = Session(Path(options.session))
        self.is_shared = self.session.path.is_dir()
        if not self.is_shared:  # another machine, and no common file system
            self.session = Session.create(is_read=False)
        # Hydra sends SIGUSR1 when another supervisor is gone, also when it left as it should: it
        # has to be harmless from here on to the end of this process, when Events has restored it.
        signal.signal(signal.SIGUSR1, signal.SIG_IGN)
        self.events = Events([signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1])
        self.child: subprocess.Popen[bytes] | None = None
        self.copies: list[LabelledCopy] = []
        self.launcher_is_gone = False
        self.ending: signal.Signals | None = None
        self.next_step_s = float("inf")
        self.grace_ends_s = float("inf")

    def run(self) -> int:
        """Start the rank, watch it to its end, and return this process's exit code."""
        local_rank, local_size = environment.local_place(os.environ)
        policy = self.options.bind or cpus.default_policy(len(cpus.allowed()), local_size)
        share, threads = cpus.share_of(policy, local_rank, local_size)
        if self.rank == 0 and self.options.announce:
            sys.stderr.write(f"hpcomm run: {cpus.describe(policy, local_size)}\n")
        os.sched_setaffinity(0, share)
        for name, value in cpus.thread_variables(threads).items():
            os.environ.setdefault(name, value)
        os.environ["HPCOMM_SESSION"] = str(self.session.path)
        if self.rank != 0:
            _take_input(os.devnull)  # what a launcher connects here may never end
        elif self.options.input:
            _take_input(self.options.input)
        self._watch()
        code = self._start()
        if code is None:
            code = self._wait_for_child()
            self._note_end(code)
        self._end_group(code)
        self._hold()
        self.session.remove_leftovers()
        self.events.close()
        if not self.is_shared or self.launcher_is_gone:
            self.session.remove()
        return 0 if self.is_shared else code

    def _watch(self) -> None:
        self.events.watch_folder(self.session.path)
        pid, host = self.session.launcher()
        if self.is_shared and host == socket.gethostname():
            self.events.watch_process(pid, self._lose_launcher)

    def _start(self) -> int | None:
        """Start the rank; return an exit code where that failed."""

        def prepare() -> None:
            die_with_parent()
            os.environ["HPCOMM_RANK_PID"] = str(os.getpid())  # exec passes it on
            if self.options.memory:
                resource.setrlimit(resource.RLIMIT_DATA, (self.options.memory,) * 2)

        pipes = subprocess.PIPE if self.options.prefix else None
        try:
            self.child = subprocess.Popen(
                self.options.command,
                close_fds=False,  # the launcher's connection is one of them
                process_group=0,
                preexec_fn=prepare,  # safe: this process has one thread
                stdout=pipes,
                stderr=pipes,
            )
        except OSError as error:
            code = 127 if isinstance(error, FileNotFoundError) else 126
            message = f"cannot start {self.options.command[0]!r}: {error.strerror}"
            self._note(Failure(self.rank, socket.gethostname(), 0, code, error=message))
            return code
        self.events.watch_process(self.child.pid)
        for target, stream in ((1, self.child.stdout), (2, self.child.stderr)):
            if stream is not None:
                label = f"[{self.rank}] "
                self.copies.append(LabelledCopy(self.events, stream.fileno(), target, label))
        return None

    def _wait_for_child(self) -> int:
        assert self.child is not None
        while self.child.poll() is None:
            self.events.wait(min(self.next_step_s, self.grace_ends_s) - time.monotonic())
            self._react()
        for copy in self.copies:
            copy.finish()
        return self.child.returncode

    def _react(self) -> None:
        """Decide whether the rank has to end now, and how hard it is told."""
        now_s = time.monotonic()
        if self.session.is_there("failure") and self.grace_ends_s == float("inf"):
            self.grace_ends_s = now_s + self.options.grace
        if self.ending is None:
            if self.events.signals:
                asked = self.events.signals[0]
                self._signal(signal.SIGINT if asked == signal.SIGINT else signal.SIGTERM)
            elif self.session.is_there("stop"):
                asked = self.session.stop_signal()
                self._signal(signal.SIGINT if asked == signal.SIGINT else signal.SIGTERM)
            elif now_s >= self.grace_ends_s or self.launcher_is_gone:
                self._signal(signal.SIGTERM)
        elif now_s >= self.next_step_s:
            self._signal(ESCALATION.get(self.ending, signal.SIGKILL))

    def _lose_launcher(self) -> None:
        self.launcher_is_gone = True

    def _signal(self, number: signal.Signals) -> None:
        self.ending = number
        self.grace_ends_s = float("inf")
        self.next_step_s = time.monotonic() + PATIENCE_S[number]
        if self.child is not None:
            self.session.note_leftovers(f"child{self.rank}", mpi_files(self.child.pid))
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.child.pid, number)

    def _note_end(self, code: int) -> None:
        """Write down how the rank ended, if not well."""
        if code == 0:
            return
        assert self.child is not None
        known = self.session.exception_of(self.rank)
        self._note(
            Failure(
                rank=self.rank,
                host=socket.gethostname(),
                pid=self.child.pid,
                exit_code=code if code > 0 else 128 - code,
                signal=max(0, -code),
                error=known.error if known else "",
                traceback=known.traceback if known else "",
                secondary=known.secondary if known else False,
                told=self.ending is not None,
                at_s=time.time(),
            )
        )

    def _note(self, failure: Failure) -> None:
        self.session.note_end(failure)
        if failure.told:
            return
        if failure.secondary:
            end_s = time.monotonic() + SECONDARY_WAIT_S
            while not self.session.is_there("failure") and time.monotonic() < end_s:
                self.events.wait(end_s - time.monotonic())
        self.session.claim(failure)

    def _end_group(self, code: int) -> None:
        """End what the rank left running: politely if it ended well, at once if not."""
        if self.child is None:
            return
        hard_s = time.monotonic() + (1.0 if code == 0 else 0.0)
        number = signal.SIGTERM
        while time.monotonic() < hard_s + 2.0:
            with contextlib.suppress(ChildProcessError):
                while os.waitpid(-1, os.WNOHANG) != (0, 0):
                    pass
            try:
                os.killpg(self.child.pid, number)
            except ProcessLookupError:
                return
            if time.monotonic() >= hard_s:
                number = signal.SIGKILL
            self.events.wait(0.02)

    def _hold(self) -> None:
        """Stay until all ranks have ended, or until the last of them must have been killed."""
        self.session.note_done(self.rank)
        if not self.is_shared:
            return
        limit_s = float("inf")
        while self.session.num_done() < self.size and not self.launcher_is_gone:
            now_s = time.monotonic()
            if limit_s == float("inf") and (
                self.session.is_there("failure") or self.session.is_there("stop")
            ):
                limit_s = now_s + self.options.grace + sum(PATIENCE_S.values())
            if now_s >= limit_s or self.events.signals:
                return
            self.events.wait(limit_s - now_s)


def _take_input(path: str) -> None:
    """Make ``path`` this process's standard input; what cannot be opened again is left alone."""
    with contextlib.suppress(OSError), Path(path).open("rb", buffering=0) as file:
        os.dup2(file.fileno(), 0)


def main(arguments: list[str] | None = None) -> int:
    """Run a supervisor with the options that `hpcomm run` passes."""
    words = sys.argv[1:] if arguments is None else arguments
    border = words.index("--")
    parser = argparse.ArgumentParser(prog="hpcomm.launch.supervisor")
    parser.add_argument("--session", required=True)
    parser.add_argument("--grace", type=float, default=10.0)
    parser.add_argument("--bind", choices=("", *cpus.POLICIES), default="")
    parser.add_argument("--memory", type=int, default=0)
    parser.add_argument("--prefix", action="store_true")
    parser.add_argument("--input", default="")
    parser.add_argument("--announce", action="store_true")
    options = parser.parse_args(words[:border])
    options.command = words[border + 1 :]
    adopt_orphans()
    return Supervisor(options).run()


if __name__ == "__main__":
    sys.exit(main())
