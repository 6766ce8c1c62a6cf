"""Execute the schedule of one rank: the engine under ``fit``, ``evaluate`` and ``predict``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

from hpcomm.hyparflow.batch import StepBatch, StepResult
from hpcomm.trace import NO_TRACE

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    import numpy as np

    from hpcomm.communicator import Communicator
    from hpcomm.grid import Grid
    from hpcomm.trace import Trace

__all__ = ["HybridTrainer", "StepBatch", "StepResult"]


class HybridTrainer:
    """One rank of a hybrid-parallel training job.

    All ranks of ``comm`` construct it with the same model and arguments, and call the same methods
    in the same order.

    Args:
        model_or_function: a compiled model, or a function without arguments that returns one; with
            a function no rank ever holds the weights of other stages.
        comm: all ranks; its size must be ``num_partitions * num_replicas``.
        strategy: "data" (one partition), "model" (one replica) or "hybrid".
        num_partitions: stages of the pipeline; None takes what the strategy and the size of
            ``comm`` imply.
        num_replicas: copies of the model; None likewise.
        micro_batches: pieces that a replica's share of a batch is cut into.
        lpp: layers per partition, counted without input layers; None balances.
        schedule: "gpipe" or "1f1b".
        balance: cost per layer, "measured" (one timed forward and backward of every layer on rank
            0) or "estimated".
        micro_batch_size: samples that costs are measured for.
        memory_limit_bytes: what a stage may need at most (weights, optimizer slots, activations);
            None sets no limit.
        seed: of dropout and other randomness; None takes rank 0's.
        keep_gradients: keep every step's gradients for ``gather_gradients``.
        trace: where to record what is done when.
        on_table: called on rank 0 with the table of stages (text); None prints it; False keeps it
            quiet.
    """

    def __init__(
        self,
        model_or_function: Any,
        comm: Communicator,
        *,
        strategy: Literal["data", "model", "hybrid"] = "hybrid",
        num_partitions: int | None = None,
        num_replicas: int | None = None,
        micro_batches: int = 1,
        lpp: Sequence[int] | None = None,
        schedule: str = "gpipe",
        balance: Literal["measured", "estimated"] = "measured",
        micro_batch_size: int | None = None,
        memory_limit_bytes: int | None = None,
        seed: int | None = None,
        keep_gradients: bool = False,
        trace: Trace = NO_TRACE,
        on_table: Callable[[str], None] | Literal[False] | None = None,
    ) -> None: ...

    # What the surroundings read.
    grid: Grid
    user_model: Any
    """The whole model on this rank; weights of other stages may be stale, or absent if a function built it."""
    stage_inputs: list[str]
    """Model inputs (by name) that this rank's stage consumes."""
    is_loss_stage: bool
    collect_predictions: bool
    """Whether train_step and test_step gather the outputs (predict_step always does). Settable, same on all ranks."""
    micro_batches: int
    step: int
    """Training steps done so far."""

    def train_step(self, batch: StepBatch) -> StepResult:
        """Train on one global batch; collective over all ranks."""

    def test_step(self, batch: StepBatch) -> StepResult:
        """Compute loss and outputs in inference mode; collective over all ranks."""

    def predict_step(self, batch: StepBatch) -> StepResult:
        """Compute the outputs in inference mode (loss is NaN); collective over all ranks."""

    def gather_weights(
        self, to: Literal["root", "all"] = "root", *, optimizer: bool = False
    ) -> None:
        """Fill the user's model (and optimizer) with the whole model's weights; collective over all ranks."""

    def scatter_weights(self, *, optimizer: bool = False) -> None:
        """Send rank 0's weights (and optimizer state) to all stages; collective over all ranks."""

    def gather_gradients(self) -> dict[str, np.ndarray] | None:
        """Return the last step's gradients by variable path on rank 0; collective; needs ``keep_gradients``."""

    def average_statistics(self) -> None:
        """Average moving statistics over the replicas; collective; a second call without a step between is free."""

    def state_dict(self, *, optimizer: bool = True) -> dict[str, np.ndarray]:
        """Return what this stage owns under keys that do not depend on the split; local."""
        raise NotImplementedError

    def state_keys(self, *, optimizer: bool = True) -> list[str]:
        """Return the keys that this stage needs to load, tied copies included; local."""
        raise NotImplementedError

    def load_state_dict(self, state: Mapping[str, np.ndarray]) -> None:
        """Load values for ``state_keys()``; local."""

    def extra_state(self) -> dict[str, Any]:
        """Return seed and counters as a JSON-able dict, the same on all ranks."""
        raise NotImplementedError

    def load_extra_state(self, state: Mapping[str, Any]) -> None:
        """Take over what ``extra_state`` gave; local, on every rank alike."""

    @property
    def learning_rate(self) -> float | None:
        """Current learning rate; None where it is a schedule."""
        raise NotImplementedError

    def set_learning_rate(self, value: float) -> None:
        """Set the learning rate of this rank's optimizer; local, to be called on every rank alike."""

    @property
    def iterations(self) -> int:
        """Updates that the optimizer has done."""
        raise NotImplementedError

    def finalize(self) -> None:
        """End of training: what Keras's ``optimizer.finalize_variable_values`` does; local."""

    def close(self) -> None:
        """Release the communicators that the trainer made."""
