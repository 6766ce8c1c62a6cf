"""What the surroundings of training ask of a deep-learning framework.

`hpcomm.hyparflow` imports no framework. `find_framework` loads the adapter of the model at hand.
"""

from __future__ import annotations

import importlib
import inspect
import sys
from typing import TYPE_CHECKING, Any, Protocol, cast

from hpcomm.errors import InvalidArgumentError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from hpcomm.errors import UnsupportedError
    from hpcomm.hyparflow.epochs import BatchStream
    from hpcomm.hyparflow.session import Session

__all__ = ["CallbackHost", "Framework", "ModelMetrics", "find_framework"]


class ModelMetrics(Protocol):
    """The metrics that the model was compiled with, on the rank that computes the loss."""

    @property
    def needs_predictions(self) -> bool:
        """Whether `update` looks at the outputs, so that they must be gathered."""

    def reset(self) -> None:
        """Forget all samples."""

    def update(
        self,
        targets: Any,
        predictions: Any,
        sample_weight: Any,
        masks: Mapping[int, Any],
        *,
        loss: float,
        samples: int,
    ) -> None:
        """Take in one global batch."""

    def results(self) -> dict[str, Any]:
        """Return name → value over the samples since `reset`, in the framework's order."""

    def in_order(self, values: dict[str, Any]) -> Any:
        """Return the values as the framework's evaluate does: one number, or a list."""

    def state(self) -> list[Any]:
        """Return what `restore` needs to go on in the middle of an epoch, as NumPy arrays."""

    def restore(self, state: Sequence[Any]) -> None:
        """Go on where `state` was taken."""


class CallbackHost(Protocol):
    """The user's callbacks, on rank 0."""

    @property
    def served(self) -> frozenset[str]:
        """Hooks that may ask something of all ranks, or decide something."""

    @property
    def local(self) -> frozenset[str]:
        """Hooks that only look at the values, such as a progress bar's."""

    def call(self, hook: str, index: int | None, logs: dict[str, Any] | None) -> dict[str, Any]:
        """Run one hook of all callbacks.

        Args:
            hook: such as "on_epoch_end".
            index: epoch or batch, where the hook takes one.
            logs: values so far.

        Returns:
            What the callbacks decided: the fields of `Decisions` by name.
        """


class Framework(Protocol):
    """An adapter's part around the engine."""

    name: str

    def check_model(self, model: Any, *, call: str, needs_loss: bool) -> None:
        """Refuse by name what cannot be trained as it is; a function is looked at once it ran."""

    def refuse(self, feature: str, *, call: str) -> UnsupportedError:
        """Return the error that refuses a feature by its key in the adapter's table.

        Args:
            feature: "whole-model", what ``gather="none"`` rules out.
            call: name of the public function.
        """

    def prepare_model(self, model: Any, x: Any) -> None:
        """Give a model that takes its shapes from the data those shapes."""

    def is_arrays(self, *structures: Any) -> bool:
        """Tell whether all leaves are arrays that can be sliced (None counts as one)."""

    def to_arrays(self, structure: Any, *, call: str) -> Any:
        """Return the same structure of NumPy arrays, floats in the framework's float type."""

    def input_names(self, model: Any) -> list[str]:
        """Return the names of the model's inputs in its order."""

    def name_inputs(self, model: Any, x: Any, *, call: str) -> dict[str, Any]:
        """Return the arrays of ``x`` by the names of the model's inputs."""

    def fit_shape(self, model: Any, name: str, shape: tuple[int, ...]) -> tuple[int, ...]:
        """Return the shape in which the model consumes rows of ``shape``, or refuse it."""

    def check_targets(self, model: Any, y: Any, *, call: str) -> None:
        """Refuse data without targets for a model that has a loss to compute of them."""

    def convert_input(self, model: Any, name: str, rows: Any) -> Any:
        """Return ``rows`` in the rank and dtype in which the model consumes its input."""

    def sample_weights(self, y: Any, sample_weight: Any, class_weight: Any, *, call: str) -> Any:
        """Return the weights in the structure of ``y``, those of classes applied; or None."""

    def open_stream(
        self,
        model: Any,
        x: Any,
        y: Any,
        sample_weight: Any,
        *,
        batch_size: int | None,
        steps: int | None,
        shuffle: bool | str,
        class_weight: Any,
        needs_targets: bool,
        call: str,
    ) -> BatchStream:
        """Return a stream of the fields of `Rows` from a data set, or from arrays."""

    def make_metrics(self, model: Any) -> ModelMetrics:
        """Return the metrics of a compiled model."""

    def steps_per_execution(self, model: Any) -> int:
        """Return how many batches lie between two batch hooks."""

    def host_callbacks(
        self, session: Session, callbacks: Any, *, verbose: Any, epochs: int, steps: int | None
    ) -> CallbackHost:
        """Return the host of the user's callbacks for one training, evaluation or prediction."""

    def handles_nan(self, callbacks: Any) -> bool:
        """Tell whether one of the callbacks decides what a loss that is no number means."""

    def optimizer_started(self, model: Any) -> bool:
        """Tell whether this rank's optimizer holds state of an earlier training."""

    def set_iterations(self, model: Any, iterations: int) -> None:
        """Let this rank's optimizer say how many updates were done."""

    def epoch_limit(self, epochs: int) -> int:
        """Return ``epochs``, or what the framework's debugging switch allows."""

    def save_model(self, model: Any, path: Path, *, weights_only: bool = False) -> None:
        """Write the whole model, or its weights, to ``path``; local."""

    def load_weights(self, model: Any, path: Path) -> None:
        """Read weights and optimizer state of a file into the model of this rank; local."""

    @property
    def model_suffixes(self) -> tuple[str, ...]:
        """Endings of files that hold a whole model."""


def find_framework(model: Any, *, call: str) -> Framework:
    """Return the adapter for a model, or for a function that makes one.

    Args:
        model: what the user passed.
        call: name of the public function, for messages.

    Returns:
        The adapter.

    Raises:
        InvalidArgumentError: neither a model of a framework that hpcomm knows nor a function.
    """
    keras = sys.modules.get("keras")
    known = keras is not None and isinstance(model, keras.Model)
    if not known and not _is_function(model):
        kind, what = (model, "the class ") if isinstance(model, type) else (type(model), "")
        raise InvalidArgumentError(
            f"{call}: model must be a compiled Keras model, or a function without arguments that "
            f"returns one; got {what}{kind.__module__}.{kind.__qualname__}"
        )
    adapter = importlib.import_module("hpcomm.tensorflow.framework")
    return cast("Framework", adapter.KerasFramework())


def _is_function(model: Any) -> bool:
    """Tell whether ``model`` can be called without arguments to make one.

    Layers and modules of frameworks can be called too, but with data.
    """
    if not callable(model) or isinstance(model, type):
        return False
    roots = {kind.__module__.partition(".")[0] for kind in type(model).__mro__}
    if roots & {"keras", "torch", "tensorflow"}:
        return False
    try:
        inspect.signature(model).bind()
    except TypeError:
        return False
    except ValueError:  # a builtin that does not tell its arguments
        return True
    return True
