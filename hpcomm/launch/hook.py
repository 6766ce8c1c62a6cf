"""How the Python exception that ends a rank reaches the other ranks and the launcher.

Installed by `import hpcomm` in the ranks of `hpcomm run` and by `hpcomm.init` everywhere. The
standard library only.
"""

from __future__ import annotations

import os
import signal
import socket
import sys
import threading
import time
import traceback
from typing import TYPE_CHECKING, Any

from hpcomm.launch import environment
from hpcomm.launch.session import Failure, Session

if TYPE_CHECKING:
    from types import TracebackType

__all__ = ["fail", "install"]

_INTERRUPTED = 130
# Errors that only say that another rank failed first; by name, because nothing is imported here.
_SECONDARY = ("PeerAbortedError", "PeerDiedError", "CommunicatorBrokenError")

_installed_in = 0  # process id
_is_rank = False


def install(*, is_rank: bool = False) -> None:
    """Note the exception that ends this process, from now on.

    Args:
        is_rank: this process is a rank for certain, also if no supervisor started it itself.
    """
    global _installed_in, _is_rank
    _is_rank = _is_rank or is_rank
    if _installed_in == os.getpid():
        return
    _installed_in = os.getpid()
    previous = sys.excepthook

    def hook(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> Any:
        _ignore_interrupts()
        is_told = False
        if os.getpid() == _installed_in:  # not in a child made by fork
            is_told = fail(error, "".join(traceback.format_exception(kind, error, trace)))
        if not is_told or previous is not sys.__excepthook__:
            previous(kind, error, trace)

    sys.excepthook = hook


def _ignore_interrupts() -> None:
    """Let Ctrl-C not disturb the report of a process that ends anyway."""
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGINT, signal.SIG_IGN)


def fail(error: BaseException, trace: str = "") -> bool:
    """Tell the launcher and the other ranks that this rank ends with ``error``.

    Args:
        error: why.
        trace: traceback for the launcher's report; empty where the message says all.

    Returns:
        Whether the launcher will print it.
    """
    _ignore_interrupts()
    message = f"{type(error).__name__}: {error}"
    core = sys.modules.get("hpcomm._core")
    if core is not None:
        lost_rank = _is_any(error, ("PeerDiedError",))
        core.abort_all(str(error) if lost_rank else message, lost_rank)
        core.mark_lost()  # this one
    own_pid = os.environ.get("HPCOMM_RANK_PID") == str(os.getpid())
    session = Session.of_environment() if _is_rank or own_pid else None
    if session is None:
        return False
    is_interrupt = isinstance(error, KeyboardInterrupt)
    if is_interrupt and session.is_there("stop"):
        return True  # the user knows
    rank, _ = environment.place(os.environ)
    return session.note_exception(
        Failure(
            rank=rank,
            host=socket.gethostname(),
            pid=os.getpid(),
            exit_code=_INTERRUPTED if is_interrupt else 1,
            error=message,
            traceback=trace,
            secondary=_is_any(error, _SECONDARY),
            at_s=time.time(),
        )
    )


def _is_any(error: BaseException, names: tuple[str, ...]) -> bool:
    """Tell whether ``error`` is of a class so named, as nothing of hpcomm is imported here."""
    return any(base.__name__ in names for base in type(error).__mro__)
