"""Output of a rank, line by line with its number in front; the standard library only."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from hpcomm.launch.events import Events

__all__ = ["LabelledCopy"]

_BLOCK_BYTES = 65536


class LabelledCopy:
    """Copies whole lines from one descriptor to another and puts a label before each."""

    def __init__(self, events: Events, source: int, target: int, label: str) -> None:
        self._events = events
        self._source = source
        self._target = target
        self._label = label.encode()
        self._pending = b""
        self._is_open = True
        os.set_blocking(source, False)
        events.watch_reader(source, self._copy)

    def _copy(self) -> bool:
        """Copy what is there; False if nothing was."""
        try:
            block = os.read(self._source, _BLOCK_BYTES)
        except BlockingIOError:
            return False
        *lines, self._pending = (self._pending + block).split(b"\n")
        self._write(lines)
        if not block:
            self._end()
        return bool(block)

    def _write(self, lines: list[bytes]) -> None:
        view = memoryview(b"".join(self._label + line + b"\n" for line in lines))
        while view:
            view = view[os.write(self._target, view) :]

    def _end(self) -> None:
        if self._is_open:
            self._is_open = False
            self._events.forget_reader(self._source)
        if self._pending:
            self._write([self._pending])
            self._pending = b""

    def finish(self) -> None:
        """Copy what has come so far, also an unfinished line, and stop.

        The descriptor may stay open in processes that the rank left behind.
        """
        while self._is_open and self._copy():
            pass
        self._end()
