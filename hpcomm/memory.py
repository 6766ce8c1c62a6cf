"""Measure how much memory a process needs at most.

Counted is private memory (``Pss_Anon``) plus this process's share of shared memory (``Pss_Shmem``,
in which the arenas of the communicators lie), minus what was there when the meter was made, so that
interpreter, libraries and frameworks do not count.

The kernel finds those two by walking all pages, which would slow down what is measured. A meter
therefore watches a counter that costs nothing, the anonymous pages in memory, and asks for the
share of shared memory only when the amount of shared memory has changed. The two ways to count
private memory differ for pages that a fork shares only.
"""

from __future__ import annotations

import threading
from pathlib import Path

from hpcomm.errors import UnsupportedError

__all__ = ["PeakMemory", "private_bytes"]

_ROLLUP = Path("/proc/self/smaps_rollup")
_STATUS = Path("/proc/self/status")
_SHARED_STEP = 1 << 20


def _fields(path: Path, names: tuple[str, ...]) -> dict[str, int]:
    """Return fields of a file of the kernel in bytes."""
    try:
        text = path.read_text(encoding="ascii", errors="replace")
    except OSError as error:
        raise UnsupportedError(f"memory: {path} cannot be read: {error}") from error
    values = {}
    for line in text.splitlines():
        name, _, rest = line.partition(":")
        if name in names:
            values[name] = 1024 * int(rest.split()[0])
    if len(values) != len(names):
        raise UnsupportedError(f"memory: {path} has no {' or '.join(names)} (Linux 5.4 has)")
    return values


def private_bytes() -> int:
    """Return this process's private memory plus its share of shared memory, in bytes.

    Takes about a millisecond per four gigabytes.

    Raises:
        UnsupportedError: the kernel does not report it (Linux before 5.4).
    """
    return sum(_fields(_ROLLUP, ("Pss_Anon", "Pss_Shmem")).values())


class PeakMemory:
    """Watches this process's memory from a thread, from ``start`` to ``stop``.

    Args:
        interval_s: seconds between two looks.
    """

    def __init__(self, interval_s: float = 0.01) -> None:
        self._interval_s = interval_s
        self._seen_shared = -_SHARED_STEP
        self._share = 0
        self._base = self._now()
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

    def _now(self) -> int:
        counted = _fields(_STATUS, ("RssAnon", "RssShmem"))
        if abs(counted["RssShmem"] - self._seen_shared) >= _SHARED_STEP:
            self._seen_shared = counted["RssShmem"]
            self._share = _fields(_ROLLUP, ("Pss_Shmem",))["Pss_Shmem"]
        return counted["RssAnon"] + self._share

    def _look(self) -> None:
        self._peak = max(self._peak, self._now())

    def _watch(self) -> None:
        while not self._stopped.wait(self._interval_s):
            self._look()
