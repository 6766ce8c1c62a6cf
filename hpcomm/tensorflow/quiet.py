"""Import TensorFlow without the lines it writes before its own log settings count."""

from __future__ import annotations

import contextlib
import ctypes
import mmap
import os
import re
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["import_quietly"]

_CHATTER = (
    "WARNING: All log messages before absl::InitializeLog() is called are written to STDERR",
    "oneDNN custom operations are on",
)

# absl::SetMinLogLevel(absl::LogSeverityAtLeast), whatever Abseil's version is called.
_SET_LEVEL = re.compile(rb"_ZN4absl(?:\d+lts_\d+)?14SetMinLogLevelENS\w*18LogSeverityAtLeastE")


def import_quietly() -> None:
    """Import TensorFlow; its greeting is dropped, everything else it says is shown.

    Messages of level information and warning stay hidden afterwards unless the user has set
    TF_CPP_MIN_LOG_LEVEL.
    """
    if "tensorflow" in sys.modules:
        return
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    with _without_chatter():
        import tensorflow  # noqa: ICN001
    _apply_level(Path(tensorflow.__file__).parent, os.environ["TF_CPP_MIN_LOG_LEVEL"])


def _apply_level(folder: Path, level: str) -> None:
    """Set the level that TF_CPP_MIN_LOG_LEVEL asks for where TensorFlow itself forgets to.

    Its newer parts write through Abseil's log, which knows nothing of that variable: every float64
    model makes it warn a hundred times. Without the function everything is shown, as before.
    """
    library = next(iter(folder.glob("libtensorflow_framework.so*")), None)
    if library is None or level not in ("0", "1", "2", "3"):
        return
    with library.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as text:
        found = _SET_LEVEL.search(text)
        name = found.group().decode() if found else ""
    function = getattr(ctypes.CDLL(str(library)), name, None) if name else None
    if function is not None:
        function.argtypes, function.restype = [ctypes.c_int], None
        function(int(level))


@contextlib.contextmanager
def _without_chatter() -> Iterator[None]:
    """Hold back standard error, also that of compiled code, and drop known lines from it."""
    sys.stderr.flush()
    with tempfile.TemporaryFile() as held:
        kept = os.dup(2)
        os.dup2(held.fileno(), 2)
        try:
            yield
        finally:
            sys.stderr.flush()
            os.dup2(kept, 2)
            os.close(kept)
            held.seek(0)
            for line in held.read().decode(errors="replace").splitlines(keepends=True):
                if not any(known in line for known in _CHATTER):
                    sys.stderr.write(line)
