"""Keras callbacks on rank 0: which hooks there are, and what they decided."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import keras

from hpcomm.errors import InvalidArgumentError
from hpcomm.tensorflow.facade import ModelFacade
from hpcomm.tensorflow.metrics import plain_values

if TYPE_CHECKING:
    from hpcomm.hyparflow.session import Session

__all__ = ["HOOKS", "KerasCallbackHost"]

_BATCHES = [
    f"on_{mode}_batch_{end}" for mode in ("train", "test", "predict") for end in ("begin", "end")
]
_SPANS = [f"on_{mode}_{end}" for mode in ("train", "test", "predict") for end in ("begin", "end")]
HOOKS = frozenset([*_BATCHES, *_SPANS, "on_epoch_begin", "on_epoch_end"])
"""Every hook of a Keras callback."""

# Callbacks that look at the values but neither ask anything of the model nor decide anything.
# Others say so of themselves by the attribute hpcomm_passive = True.
_PASSIVE = (
    keras.callbacks.History,
    keras.callbacks.ProgbarLogger,
    keras.callbacks.CSVLogger,
    keras.callbacks.RemoteMonitor,
)


class KerasCallbackHost:
    """Holds the callbacks of one fit, evaluate or predict and runs their hooks."""

    def __init__(
        self, session: Session, callbacks: Any, *, verbose: Any, epochs: int, steps: int | None
    ) -> None:
        """Take the callbacks in.

        Args:
            session: whose model they see.
            callbacks: a callback, a list of them, a keras CallbackList, or None.
            verbose: 0, 1, 2 or "auto", as in Keras.
            epochs: for the progress bar and ``Callback.params``.
            steps: per epoch, likewise; None if not known.
        """
        given = getattr(callbacks, "callbacks", None) or keras.tree.flatten(callbacks)
        for callback in given:
            if callback is not None and not hasattr(callback, "set_model"):
                raise InvalidArgumentError(
                    f"{session.call}: callbacks must be Keras callbacks, got {callback!r}"
                )
        self._facade = ModelFacade(session)
        self._model = session.trainer.user_model
        if isinstance(callbacks, keras.callbacks.CallbackList):
            self._list = callbacks
            self._list.set_model(self._facade)
        else:
            self._list = keras.callbacks.CallbackList(
                callbacks,
                add_history=True,
                add_progbar=verbose != 0,
                model=self._facade,
                verbose=verbose,
                epochs=epochs,
                steps=steps,
            )
        self._last = _LastLogs()
        self._list.callbacks.append(self._last)
        # Hooks must run one after the other: each may ask all ranks for something.
        self._list._async_train = self._list._async_test = self._list._async_predict = False
        self._model.stop_training = False
        self._model.stop_evaluating = False
        self._model.stop_predicting = False
        served: set[str] = set()
        local: set[str] = set()
        for callback in self._list.callbacks[:-1]:
            hooks = {hook for hook in HOOKS if _implements(callback, hook)}
            if isinstance(callback, keras.callbacks.ProgbarLogger) and callback.verbose != 1:
                hooks -= set(_BATCHES)
            (local if _is_passive(callback) else served).update(hooks)
        self.served = frozenset(served)
        self.local = frozenset(local - served)

    def call(self, hook: str, index: int | None, logs: dict[str, Any] | None) -> dict[str, Any]:
        """Run one hook of all callbacks.

        Args:
            hook: such as "on_epoch_end".
            index: epoch or batch, where the hook takes one.
            logs: values so far.

        Returns:
            What was decided: fields of `hpcomm.hyparflow.service.Decisions` by name.
        """
        method = getattr(self._list, hook)
        try:
            if index is None:
                method(logs)
            else:
                method(index, logs)
            self._facade._hpcomm_settle()
            learning_rate = self._facade._hpcomm_learning_rate()
        except Exception as error:
            error.hpcomm_origin = self._culprit(error, hook)  # type: ignore[attr-defined]
            raise
        return {
            "stop_training": bool(self._model.stop_training),
            "stop_evaluating": bool(self._model.stop_evaluating),
            "stop_predicting": bool(self._model.stop_predicting),
            "initial_epoch": self._model._initial_epoch if hook == "on_train_begin" else None,
            "learning_rate": learning_rate,
            "logs": plain_values(self._last.logs) if hook == "on_epoch_end" else None,
        }

    def _culprit(self, error: BaseException, hook: str) -> str:
        step = error.__traceback__
        while step is not None:
            owner = step.tb_frame.f_locals.get("self")
            if any(owner is callback for callback in self._list.callbacks):
                return f"callback {type(owner).__name__}.{hook}"
            step = step.tb_next
        return f"callback hook {hook}"


class _LastLogs(keras.callbacks.Callback):
    """Stands behind all others and keeps the values of an epoch as they left them."""

    def __init__(self) -> None:
        super().__init__()
        self.logs: dict[str, Any] = {}

    def on_epoch_end(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        """Keep the values."""
        del epoch
        self.logs = dict(logs or {})


def _is_passive(callback: Any) -> bool:
    return type(callback) in _PASSIVE or getattr(callback, "hpcomm_passive", False) is True


def _implements(callback: Any, hook: str) -> bool:
    names = [hook]
    if hook.startswith("on_train_batch"):
        names.append(hook.replace("train_", ""))
    for name in names:
        method = getattr(callback, name, None)
        function = getattr(method, "__func__", method)
        if function is not None and function is not getattr(keras.callbacks.Callback, name):
            return True
    return False
