"""A checkpoint in parts: each stage writes what it owns, and any other split reads it.

A folder holds one safetensors file per stage and ``index.json``, which is written last: a folder
without it is no checkpoint. All ranks must see the same folder.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from hpcomm.errors import HpcommError, InvalidArgumentError
from hpcomm.hyparflow.agreement import agree
from hpcomm.hyparflow.files import Replacement, sync_tree

if TYPE_CHECKING:
    import os
    from collections.abc import Iterable, Mapping

    from hpcomm.communicator import Communicator

__all__ = ["INDEX_NAME", "is_sharded", "load_shards", "read_index", "save_shards"]

INDEX_NAME = "index.json"
FORMAT = "hpcomm-sharded"
FORMAT_VERSION = 1

# safetensors' NumPy side knows no bfloat16 in all versions: the bits travel as another type.
_DISGUISES = {"bfloat16": "uint16", "float8_e4m3fn": "uint8", "float8_e5m2": "uint8"}


def is_sharded(path: Path) -> bool:
    """Tell whether ``path`` is a complete checkpoint of this kind."""
    return (path / INDEX_NAME).is_file()


def save_shards(
    comm: Communicator,
    path: str | os.PathLike[str],
    tensors: Mapping[str, np.ndarray[Any, Any]] | None,
    *,
    part: int,
    state: Mapping[str, Any],
) -> None:
    """Write a checkpoint; collective over ``comm``.

    Args:
        comm: all ranks.
        path: folder to write; an older one of that name stays until the new one is complete.
        tensors: what this rank writes; None if it writes nothing (another replica does).
        part: number of its file.
        state: plain values for the index; rank 0's are taken.

    Raises:
        HpcommError: a rank could not write; the older checkpoint is as it was. The same on all
            ranks.
    """
    target = Path(path)
    replacement: Replacement | None = None

    def start() -> Path | None:
        nonlocal replacement
        if comm.rank != 0:
            return None
        replacement = Replacement(target)
        replacement.temporary.mkdir()
        return replacement.temporary

    try:
        folder = comm.broadcast_object(agree(comm, lambda: _named(start, target)))
        report = agree(comm, lambda: _named(lambda: _write_part(folder, tensors, part), target))
        reports = comm.allgather_object(report)
        agree(comm, lambda: _named(lambda: _finish(replacement, reports, state), target))
    except BaseException:
        if replacement is not None:
            replacement.discard()
        raise


def _write_part(
    folder: Path, tensors: Mapping[str, np.ndarray[Any, Any]] | None, part: int
) -> tuple[str, dict[str, str]] | None:
    from safetensors.numpy import save_file

    if tensors is None:
        return None
    name = f"stage-{part:05d}.safetensors"
    disguised = {}
    for key, array in tensors.items():
        contiguous = np.asarray(array, order="C")  # ascontiguousarray would add an axis to scalars
        other = _DISGUISES.get(array.dtype.name)
        disguised[key] = contiguous if other is None else contiguous.view(other)
    try:
        save_file(disguised, folder / name, metadata={"format": "np"})
    except Exception as error:
        # The library's own class says nothing that OSError would not say better.
        if isinstance(error, OSError):
            raise
        raise OSError(f"writing {name} failed: {error}") from error
    sync_tree(folder / name)
    return name, {key: array.dtype.name for key, array in tensors.items()}


def _finish(
    replacement: Replacement | None,
    reports: Iterable[tuple[str, dict[str, str]] | None],
    state: Mapping[str, Any],
) -> None:
    if replacement is None:
        return
    files: dict[str, dict[str, str]] = {}
    for report in reports:
        if report is not None:
            name, dtypes = report
            for key, dtype in dtypes.items():
                files.setdefault(key, {"file": name, "dtype": dtype})
    index = {
        "format": FORMAT,
        "version": FORMAT_VERSION,
        "tensors": files,
        "training_state": dict(state),
    }
    (replacement.temporary / INDEX_NAME).write_text(json.dumps(index, indent=1))
    replacement.commit()


def _named(work: Any, target: Path) -> Any:
    try:
        return work()
    except OSError as error:
        raise HpcommError(
            f"checkpoint: writing {str(target)!r} failed: {type(error).__name__}: {error}; an "
            "older "
            "checkpoint of that name is untouched"
        ) from error


def read_index(path: Path) -> dict[str, Any]:
    """Return the index of a checkpoint.

    Args:
        path: its folder.

    Returns:
        Keys "tensors" (name → {"file", "dtype"}) and "training_state".

    Raises:
        InvalidArgumentError: no such checkpoint, or of a newer format.
    """
    try:
        index: dict[str, Any] = json.loads((path / INDEX_NAME).read_text())
    except (OSError, ValueError) as error:
        raise InvalidArgumentError(
            f"resume: {str(path)!r} is no complete sharded checkpoint: {error}"
        ) from error
    if index.get("format") != FORMAT or index.get("version", 0) > FORMAT_VERSION:
        raise InvalidArgumentError(
            f"resume: {str(path)!r} has format {index.get('format')!r}, version "
            f"{index.get('version')!r}; this hpcomm reads {FORMAT!r} up to {FORMAT_VERSION}"
        )
    return index


def load_shards(path: Path, keys: Iterable[str]) -> dict[str, np.ndarray[Any, Any]]:
    """Read some tensors of a checkpoint; local.

    Args:
        path: its folder.
        keys: names of the tensors that this rank needs.

    Returns:
        Name → array, in the dtype it was saved in.

    Raises:
        InvalidArgumentError: a tensor is not in the checkpoint: it belongs to another model.
    """
    from safetensors import safe_open

    tensors = read_index(path)["tensors"]
    wanted: dict[str, list[str]] = {}
    for key in keys:
        if key not in tensors:
            raise InvalidArgumentError(
                f"resume: {str(path)!r} has no values for {key!r}; was it written by another model "
                "or optimizer?"
            )
        wanted.setdefault(tensors[key]["file"], []).append(key)
    loaded: dict[str, np.ndarray[Any, Any]] = {}
    for name, members in wanted.items():
        with safe_open(path / name, framework="numpy") as file:
            for key in members:
                array = file.get_tensor(key)
                dtype = tensors[key]["dtype"]
                loaded[key] = array if array.dtype.name == dtype else array.view(_dtype(dtype))
    return loaded


def _dtype(name: str) -> np.dtype[Any]:
    import ml_dtypes

    return np.dtype(getattr(ml_dtypes, name)) if hasattr(ml_dtypes, name) else np.dtype(name)
