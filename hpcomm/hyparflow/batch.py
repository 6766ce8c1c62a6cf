"""What one rank gets for one step, and what it gives back."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any


@dataclass(slots=True)
class StepBatch:
    """This rank's share of one global batch.

    A replica's share is a contiguous range of the global batch. The trainer itself cuts it into
    micro-batches.

    Attributes:
        inputs: model inputs by name, each of shape (num_samples, …); only those that this rank's
            stage consumes (``HybridTrainer.stage_inputs``) are looked at.
        targets: in the structure that Keras's loss expects, leaves of shape (num_samples, …); only
            on the rank that computes the loss, else None.
        sample_weight: None, an array, or a structure like ``targets``; only where ``targets`` is.
        num_samples: of this replica's share; 0 is allowed (the replica then contributes nothing).
        first_sample: position of the share's first sample in the global batch.
        global_samples: samples of the global batch, over all replicas.
    """

    inputs: dict[str, Any]
    targets: Any = None
    sample_weight: Any = None
    num_samples: int = 0
    first_sample: int = 0
    global_samples: int = 0


@dataclass(slots=True)
class StepResult:
    """Outcome of one step.

    Attributes:
        loss: weighted loss of the global batch with regularization and added losses; the same on
            every rank.
        predictions: on the loss stage of replica 0 the model's outputs for the global batch, in its
            order, in the structure that ``model(x)`` returns, as NumPy arrays; None elsewhere, and
            None where ``collect_predictions`` is False.
        masks: Keras masks of those outputs by position among the flattened outputs; empty where
            there are none.
        skipped: whether loss scaling skipped the update because gradients overflowed; the loss may
            then be infinite or no number without harm.
    """

    loss: float
    predictions: Any = None
    masks: dict[int, Any] = field(default_factory=dict)
    skipped: bool = False
