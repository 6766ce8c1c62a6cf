"""What the engine asks of a deep-learning framework.

`hpcomm.hyparflow` imports no framework; tensors are opaque to it. An adapter builds the part of
the model that a rank needs and runs it.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, cast

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import numpy as np

    from hpcomm.layer_graph import LayerGraph

__all__ = ["Adapter", "Place", "Reach", "StageRunner", "StageSpec", "find_adapter"]


class Place(NamedTuple):
    """Where a micro-batch belongs: what randomness may depend on.

    Attributes:
        step: number of the step.
        first_sample: position of its first sample in the global batch.
        training: whether the step trains.
    """

    step: int
    first_sample: int
    training: bool


class MicroBatchWeights(NamedTuple):
    """Numbers that the losses of a micro-batch are multiplied with.

    Attributes:
        loss: of the compiled loss.
        added: of losses that layers added.
    """

    loss: float
    added: float


class StageSpec(NamedTuple):
    """What a rank must be able to compute.

    Attributes:
        start: first call.
        stop: one past the last call.
        inputs: tensors it gets.
        outputs: tensors it makes; on the last stage the model's outputs and their masks.
        sources: those of ``inputs`` whose partial error other stages want.
        errors: those of ``outputs`` for which partial errors may arrive.
        variables: variables its calls use.
        owned: those of them that it owns.
        groups: sets of variables it shares with other stages, by index of the set.
        is_last: whether it computes the loss.
        replica: which copy of the model; the first one adds the regularization.
    """

    start: int
    stop: int
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    sources: tuple[int, ...]
    errors: tuple[int, ...]
    variables: tuple[int, ...]
    owned: tuple[int, ...]
    groups: Mapping[int, tuple[int, ...]]
    is_last: bool
    replica: int


class Reach(Protocol):
    """Which gradients depend on which errors; the last row stands for the stage's own losses."""

    @property
    def sources(self) -> list[list[bool]]:
        """Per row, for every source."""

    @property
    def variables(self) -> list[list[bool]]:
        """Per row, for every trainable variable of the stage, by ascending index."""


class StageRunner(Protocol):
    """One stage on one rank."""

    seed: int
    """Of all randomness; settable between steps."""

    loss_reduction: str | None
    """On the last stage "mean", "sum" or "weighted"; None without a compiled loss."""

    @property
    def loss_is_scalar(self) -> bool:
        """Whether the loss needs the whole batch; known after `trace` or the first step."""

    @property
    def changed_state(self) -> list[int]:
        """Indices of floating variables that layers changed in training so far, ascending."""

    @property
    def counting_layers(self) -> list[str]:
        """Names of layers that change state of their own whenever they run in training.

        Known after `trace`; batch normalization, whose statistics are averaged, is left out.
        """

    def feed(self, tensor: int, array: Any) -> Any:
        """Return a tensor for rows of a model input."""

    def buffer(self, shape: tuple[int, ...], dtype: str) -> np.ndarray:
        """Return memory to receive into."""

    def received(self, array: np.ndarray) -> Any:
        """Return a tensor over an array of `buffer`, which it keeps."""

    def to_array(self, tensor: Any) -> np.ndarray:
        """Return a view of a tensor."""

    def add(self, tensors: Sequence[Any]) -> Any:
        """Return the sum of tensors of one shape."""

    def convert(self, structure: Any) -> Any:
        """Return targets or sample weights as tensors, in their structure."""

    def trace(self, targets: Any, sample_weight: Any) -> Reach:
        """Prepare for training; targets are an example on the last stage, else None."""

    def go_live(self, errors: Sequence[bool], variables: Sequence[bool]) -> None:
        """Take note of which errors arrive, and which variables get gradients at all."""

    def begin_step(self, *, training: bool) -> float:
        """Start a step; return the regularization loss that this rank accounts for."""

    def forward(self, inputs: Sequence[Any], place: Place) -> tuple[list[Any], float, Any]:
        """Return outputs, the sum of losses that layers added, and state for `backward`."""

    def backward(self, state: Any, errors: Sequence[Any], weights: MicroBatchWeights) -> list[Any]:
        """Add weight gradients; return the errors of the sources, None where there is none.

        Args:
            state: from `forward`.
            errors: per tensor of ``StageSpec.errors`` the error that arrived, or None.
            weights: of the micro-batch.
        """

    def forward_backward(
        self,
        inputs: Sequence[Any],
        place: Place,
        targets: Any,
        sample_weight: Any,
        weights: MicroBatchWeights,
    ) -> tuple[float, list[Any], list[Any]]:
        """Do both on the last stage; return weighted loss, outputs, errors of the sources."""

    def infer(
        self,
        inputs: Sequence[Any],
        place: Place,
        targets: Any,
        sample_weight: Any,
        weights: MicroBatchWeights | None,
    ) -> tuple[float, list[Any]]:
        """Run in inference mode; return weighted loss (0 without weights) and outputs."""

    def pack(self) -> list[Any]:
        """Return this step's gradients as flat tensors, one per bucket."""

    @property
    def bucket_groups(self) -> list[int | None]:
        """Per bucket, the index of the set of stages that must sum it, or None."""

    @property
    def needs_figures(self) -> bool:
        """Whether an update depends on figures that all stages must agree on."""

    def figures(self, reduced: Sequence[Any] | None) -> np.ndarray:
        """Return this stage's share of (sum of squares, number of overflows) of the gradients."""

    def update(self, reduced: Sequence[Any] | None, figures: Sequence[float]) -> bool:
        """Update the weights; return whether that was skipped because of overflows.

        Args:
            reduced: gradients summed over ranks, as packed; None takes this rank's own.
            figures: agreed, see `figures`.
        """

    def read_gradients(self, reduced: Sequence[Any] | None) -> dict[int, np.ndarray]:
        """Return the gradients of owned weights by variable index, loss scale taken out."""

    @property
    def learning_rate(self) -> float | None:
        """Current learning rate; None where it is a schedule."""

    def set_learning_rate(self, value: float) -> None:
        """Set it."""

    @property
    def iterations(self) -> int:
        """Updates done."""

    def finalize(self) -> None:
        """Do what the optimizer does to the weights at the end of a training."""

    def read(self, variables: Sequence[int]) -> list[np.ndarray]:
        """Return values of this stage's variables."""

    def write(self, variables: Sequence[int], values: Sequence[np.ndarray]) -> None:
        """Set values of this stage's variables."""

    def optimizer_keys(self, *, owned: bool) -> list[str]:
        """Return keys of the optimizer's variables here.

        Args:
            owned: leave out those that belong to weights which another stage owns.
        """

    def read_optimizer(self, keys: Sequence[str]) -> list[np.ndarray]:
        """Return values of optimizer variables."""

    def write_optimizer(self, values: Mapping[str, np.ndarray]) -> None:
        """Set values of optimizer variables; keys that this stage does not have are ignored."""


class Adapter(Protocol):
    """A framework's way to models."""

    def open(self, model_or_function: Any, random_state: Any) -> Any:
        """Return the model; a function is run without giving memory to weights.

        Args:
            model_or_function: what the user passed.
            random_state: of Python's generator, the same on all ranks.
        """

    def extract(self, model: Any) -> LayerGraph:
        """Return the layer graph with its fingerprint."""

    def needs_memory_later(self, model: Any) -> bool:
        """Whether weights of the model have no values yet."""

    def check(self, graph: LayerGraph, *, pieces: int) -> None:
        """Refuse by name what cannot be trained in so many pieces of a batch."""

    def notices(self, graph: LayerGraph, *, pieces: int) -> list[str]:
        """Return what the user should know of differences that are no errors, as sentences."""

    def learning_rate(self, model: Any) -> float | None:
        """Return the current learning rate of the user's optimizer; None for a schedule."""

    def check_scalar_loss(self, graph: LayerGraph, *, pieces: int) -> None:
        """Refuse a loss function that needs the whole batch, if batches come in pieces."""

    def make_stage(self, graph: LayerGraph, spec: StageSpec, seed: int) -> StageRunner:
        """Return the runner of a stage; its variables get memory."""

    def measure(self, graph: LayerGraph, num_samples: int, *, timed: bool) -> list[float]:
        """Return seconds of one forward and backward per call.

        Args:
            graph: the model.
            num_samples: of a micro-batch.
            timed: run every kind of call once; otherwise estimate from shapes.
        """

    def slots_per_weight(self, model: Any) -> int:
        """Return how many numbers the optimizer keeps per weight."""

    def read_user(self, graph: LayerGraph, variables: Sequence[int]) -> list[np.ndarray]:
        """Return values from the user's model."""

    def write_user(
        self, graph: LayerGraph, variables: Sequence[int], values: Sequence[np.ndarray]
    ) -> None:
        """Set values in the user's model, giving memory where there is none."""

    def read_user_optimizer(self, graph: LayerGraph) -> dict[str, np.ndarray]:
        """Return the state of the user's optimizer by key; empty if it has none."""

    def write_user_optimizer(self, graph: LayerGraph, values: Mapping[str, np.ndarray]) -> None:
        """Set the state of the user's optimizer, building it if need be."""

    def output_structure(self, graph: LayerGraph) -> Any:
        """Return positions of the outputs in the structure that the model returns."""


def find_adapter() -> Adapter:
    """Return the adapter for Keras on TensorFlow, the only framework so far."""
    module = importlib.import_module("hpcomm.tensorflow.adapter")
    return cast("Adapter", module.KerasAdapter())
