"""Import TensorFlow without the lines it writes before its own log settings count."""

from __future__ import annotations

import contextlib
import os
import sys
import tempfile
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["import_quietly"]

_CHATTER = (
    "WARNING: All log messages before absl::InitializeLog() is called are written to STDERR",
    "oneDNN custom operations are on",
)


def import_quietly() -> None:
    """Import TensorFlow; its greeting is dropped, everything else it says is shown.

    Messages of level information and warning stay hidden afterwards unless the user has set
    TF_CPP_MIN_LOG_LEVEL.
    """
    if "tensorflow" in sys.modules:
        return
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    with _without_chatter():
        import tensorflow  # noqa: F401, ICN001


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
