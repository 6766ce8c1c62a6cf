"""hpcomm: communication for deep learning over many processes.

`init` returns the communicator of all ranks; `hpcomm.hyparflow` trains Keras models over it.
Importing this package starts no MPI and no thread and imports no framework: names are looked up
when they are first used.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from hpcomm.bootstrap.world import init
    from hpcomm.communicator import Communicator
    from hpcomm.errors import (
        CallbackError,
        CommTimeoutError,
        CommunicatorBrokenError,
        DataError,
        HpcommError,
        InternalError,
        InvalidArgumentError,
        LaunchError,
        MismatchError,
        ModelError,
        NonFiniteLossError,
        PeerAbortedError,
        PeerDiedError,
        TransportError,
        UnsupportedError,
    )
    from hpcomm.grid import Grid
    from hpcomm.work import Work

__version__ = "0.1.0"

__all__ = [
    "CallbackError",
    "CommTimeoutError",
    "Communicator",
    "CommunicatorBrokenError",
    "DataError",
    "Grid",
    "HpcommError",
    "InternalError",
    "InvalidArgumentError",
    "LaunchError",
    "MismatchError",
    "ModelError",
    "NonFiniteLossError",
    "PeerAbortedError",
    "PeerDiedError",
    "TransportError",
    "UnsupportedError",
    "Work",
    "__version__",
    "init",
]

_HOMES = {
    "init": "hpcomm.bootstrap.world",
    "Communicator": "hpcomm.communicator",
    "Grid": "hpcomm.grid",
    "Work": "hpcomm.work",
}
_SUBPACKAGES = ("hyparflow", "models", "tensorflow")


def __getattr__(name: str) -> Any:
    """Import what ``name`` needs, at its first use."""
    if name in _SUBPACKAGES:
        return importlib.import_module(f"hpcomm.{name}")
    if name in __all__:
        value = getattr(importlib.import_module(_HOMES.get(name, "hpcomm.errors")), name)
        globals()[name] = value
        return value
    raise AttributeError(f"module 'hpcomm' has no attribute {name!r}")


def __dir__() -> list[str]:
    """List the public names, also those that are not loaded yet."""
    return sorted({*globals(), *__all__, *_SUBPACKAGES})


def _watch_exceptions() -> None:
    """In a rank of `hpcomm run`, have the launcher told which exception ended it."""
    import os

    if "HPCOMM_SESSION" in os.environ:
        from hpcomm.launch import hook

        hook.install()


_watch_exceptions()
