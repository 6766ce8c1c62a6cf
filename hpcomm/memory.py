"""Measure how much memory a process needs at most.

Counted is private memory (``Pss_Anon``) plus this process's share of shared memory (``Pss_Shmem``,
in which the arenas of the communicators lie), minus what was there when the meter was made, so that
interpreter, libraries and frameworks do not count.
"""

from __future__ import annotations

import threading
from pathlib import Path

from hpcomm.errors import UnsupportedError

_ROLLUP = Path("/proc/self/smaps_rollup")
_COUNTED = ("Pss_Anon:", "Pss_Shmem:")


def private_bytes() -> int:
    """Return this process's private memory plus its share of shared memory, in bytes.

    Raises:
        UnsupportedError: the kernel does not report it (Linux before 5.4).
    """
    try:
        lines = _ROLLUP.read_text(encoding="ascii").splitlines()
    except OSError as error:
        raise UnsupportedError(f"memory: {_ROLLUP} cannot be read: {error}") from error
    values = {
        name: int(amount)
        for name, amount, *_ in (line.split() for line in lines)
        if name in _COUNTED
    }
    if len(values) != len(_COUNTED):
        raise UnsupportedError(f"memory: {_ROLLUP} has no {' or '.join(_COUNTED)} (Linux 5.4)")
    return 1024 * sum(values.values())


class PeakMemory:
    """Watches this process's memory from a thread, from ``start`` to ``stop``.

    Args:
        interval_s: seconds between two looks; a look costs about a millisecond per gigabyte.
    """

    def __init__(self, interval_s: float = 0.02) -> None:
        self._interval_s = interval_s
        self._base = private_bytes()
        self._peak = self._base
        self._stopped = threading.Event()
        self._thread: threading.Thread | None = None

    def start(self) -> PeakMemory:
        """Begin to watch."""
        self._thread = threading.Thread(target=self._watch, name="hpcomm-memory", daemon=True)
        self._thread.start()
        return self

    def stop(self) -> int:
        """End watching.

        Returns:
            Peak in bytes above the value at construction.
        """
        self._stopped.set()
        if self._thread is not None:
            self._thread.join()
            self._thread = None
        self._look()
        return self.peak_bytes

    @property
    def peak_bytes(self) -> int:
        """Peak so far, in bytes above the value at construction."""
        return self._peak - self._base

    def _look(self) -> None:
        self._peak = max(self._peak, private_bytes())

    def _watch(self) -> None:
        while not self._stopped.wait(self._interval_s):
            self._look()
