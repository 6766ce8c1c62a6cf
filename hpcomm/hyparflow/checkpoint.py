"""When checkpoints are written, what they are called, and which one a training goes on with."""

from __future__ import annotations

import json
import os
import re
import shutil
import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hpcomm.errors import InvalidArgumentError
from hpcomm.hyparflow.arguments import check_whole
from hpcomm.hyparflow.sharded import INDEX_NAME, is_sharded
from hpcomm.hyparflow.training_state import TrainingState

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["CheckpointPolicy", "add_state", "find_checkpoint", "read_state"]

STATE_NAME = "hpcomm_training_state.json"
"""Name of the training state inside of a model file, which is a zip archive."""

_PATTERN = re.compile(r"checkpoint-(\d{8,})(\..+)?")


@dataclass(frozen=True, slots=True)
class CheckpointPolicy:
    """Regular checkpoints of a training, in a folder of their own.

    Attributes:
        directory: folder; made if missing.
        every: "epoch", or a number of steps.
        keep: how many of the newest to keep, >= 1; None keeps all.
        sharded: each stage writes its own part, so that no rank needs the memory for the whole
            model; else rank 0 writes one ``.keras`` file that plain Keras loads.
    """

    directory: str | os.PathLike[str]
    every: str | int = "epoch"
    keep: int | None = 3
    sharded: bool = False

    @classmethod
    def of(cls, value: Any) -> CheckpointPolicy | None:
        """Return a policy of what the user passed: a policy, a folder or None.

        Args:
            value: as given to ``fit(checkpoint=…)``.

        Returns:
            The policy, checked; None for None.

        Raises:
            InvalidArgumentError: anything else, or a field out of its range.
        """
        if value is None:
            return None
        policy = value
        if isinstance(value, (str, os.PathLike)):
            policy = cls(value)
        if not isinstance(policy, cls):
            raise InvalidArgumentError(
                f"fit: checkpoint must be a folder or a CheckpointPolicy, got {value!r}"
            )
        if policy.every != "epoch":
            check_whole("checkpoint.every", policy.every)
        if policy.keep is not None:
            check_whole("checkpoint.keep", policy.keep)
        return policy

    def due(self, step: int, *, end_of_epoch: bool) -> bool:
        """Tell whether to save now.

        Args:
            step: training steps done so far.
            end_of_epoch: whether an epoch is over; else a step is.

        Returns:
            True if so.
        """
        if self.every == "epoch":
            return end_of_epoch
        return not end_of_epoch and step % int(self.every) == 0

    def path(self, step: int, suffix: str) -> Path:
        """Return the name of the checkpoint after ``step`` training steps."""
        return Path(self.directory) / f"checkpoint-{step:08d}{'' if self.sharded else suffix}"

    def prune(self) -> None:
        """Remove the oldest checkpoints that are too many; what cannot be removed stays."""
        if self.keep is None:
            return
        for path in list_checkpoints(Path(self.directory))[: -self.keep]:
            if path.is_dir():
                (path / INDEX_NAME).unlink(missing_ok=True)  # from now on it is none
                shutil.rmtree(path, ignore_errors=True)
            else:
                path.unlink(missing_ok=True)


def list_checkpoints(directory: Path) -> list[Path]:
    """Return the complete checkpoints in a folder, oldest (fewest steps) first."""
    if not directory.is_dir():
        return []
    found = []
    for path in directory.iterdir():
        match = _PATTERN.fullmatch(path.name)
        if match and (path.is_file() or is_sharded(path)):
            found.append((int(match[1]), path))
    return [path for _, path in sorted(found)]


def find_checkpoint(path: str | os.PathLike[str], suffixes: Sequence[str]) -> Path | None:
    """Return the checkpoint that ``path`` means: itself, or the newest in that folder.

    Args:
        path: a model file, a sharded checkpoint or a folder of checkpoints.
        suffixes: endings of model files.

    Returns:
        The checkpoint; None for a folder that is missing or has none.

    Raises:
        InvalidArgumentError: a file that is missing or has no such ending.
    """
    path = Path(path)
    if path.name.endswith(tuple(suffixes)):
        if not path.is_file():
            raise InvalidArgumentError(f"resume: there is no file {str(path)!r}")
        return path
    if is_sharded(path):
        return path
    if path.is_file():
        raise InvalidArgumentError(
            f"resume: {str(path)!r} is no checkpoint; model files end in {', '.join(suffixes)}"
        )
    checkpoints = list_checkpoints(path)
    return checkpoints[-1] if checkpoints else None


def add_state(path: Path, state: TrainingState) -> None:
    """Put the training state into a model file; programs that do not know it do not see it.

    Args:
        path: a zip archive.
        state: what to add.
    """
    with zipfile.ZipFile(path, "a") as archive:
        archive.writestr(STATE_NAME, json.dumps(state.to_json()))


def read_state(path: Path) -> TrainingState | None:
    """Return the training state of a model file, or None if it has none.

    Args:
        path: a model file.

    Returns:
        The state.
    """
    if not zipfile.is_zipfile(path):
        return None
    with zipfile.ZipFile(path) as archive:
        if STATE_NAME not in archive.namelist():
            return None
        return TrainingState.from_json(json.loads(archive.read(STATE_NAME)))
