"""Keras's side of what surrounds the engine; see `hpcomm.hyparflow.framework`."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Any

import keras

from hpcomm.errors import InvalidArgumentError
from hpcomm.tensorflow import arrays
from hpcomm.tensorflow.callbacks import KerasCallbackHost
from hpcomm.tensorflow.metrics import KerasMetrics
from hpcomm.tensorflow.refusals import refuse, refuse_unsupported
from hpcomm.tensorflow.streams import KerasStream

if TYPE_CHECKING:
    from pathlib import Path

    from hpcomm.errors import UnsupportedError
    from hpcomm.hyparflow.session import Session

__all__ = ["KerasFramework"]


class KerasFramework:
    """Keras 3 on TensorFlow."""

    name = "keras"
    model_suffixes = (".keras", ".weights.h5")
    """Endings of files that `load_weights` reads; the first is that of a whole model."""

    def check_model(self, model: Any, *, call: str, needs_loss: bool) -> None:
        """Refuse by name what cannot be trained as it is; a function is looked at once it ran."""
        if isinstance(model, keras.Model):
            refuse_unsupported(model, call=call, needs_loss=needs_loss)

    def refuse(self, feature: str, *, call: str) -> UnsupportedError:
        """Return the error that refuses a feature by its key in `REFUSALS`."""
        return refuse(feature, call=call)

    def prepare_model(self, model: Any, x: Any) -> None:
        """Build a Sequential model that takes its input shape from the data."""
        if not isinstance(model, keras.Sequential) or model.built:
            return
        leaves = keras.tree.flatten(x) if arrays.is_arrays(x) else []
        if len(leaves) != 1:
            raise InvalidArgumentError(
                f"the Sequential model {model.name!r} has no input shape; start it with "
                "keras.Input(shape), or call model.build(shape)"
            )
        model.build((None, *leaves[0].shape[1:]))

    def is_arrays(self, *structures: Any) -> bool:
        """Tell whether all leaves are arrays that can be sliced (None counts as one)."""
        return arrays.is_arrays(*structures)

    def to_arrays(self, structure: Any, *, call: str) -> Any:
        """Return the same structure of NumPy arrays, floats in Keras's float type."""
        return arrays.to_arrays(structure, call=call)

    def input_names(self, model: Any) -> list[str]:
        """Return the names of the model's inputs in its order."""
        return arrays.input_names(model)

    def name_inputs(self, model: Any, x: Any, *, call: str) -> dict[str, Any]:
        """Return the arrays of ``x`` by the names of the model's inputs."""
        return arrays.name_inputs(model, x, call=call)

    def fit_shape(self, model: Any, name: str, shape: tuple[int, ...]) -> tuple[int, ...]:
        """Return the shape in which the model consumes rows of ``shape``, or refuse it."""
        return arrays.fit_shape(model, name, shape)

    def check_targets(self, model: Any, y: Any, *, call: str) -> None:
        """Refuse data without targets for a model that has a loss to compute of them."""
        arrays.check_targets(model, y, call=call)

    def convert_input(self, model: Any, name: str, rows: Any) -> Any:
        """Return ``rows`` in the rank and dtype in which the model consumes its input."""
        return arrays.convert_input(model, name, rows)

    def sample_weights(self, y: Any, sample_weight: Any, class_weight: Any, *, call: str) -> Any:
        """Return the weights in the structure of ``y``, those of classes applied; or None."""
        if class_weight is not None:
            return arrays.class_weights(y, class_weight, call=call)
        return arrays.spread_sample_weight(y, sample_weight, call=call)

    def open_stream(
        self, model: Any, x: Any, y: Any, sample_weight: Any, **how: Any
    ) -> KerasStream:
        """Return a stream of the fields of ``Rows``; see `KerasStream` for the arguments."""
        return KerasStream(model, x, y, sample_weight, **how)

    def make_metrics(self, model: Any) -> KerasMetrics:
        """Return the metrics of a compiled model."""
        return KerasMetrics(model)

    def steps_per_execution(self, model: Any) -> int:
        """Return how many batches lie between two batch hooks."""
        return int(model.steps_per_execution)

    def host_callbacks(
        self, session: Session, callbacks: Any, *, verbose: Any, epochs: int, steps: int | None
    ) -> KerasCallbackHost:
        """Return the host of the user's callbacks for one training, evaluation or prediction."""
        return KerasCallbackHost(session, callbacks, verbose=verbose, epochs=epochs, steps=steps)

    def handles_nan(self, callbacks: Any) -> bool:
        """Tell whether one of the callbacks is a TerminateOnNaN."""
        members = getattr(callbacks, "callbacks", None) or keras.tree.flatten(callbacks)
        return any(isinstance(member, keras.callbacks.TerminateOnNaN) for member in members)

    def optimizer_started(self, model: Any) -> bool:
        """Tell whether this rank's optimizer holds state of an earlier training."""
        optimizer = getattr(model, "optimizer", None)
        return bool(optimizer is not None and optimizer.built and int(optimizer.iterations) > 0)

    def set_iterations(self, model: Any, iterations: int) -> None:
        """Let this rank's optimizer say how many updates were done."""
        optimizer = getattr(model.optimizer, "inner_optimizer", model.optimizer)
        optimizer.iterations.assign(iterations)

    def epoch_limit(self, epochs: int) -> int:
        """Return ``epochs``, or what keras.config.set_max_epochs allows."""
        limit: int | None = getattr(keras.config, "max_epochs", lambda: None)()
        if limit and limit < epochs:
            warnings.warn(f"limiting epochs to {limit}", stacklevel=3)
            return limit
        return epochs

    def save_model(
        self, model: Any, path: Path, *, weights_only: bool = False, **keywords: Any
    ) -> None:
        """Write the whole model with its optimizer, or its weights, to ``path``; local."""
        if weights_only:
            model.save_weights(path, overwrite=True, **keywords)
        else:
            model.save(path, overwrite=True, **keywords)

    def load_weights(self, model: Any, path: Path) -> None:
        """Read weights and optimizer state of a file into the model of this rank; local."""
        model.load_weights(path)
