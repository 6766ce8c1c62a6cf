"""Compute each reference once and keep it in a folder."""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from hpcomm.environment import sources
from hpcomm.verify.compare import Outcome
from hpcomm.verify.problem import make_problem

if TYPE_CHECKING:
    from hpcomm.verify.case import Case


def reference(case: Case, folder: Path) -> Outcome:
    """Return what one process computes for a case, from the folder if it is there.

    Args:
        case: cases that differ in their partitions only share a reference.
        folder: where references are kept; made if need be.
    """
    folder.mkdir(parents=True, exist_ok=True)
    # With all sources, though few of them bear on a reference: nobody has to know which.
    name = hashlib.sha256(f"{sources()}/{versions()}/{case.reference_key}".encode()).hexdigest()[
        :24
    ]
    path = folder / f"{case.model}-{name}.npz"
    if path.exists():
        return _load(path)
    outcome = compute(case)
    _save(outcome, path)
    return outcome


def compute(case: Case) -> Outcome:
    """Train the unsplit model with the framework's own code."""
    from hpcomm.verify.reference import train

    problem = make_problem(case)
    batches = [
        (problem.inputs_for_keras(x), problem.targets_for_keras(y), weights)
        for x, y, weights in problem.batches
    ]
    found = train(problem.model, batches, case.replicas, case.micro_batches)
    return Outcome(found["losses"], found["outputs"], found["gradients"], found["weights"])


def versions() -> str:
    """Import the framework and return its versions."""
    from hpcomm.tensorflow.quiet import import_quietly

    import_quietly()
    import keras
    import tensorflow as tf

    # Every split compiles functions of its own, which TensorFlow would call retracing.
    tf.get_logger().setLevel("ERROR")
    return f"keras {keras.__version__} tensorflow {tf.__version__}"


def _save(outcome: Outcome, path: Path) -> None:
    arrays: dict[str, Any] = {"losses": np.asarray(outcome.losses, np.float64)}
    names: dict[str, list[str]] = {}
    for kind in ("outputs", "gradients", "weights"):
        values = getattr(outcome, kind)
        names[kind] = list(values)
        arrays |= {f"{kind}{index}": array for index, array in enumerate(values.values())}
    arrays["names"] = np.frombuffer(json.dumps(names).encode(), np.uint8)
    # Another job may write the same reference; a rename is seen whole or not at all.
    temporary = path.with_name(f"{path.stem}.{os.getpid()}.tmp.npz")
    np.savez(temporary, **arrays)
    temporary.replace(path)


def _load(path: Path) -> Outcome:
    with np.load(path, allow_pickle=False) as archive:
        names = json.loads(archive["names"].tobytes())
        kinds = {
            kind: {name: archive[f"{kind}{index}"] for index, name in enumerate(names[kind])}
            for kind in ("outputs", "gradients", "weights")
        }
        return Outcome([float(loss) for loss in archive["losses"]], **kinds)
