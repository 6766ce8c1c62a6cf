"""What a result was made with: versions, MPI and processor, for reports and committed figures."""

from __future__ import annotations

import functools
import hashlib
import importlib.metadata
import importlib.util
import os
import platform
import sys
from pathlib import Path
from typing import Any

_PACKAGES = ("hpcomm", "numpy", "mpi4py", "keras", "tensorflow", "torch")
_ALIASES = {"tensorflow": ("tensorflow-cpu", "tensorflow")}


def environment() -> dict[str, Any]:
    """Return versions of what is loaded in this process, the MPI in use and the processor.

    Packages that this process has not imported are left out, as they had no part in its result.
    """
    versions = {
        name: _version(name) for name in _PACKAGES if name == "hpcomm" or name in sys.modules
    }
    # Not the CPUs of this rank, which depend on how it was bound.
    return {
        "python": platform.python_version(),
        **versions,
        "mpi": _mpi(),
        "processor": _processor(),
        "cpus": os.cpu_count(),
    }


@functools.cache
def sources() -> str:
    """Return a hash of this package's Python files and of its compiled core."""
    folder = Path(__file__).parent
    core = importlib.util.find_spec("hpcomm._core")
    files = sorted(folder.rglob("*.py"))
    files += [Path(core.origin)] if core is not None and core.origin else []
    digest = hashlib.sha256()
    for file in files:
        name = str(file.relative_to(folder)) if folder in file.parents else file.name
        content = file.read_bytes()
        digest.update(name.encode() + len(content).to_bytes(8, "little") + content)
    return digest.hexdigest()[:16]


def _version(name: str) -> str:
    for package in _ALIASES.get(name, (name,)):
        try:
            return importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            continue
    return str(getattr(sys.modules.get(name), "__version__", "unknown"))


def _mpi() -> str:
    module = sys.modules.get("mpi4py.MPI")
    if module is None:
        return "none"
    text = str(module.Get_library_version()).strip()
    # MPICH answers with pages about its configuration; the first line names it.
    return " ".join(text.splitlines()[0].split()).rstrip(",").split(", package")[0]


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        lines = []
    model = next((line.split(":", 1)[1].strip() for line in lines if "model name" in line), "")
    return f"{platform.machine()} {model}".strip()
