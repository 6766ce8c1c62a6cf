"""Write the state of a training to the disk and bring it back, under any split."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from hpcomm.errors import HpcommError, InvalidArgumentError
from hpcomm.hyparflow.agreement import agree
from hpcomm.hyparflow.checkpoint import add_state, find_checkpoint, read_state
from hpcomm.hyparflow.files import replacing
from hpcomm.hyparflow.sharded import load_shards, read_index, save_shards
from hpcomm.hyparflow.training_state import TrainingState

if TYPE_CHECKING:
    import os
    from collections.abc import Callable

    from hpcomm.hyparflow.checkpoint import CheckpointPolicy
    from hpcomm.hyparflow.session import Session

__all__ = ["Saver"]


class Saver:
    """Writes and reads checkpoints of a session.

    Attributes:
        progress: says on rank 0 where the training stands, while there is one.
    """

    def __init__(self, session: Session) -> None:
        """Serve ``session``."""
        self._session = session
        self.progress: Callable[[], TrainingState] | None = None

    def save_in_hook(
        self, path: Any, *, overwrite: bool = True, weights_only: bool = False, **keywords: Any
    ) -> None:
        """Write a model file; for rank 0 while a hook runs.

        Args:
            path: of the file; its ending decides the format.
            overwrite: whether a file of that name may be replaced.
            weights_only: weights and optimizer state without the architecture.
            keywords: for the framework's own function.

        Raises:
            InvalidArgumentError: the file exists and ``overwrite`` is False.
            OSError: it cannot be written; an older one is untouched.
        """
        session = self._session
        target = Path(path)
        if target.exists() and not overwrite:
            raise InvalidArgumentError(
                f"save: {str(target)!r} exists; pass overwrite=True to replace it"
            )
        session.gather_now(optimizer=True)
        state = self._state()
        if state is not None and state.in_epoch:
            state.metrics = session.service.request("metrics_state")
        try:
            self._write(target, state, weights_only=weights_only, **keywords)
        except OSError as error:
            reason = " ".join(str(error.strerror or error).split())
            raise OSError(
                error.errno,
                f"{reason}; {str(target)!r} was not written, and an older file of that name is "
                "untouched",
            ) from error

    def save(self, path: str | os.PathLike[str], *, sharded: bool = False) -> None:
        """Write a checkpoint; collective over all ranks.

        Args:
            path: of the model file, or of the folder if ``sharded``.
            sharded: each stage writes its own part.

        Raises:
            HpcommError: it cannot be written; an older one is untouched. The same on every rank.
        """
        session = self._session
        state = self._state()
        in_epoch = session.comm.broadcast_object(None if state is None else state.in_epoch)
        metrics = session.measurement.state_to_root() if in_epoch else None
        if state is not None:
            state.metrics = metrics
        if sharded:
            session.trainer.average_statistics()
            tensors = session.trainer.state_dict() if session.trainer.grid.replica == 0 else None
            save_shards(
                session.comm,
                path,
                tensors,
                part=session.trainer.grid.partition,
                state={} if state is None else state.to_json(),
            )
            return
        session.gather_whole(optimizer=True)

        def write() -> None:
            if session.comm.rank != 0:
                return
            try:
                self._write(Path(path), state)
            except OSError as error:
                raise HpcommError(
                    f"checkpoint: writing {str(path)!r} failed: {type(error).__name__}: {error}; "
                    "an older checkpoint of that name is untouched"
                ) from error

        agree(session.comm, write)

    def save_regularly(self, policy: CheckpointPolicy) -> None:
        """Write the checkpoint that is due and remove old ones; collective over all ranks.

        Args:
            policy: what the user asked for.
        """
        suffix = self._session.framework.model_suffixes[0]
        self.save(policy.path(self._session.trainer.step, suffix), sharded=policy.sharded)
        if self._session.comm.rank == 0:
            policy.prune()

    def restore(self, path: str | os.PathLike[str], *, optional: bool) -> TrainingState | None:
        """Load weights, optimizer state and counters; collective over all ranks.

        Args:
            path: a model file, a sharded checkpoint or a folder of checkpoints; rank 0's counts.
            optional: whether it is fine that there is none.

        Returns:
            Where the training stood; None if there is no checkpoint, or a file of plain Keras.

        Raises:
            InvalidArgumentError: no such checkpoint, or of another model; the same on every rank.
        """
        session = self._session
        comm = session.comm
        suffixes = session.framework.model_suffixes
        found = comm.broadcast_object(
            agree(comm, lambda: find_checkpoint(path, suffixes) if comm.rank == 0 else None)
        )
        if found is None:
            if optional:
                return None
            raise InvalidArgumentError(f"resume: there is no checkpoint in {str(path)!r}")
        state = self._load_shards(found) if found.is_dir() else self._load_file(found)
        if state is not None:
            session.trainer.load_extra_state(state.extra)
        return state

    def _load_shards(self, path: Path) -> TrainingState | None:
        session = self._session

        def load() -> TrainingState | None:
            tensors = load_shards(path, session.trainer.state_keys())
            try:
                session.trainer.load_state_dict(tensors)
            except (ValueError, KeyError) as error:
                raise _wrong_model(path, error) from error
            plain = read_index(path)["training_state"]
            return TrainingState.from_json(plain) if plain else None

        return agree(session.comm, load)

    def _load_file(self, path: Path) -> TrainingState | None:
        session = self._session
        session.gather_whole(optimizer=True)

        def load() -> TrainingState | None:
            if session.comm.rank != 0:
                return None
            try:
                session.framework.load_weights(session.trainer.user_model, path)
                return read_state(path)
            except (OSError, ValueError, KeyError) as error:
                raise _wrong_model(path, error) from error

        state = agree(session.comm, load)
        session.scatter_whole(optimizer=True)
        shared: TrainingState | None = session.comm.broadcast_object(state)
        return shared

    def _state(self) -> TrainingState | None:
        if self.progress is None or self._session.comm.rank != 0:
            return None
        return self.progress()

    def _write(
        self,
        target: Path,
        state: TrainingState | None,
        *,
        weights_only: bool = False,
        **keywords: Any,
    ) -> None:
        session = self._session
        with replacing(target) as temporary:
            session.framework.save_model(
                session.trainer.user_model, temporary, weights_only=weights_only, **keywords
            )
            if state is not None and not weights_only and target.suffix == ".keras":
                add_state(temporary, state)


def _wrong_model(path: Path, error: Exception) -> InvalidArgumentError:
    reason = str(error).split("\n", 1)[0]
    return InvalidArgumentError(f"resume: {str(path)!r} cannot be loaded into this model: {reason}")
