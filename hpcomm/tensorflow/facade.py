"""What callbacks see as ``self.model``: the user's model, with the other ranks behind it.

Reading weights gathers them first; setting them sends them to the stages; evaluating and predicting
run on all ranks. Everything that needs no weights is the user's model itself.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Any

import keras
import numpy as np

from hpcomm.tensorflow.refusals import refuse

if TYPE_CHECKING:
    from hpcomm.hyparflow.session import Session

__all__ = ["ModelFacade", "OptimizerFacade"]

# Attributes of a model that say nothing about the values of its weights.
_FREE = frozenset(
    [
        "_initial_epoch",
        "built",
        "compiled",
        "compiled_metrics",
        "compute_output_shape",
        "count_params",
        "dtype",
        "dtype_policy",
        "get_compile_config",
        "get_config",
        "history",
        "input",
        "input_names",
        "input_shape",
        "inputs",
        "jit_compile",
        "loss",
        "metrics",
        "metrics_names",
        "name",
        "output",
        "output_names",
        "output_shape",
        "outputs",
        "predict_function",
        "reset_metrics",
        "run_eagerly",
        "steps_per_execution",
        "stop_evaluating",
        "stop_predicting",
        "stop_training",
        "summary",
        "test_function",
        "to_json",
        "train_function",
        "trainable",
    ]
)
_FORBIDDEN = frozenset(
    ["compile", "compile_from_config", "fit", "make_train_function", "train_on_batch", "train_step"]
)
_OPTIMIZER_FREE = frozenset(
    [
        "built",
        "clipnorm",
        "clipvalue",
        "ema_momentum",
        "from_config",
        "get_config",
        "global_clipnorm",
        "gradient_accumulation_steps",
        "initial_scale",
        "iterations",
        "learning_rate",
        "name",
        "use_ema",
        "weight_decay",
    ]
)


class ModelFacade:
    """The user's model as callbacks may use it while a hook runs; on rank 0."""

    def __init__(self, session: Session) -> None:
        """Stand before the model of ``session``."""
        put = object.__setattr__
        put(self, "_hpcomm_session", session)
        put(self, "_hpcomm_model", session.trainer.user_model)
        put(self, "_hpcomm_exposed", {})
        put(self, "_hpcomm_optimizer_used", False)

    @property  # type: ignore[misc]
    def __class__(self) -> Any:
        """The model's class, so that ``isinstance`` answers as it would for the model."""
        return type(self._hpcomm_model)

    def __getattr__(self, name: str) -> Any:
        """Return the model's attribute, its weights brought up to date if it may show them."""
        if name in _FORBIDDEN:
            raise refuse("training-inside-callback", f"self.model.{name}")
        if name not in _FREE and not name.startswith("__"):
            self._hpcomm_expose(optimizer=False)
        return getattr(self._hpcomm_model, name)

    def __setattr__(self, name: str, value: Any) -> None:
        """Set the model's own attribute."""
        if name == "optimizer":
            raise refuse("training-inside-callback", "self.model.optimizer = …")
        setattr(self._hpcomm_model, name, value)

    def __call__(self, *arguments: Any, **keywords: Any) -> Any:
        """Call the whole model on this rank."""
        self._hpcomm_session.gather_now()
        return self._hpcomm_model(*arguments, **keywords)

    @property
    def optimizer(self) -> OptimizerFacade | None:
        """The optimizer; a new learning rate reaches all ranks."""
        if self._hpcomm_model.optimizer is None:
            return None
        object.__setattr__(self, "_hpcomm_optimizer_used", True)
        self._hpcomm_session.show_iterations()
        return OptimizerFacade(self, self._hpcomm_model.optimizer)

    def get_weights(self) -> list[Any]:
        """Return the whole model's weights as they are now."""
        self._hpcomm_session.gather_now()
        weights: list[Any] = self._hpcomm_model.get_weights()
        return weights

    def set_weights(self, weights: list[Any]) -> None:
        """Set the weights of all stages on all ranks."""
        self._hpcomm_session.gather_now()
        self._hpcomm_model.set_weights(weights)
        self._hpcomm_session.scatter_now()

    def load_weights(self, filepath: Any, skip_mismatch: bool = False, **keywords: Any) -> None:
        """Read weights, and the optimizer's state where the file has it, for all ranks."""
        self._hpcomm_session.gather_now(optimizer=True)
        self._hpcomm_model.load_weights(filepath, skip_mismatch=skip_mismatch, **keywords)
        self._hpcomm_session.scatter_now(optimizer=True)

    def save(self, filepath: Any, overwrite: bool = True, **keywords: Any) -> None:
        """Save the whole model as it is now; the old file stays until the new one is complete."""
        self._hpcomm_session.save_now(filepath, overwrite=overwrite, **keywords)

    def save_weights(self, filepath: Any, overwrite: bool = True, **keywords: Any) -> None:
        """Save weights and optimizer state; the old file stays until the new one is complete."""
        self._hpcomm_session.save_now(filepath, overwrite=overwrite, weights_only=True, **keywords)

    def evaluate(self, x: Any = None, y: Any = None, **keywords: Any) -> Any:
        """Evaluate on all ranks, with data that only this rank needs to have."""
        return self._hpcomm_session.evaluate_now(x, y, **keywords)

    def predict(self, x: Any, **keywords: Any) -> Any:
        """Predict on all ranks, with data that only this rank needs to have."""
        return self._hpcomm_session.predict_now(x, **keywords)

    def _hpcomm_expose(self, *, optimizer: bool) -> None:
        self._hpcomm_session.gather_now(optimizer=optimizer)
        if optimizer not in self._hpcomm_exposed:
            self._hpcomm_exposed[optimizer] = self._hpcomm_digest(optimizer=optimizer)

    def _hpcomm_digest(self, *, optimizer: bool) -> bytes:
        variables = list(self._hpcomm_model.variables)
        if optimizer and self._hpcomm_model.optimizer is not None:
            variables += self._hpcomm_model.optimizer.variables
        digest = hashlib.blake2b()
        for variable in variables:
            digest.update(np.ascontiguousarray(variable).reshape(-1).view(np.uint8).data)
        return digest.digest()

    def _hpcomm_settle(self) -> None:
        """Send to all ranks what a callback changed behind this facade's back."""
        exposed, changed = dict(self._hpcomm_exposed), None
        self._hpcomm_exposed.clear()
        for optimizer, before in exposed.items():
            if self._hpcomm_digest(optimizer=optimizer) != before:
                changed = bool(changed) or optimizer
        if changed is not None:
            self._hpcomm_session.scatter_now(optimizer=changed)

    def _hpcomm_learning_rate(self) -> float | None:
        """Return the learning rate if a callback may have changed it in this hook."""
        if not self._hpcomm_optimizer_used:
            return None
        object.__setattr__(self, "_hpcomm_optimizer_used", False)
        optimizer = self._hpcomm_model.optimizer
        optimizer = getattr(optimizer, "inner_optimizer", optimizer)
        schedule = keras.optimizers.schedules.LearningRateSchedule
        if isinstance(getattr(optimizer, "_learning_rate", None), schedule):
            if self._hpcomm_session.trainer.learning_rate is not None:
                raise refuse("schedule-in-callback")
            return None
        return float(optimizer.learning_rate)


class OptimizerFacade:
    """The optimizer as callbacks may use it while a hook runs; on rank 0."""

    def __init__(self, model: ModelFacade, optimizer: Any) -> None:
        """Stand before an optimizer of ``model``."""
        object.__setattr__(self, "_hpcomm_owner", model)
        object.__setattr__(self, "_hpcomm_optimizer", optimizer)

    @property  # type: ignore[misc]
    def __class__(self) -> Any:
        """The optimizer's class, so that ``isinstance`` answers as it would for the optimizer."""
        return type(self._hpcomm_optimizer)

    def __getattr__(self, name: str) -> Any:
        """Return the optimizer's attribute, its state brought up to date if it may show it."""
        if name == "inner_optimizer":
            return OptimizerFacade(self._hpcomm_owner, self._hpcomm_optimizer.inner_optimizer)
        if name not in _OPTIMIZER_FREE and not name.startswith("__"):
            # This also builds an optimizer that has not been gathered before.
            self._hpcomm_owner._hpcomm_expose(optimizer=True)
        return getattr(self._hpcomm_optimizer, name)

    def __setattr__(self, name: str, value: Any) -> None:
        """Set the learning rate; everything else belongs to the stages' optimizers."""
        if name != "learning_rate":
            raise refuse("optimizer-attribute", f"self.model.optimizer.{name} = …")
        setattr(self._hpcomm_optimizer, name, value)
