"""The loops over batches and epochs, in the order in which Keras does the same things."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from hpcomm.hyparflow.training_state import TrainingState

if TYPE_CHECKING:
    from collections.abc import Generator

    from hpcomm.hyparflow.checkpoint import CheckpointPolicy
    from hpcomm.hyparflow.data import Batch, DataSource
    from hpcomm.hyparflow.history import History
    from hpcomm.hyparflow.hooks import Hooks
    from hpcomm.hyparflow.nonfinite import LossGuard
    from hpcomm.hyparflow.session import Session

__all__ = ["TrainingRun", "test_all"]


@dataclass(slots=True)
class TrainingRun:
    """One call of ``fit`` once everything is checked and open.

    Attributes:
        session: the split model.
        hooks: the user's callbacks.
        source: training data.
        validation: validation data, or None.
        validation_freq: every how many epochs to validate, or a list of epochs counted from 1.
        epochs: where to end.
        initial_epoch: where to begin.
        seed: of the order of the data.
        checkpoint: when to save.
        guard: ends the training when the loss is no number; None lets it go on.
        history: what is returned.
        resumed: what was restored, until the first epoch goes on with it.
        epoch: the current epoch.
        in_epoch: whether it has begun and is not over.
    """

    session: Session
    hooks: Hooks
    source: DataSource
    validation: DataSource | None
    validation_freq: Any
    epochs: int
    initial_epoch: int
    seed: int
    checkpoint: CheckpointPolicy | None
    guard: LossGuard | None
    history: History
    resumed: TrainingState | None = None
    epoch: int = 0
    in_epoch: bool = False

    def run(self) -> History:
        """Train; collective over all ranks.

        Returns:
            The history.
        """
        session, hooks = self.session, self.hooks
        session.saver.progress = self.state
        first = hooks.run("on_train_begin").initial_epoch or self.initial_epoch
        logs: dict[str, Any] | None = None
        for epoch in range(first, self.epochs):
            self.epoch = epoch
            logs = self._train_epoch()
            self._save(end_of_epoch=True)
            if hooks.decided.stop_training:
                break
        if self.epochs > 0:
            session.trainer.finalize()
            session.touched()
        hooks.run("on_train_end", logs=logs)
        session.saver.progress = None
        return self.history

    def state(self) -> TrainingState:
        """Return where the training stands, on rank 0."""
        cursor = self.source.cursor
        assert cursor is not None
        return TrainingState(
            epoch=self.epoch if self.in_epoch else self.epoch + 1,
            in_epoch=self.in_epoch,
            seed=self.seed,
            cursor=cursor.state(in_epoch=self.in_epoch),
            extra=self.session.trainer.extra_state(),
        )

    def _train_epoch(self) -> dict[str, Any]:
        session, hooks = self.session, self.hooks
        session.measurement.reset()
        step = 0
        if self.resumed is not None:
            session.measurement.restore(self.resumed.metrics)
            step = self.resumed.cursor.get("taken", 0)
            self.resumed = None
        self.in_epoch = True
        hooks.run("on_epoch_begin", self.epoch)
        self._train_batches(self.source.epoch(), step)
        logs = session.measurement.to_root()
        if self.validation is not None and self._validates():
            values = test_all(session, self.validation, hooks)
            logs.update({f"val_{name}": value for name, value in values.items()})
        self.in_epoch = False
        final = hooks.run("on_epoch_end", self.epoch, logs, always=True).logs or {}
        self.history.append(self.epoch, final)
        return logs

    def _train_batches(self, batches: Generator[Batch, None, None], step: int) -> None:
        """Train on the batches of an epoch, hooks around every ``steps_per_execution`` of them."""
        size = self.session.steps_per_execution
        done = 0
        for batch in batches:
            if done == 0:
                self.hooks.run("on_train_batch_begin", step)
            self._train(batch, step + done)
            done += 1
            if done == size:
                self._end_of_step(step + size - 1)
                step, done = step + size, 0
                if self.hooks.decided.stop_training:
                    batches.close()
                    return
        if done:
            self._end_of_step(step + size - 1)

    def _train(self, batch: Batch, step: int) -> None:
        session = self.session
        result = session.trainer.train_step(batch.step)
        session.touched()
        if self.guard is not None:
            self.guard.check(result.loss, skipped=result.skipped, epoch=self.epoch, step=step)
        session.measurement.update(batch, result)

    def _end_of_step(self, step: int) -> None:
        hook = "on_train_batch_end"
        if self.hooks.wants(hook):
            self.hooks.run(hook, step, self.session.measurement.to_root())
        self._save(end_of_epoch=False)

    def _save(self, *, end_of_epoch: bool) -> None:
        policy = self.checkpoint
        if policy is not None and policy.due(self.session.trainer.step, end_of_epoch=end_of_epoch):
            self.session.saver.save_regularly(policy)

    def _validates(self) -> bool:
        number = self.epoch + 1
        if isinstance(self.validation_freq, int):
            return number % self.validation_freq == 0
        return number in self.validation_freq


def test_all(session: Session, source: DataSource, hooks: Hooks) -> dict[str, Any]:
    """Evaluate on all batches of a source; collective over all ranks.

    Args:
        session: the split model.
        source: data, read from its beginning.
        hooks: the user's callbacks.

    Returns:
        Name → value on rank 0, an empty dict elsewhere.
    """
    if source.cursor is not None:
        source.cursor.rewind()
    session.measurement.reset()
    hooks.run("on_test_begin")
    for step, batch in enumerate(source.epoch()):
        hooks.run("on_test_batch_begin", step)
        session.measurement.update(batch, session.trainer.test_step(batch.step))
        hook = "on_test_batch_end"
        if hooks.wants(hook):
            decided = hooks.run(hook, step, session.measurement.to_root())
            if hooks.serves(hook) and decided.stop_evaluating:
                break
    logs = session.measurement.to_root()
    hooks.run("on_test_end", logs=logs)
    return logs
