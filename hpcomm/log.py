"""What hpcomm says beside errors: the logger ``hpcomm``, with the rank before each line.

HPCOMM_LOG=info or debug shows it on standard error, unless the program has configured logging
itself.
"""

from __future__ import annotations

import functools
import logging
import sys

__all__ = ["configure", "logger"]

logger = logging.getLogger("hpcomm")


@functools.cache
def configure(level: str, rank: int) -> None:
    """Make the logger write lines of at least ``level`` to standard error."""
    logger.setLevel(level.upper())
    if logging.getLogger().handlers:
        return  # the program's own arrangements
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(logging.Formatter(f"hpcomm[{rank}] %(levelname)s: %(message)s"))
    logger.addHandler(handler)
    logger.propagate = False
