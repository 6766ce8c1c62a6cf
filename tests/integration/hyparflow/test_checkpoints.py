"""A training that is interrupted goes on exactly, under any other split."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytestmark = pytest.mark.tensorflow

EPOCHS = 3
OPTIONS = {"batch_size": 8, "verbose": 0, "seed": 5, "epochs": EPOCHS, "on_table": False}
LAYOUTS = [
    {"strategy": "model", "num_partitions": 2, "micro_batches": 3},
    {"strategy": "data", "num_replicas": 2},
    {"strategy": "hybrid", "num_partitions": 2, "num_replicas": 2, "micro_batches": 2},
    {"strategy": "model", "num_partitions": 1},
    {"strategy": "model", "num_partitions": 3, "micro_batches": 2},
]


def ranks_of(layout: dict[str, Any]) -> int:
    return int(layout.get("num_partitions", 1) * layout.get("num_replicas", 1))


def model() -> Any:
    """Dropout, shared layer, moving averages, metrics with state: all that a resume must keep."""
    import keras

    layers = keras.layers
    keras.utils.set_random_seed(2)
    inputs = keras.Input((6,))
    tied = layers.Dense(6, "tanh", name="tied")
    hidden = layers.Dropout(0.3)(tied(inputs))
    hidden = layers.Dense(6, "tanh", kernel_regularizer="l2")(hidden)
    hidden = layers.Dropout(0.3)(tied(hidden))
    outputs = layers.Dense(3, "softmax")(layers.Dense(5, "tanh")(hidden))
    net = keras.Model(inputs, outputs)
    optimizer = keras.optimizers.Adam(0.01, use_ema=True, ema_momentum=0.9, global_clipnorm=0.5)
    net.compile(
        optimizer,
        "categorical_crossentropy",
        metrics=["accuracy", keras.metrics.AUC(num_thresholds=10, name="auc")],
    )
    return net


def fit(world: Any, layout: dict[str, Any], make: Any = model, **options: Any) -> Any:
    """Train on the first ranks of ``world``; others wait."""
    from support.keras_cases import one_hot

    import hpcomm.hyparflow as hf

    size = ranks_of(layout)
    comm = world.split(0 if world.rank < size else None, world.rank)
    result = None
    if comm is not None:
        x, y = one_hot()
        net = make()
        history = hf.fit(net, x, y, comm=comm, **layout, **(OPTIONS | options))
        result = (history.history, history.epoch, net.get_weights() if comm.rank == 0 else None)
        comm.close()
    return world.broadcast_object(result)


def same(got: Any, expected: Any, first_epoch: int) -> None:
    history, epochs, weights = got
    whole, _, whole_weights = expected
    assert epochs == list(range(first_epoch, EPOCHS))
    for name, values in whole.items():
        np.testing.assert_allclose(history[name], values[first_epoch:], rtol=1e-9, err_msg=name)
    for one, two in zip(weights, whole_weights, strict=True):
        np.testing.assert_allclose(one, two, rtol=1e-9, atol=1e-12)


def run(world: Any, folder: Path) -> None:
    import keras

    import hpcomm.hyparflow as hf

    first, *others = LAYOUTS
    whole = fit(world, first)
    for sharded in (False, True):
        # One checkpoint in the middle of an epoch, one at the end of another.
        steps = folder / f"steps-{sharded}"
        epochs = folder / f"epochs-{sharded}"
        policy = hf.CheckpointPolicy(steps, every=4, keep=None, sharded=sharded)
        same(fit(world, first, checkpoint=policy), whole, 0)
        policy = hf.CheckpointPolicy(epochs, keep=2, sharded=sharded)
        same(fit(world, first, checkpoint=policy), whole, 0)
        suffix = "" if sharded else ".keras"
        if world.rank == 0:
            names = sorted(path.name for path in steps.iterdir())
            assert names == [f"checkpoint-{step:08d}{suffix}" for step in (4, 8)]
            names = sorted(path.name for path in epochs.iterdir())
            assert names == [f"checkpoint-{step:08d}{suffix}" for step in (6, 9)]
        for layout in others:
            same(fit(world, layout, resume=steps / f"checkpoint-00000004{suffix}"), whole, 1)
        same(fit(world, first, resume=epochs / f"checkpoint-00000006{suffix}"), whole, 2)
        # Interrupted after the first epoch; "auto" finds nothing, then the newest.
        auto = folder / f"auto-{sharded}"
        policy = hf.CheckpointPolicy(auto, sharded=sharded)
        begun = fit(world, first, checkpoint=policy, resume="auto", epochs=1)
        assert begun[1] == [0]
        same(fit(world, others[0], checkpoint=policy, resume="auto"), whole, 1)
        again = fit(world, first, checkpoint=policy, resume="auto")
        assert again[1] == []
    # What ModelCheckpoint wrote through a callback is as good.
    callback = keras.callbacks.ModelCheckpoint(folder / "m-{epoch}.keras")
    fit(world, others[1], callbacks=[callback], epochs=2)
    same(fit(world, others[0], resume=folder / "m-1.keras"), whole, 1)
    if world.rank == 0:
        plain = keras.models.load_model(folder / "m-2.keras")
        assert int(plain.optimizer.iterations) == 6


def run_errors(world: Any, folder: Path) -> None:
    import keras

    from hpcomm.errors import InvalidArgumentError

    def other() -> Any:
        keras.utils.set_random_seed(2)
        net = keras.Sequential([keras.Input((6,)), keras.layers.Dense(3, "softmax")])
        net.compile("sgd", "categorical_crossentropy")
        return net

    layout = {"strategy": "data", "num_replicas": world.size}
    for where, text in (
        (folder / "none.keras", "there is no file"),
        (folder / "empty", "there is no checkpoint in"),
        (folder / "m-1.keras", "cannot be loaded into this model"),
        (
            folder / "steps-True" / "checkpoint-00000004",
            "has no values for|cannot be loaded into this model",
        ),
    ):
        with pytest.raises(InvalidArgumentError, match=text):
            fit(world, layout, other, resume=where)
        assert world.allgather_object(world.rank) == list(range(world.size))


@pytest.mark.mpi(ranks=[4], timeout=500, unit="s")
def test_interrupted_trainings_go_on_exactly(mpi_ranks: int) -> None:
    import keras

    import hpcomm

    keras.config.set_floatx("float64")
    keras.config.set_dtype_policy("float64")
    world = hpcomm.init()
    assert world.size == mpi_ranks
    folder = Path(world.broadcast_object(tempfile.mkdtemp() if world.rank == 0 else None))
    try:
        run(world, folder)
        run_errors(world, folder)
    finally:
        if world.rank == 0:
            shutil.rmtree(folder, ignore_errors=True)
