"""Waiting for several things at once: processes, signals, new files; the standard library only."""

from __future__ import annotations

import contextlib
import ctypes
import os
import selectors
import signal
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from pathlib import Path
    from types import FrameType

__all__ = ["Events", "adopt_orphans", "die_with_parent"]

# From <sys/inotify.h> and <sys/prctl.h>.
_IN_CREATE = 0x100
_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36
# Changes of a shared folder that another machine makes ring no bell here.
_LONGEST_WAIT_S = 1.0

_libc = ctypes.CDLL(None, use_errno=True)


def die_with_parent() -> None:
    """Have the kernel kill this process when its parent dies; call it between fork and exec."""
    _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)


def adopt_orphans() -> None:
    """Become the parent of what descendants leave behind, so that it can be waited for."""
    _libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


class Events:
    """A selector that wakes up when a process ends, a signal comes or a file appears.

    Until `close`, signals are collected in ``signals`` instead of ending this process.
    """

    def __init__(self, signals: Iterable[signal.Signals] = ()) -> None:
        self.signals: list[int] = []
        self._selector = selectors.DefaultSelector()
        self._owned: list[int] = []
        self._reader, self._writer = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        self._owned += [self._reader, self._writer]
        self._selector.register(self._reader, selectors.EVENT_READ, self._drain)
        signal.set_wakeup_fd(self._writer, warn_on_full_buffer=False)
        self._previous = {number: signal.signal(number, self._note) for number in signals}

    def _note(self, number: int, _frame: FrameType | None) -> None:
        self.signals.append(number)

    def _drain(self) -> None:
        with contextlib.suppress(BlockingIOError):
            os.read(self._reader, 4096)

    def watch_process(self, pid: int, on_end: Callable[[], None] = lambda: None) -> None:
        """Wake up and call ``on_end`` when process ``pid`` ends, or at once if it is gone."""
        try:
            handle = os.pidfd_open(pid)
        except ProcessLookupError:
            on_end()
            os.write(self._writer, b"x")
            return
        self._owned.append(handle)

        def end() -> None:
            self._selector.unregister(handle)
            on_end()

        self._selector.register(handle, selectors.EVENT_READ, end)

    def watch_folder(self, path: Path) -> None:
        """Wake up when a file appears in ``path``."""
        handle = _libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
        if handle < 0:
            return
        self._owned.append(handle)
        _libc.inotify_add_watch(handle, os.fsencode(path), _IN_CREATE)

        def drain() -> None:
            with contextlib.suppress(BlockingIOError):
                os.read(handle, 65536)

        self._selector.register(handle, selectors.EVENT_READ, drain)

    def watch_reader(self, handle: int, on_ready: Callable[[], object]) -> None:
        """Call ``on_ready`` when ``handle`` has something to read."""
        self._selector.register(handle, selectors.EVENT_READ, on_ready)

    def forget_reader(self, handle: int) -> None:
        """Undo `watch_reader`."""
        self._selector.unregister(handle)

    def wait(self, limit_s: float = _LONGEST_WAIT_S) -> None:
        """Return after something happened, or after ``limit_s`` seconds at most."""
        for key, _ in self._selector.select(max(0.0, min(limit_s, _LONGEST_WAIT_S))):
            key.data()

    def close(self) -> None:
        """Give the descriptors back."""
        for number, handler in self._previous.items():
            signal.signal(number, handler)
        signal.set_wakeup_fd(-1)
        self._selector.close()
        for handle in self._owned:
            os.close(handle)
