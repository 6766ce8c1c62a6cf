"""HyPar-Flow: train one model over many processes, split, copied or both, with one call."""

from __future__ import annotations

from hpcomm.hyparflow.checkpoint import CheckpointPolicy
from hpcomm.hyparflow.evaluate import evaluate
from hpcomm.hyparflow.fit import fit
from hpcomm.hyparflow.history import History
from hpcomm.hyparflow.predict import predict
from hpcomm.hyparflow.session import Session
from hpcomm.hyparflow.trainer import HybridTrainer, StepBatch, StepResult

__all__ = [
    "CheckpointPolicy",
    "History",
    "HybridTrainer",
    "Session",
    "StepBatch",
    "StepResult",
    "evaluate",
    "fit",
    "predict",
]
