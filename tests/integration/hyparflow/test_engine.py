"""The engine against gradient accumulation in one process, in float64."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

pytestmark = pytest.mark.tensorflow

# (case, partitions, replicas, micro-batches, schedule); every case with several layouts.
FOUR_RANKS = (
    ("skips", 4, 1, 3, "gpipe"),
    ("skips", 2, 2, 2, "1f1b"),
    ("shared", 4, 1, 4, "1f1b"),
    ("shared", 2, 2, 3, "gpipe"),
    ("regularized", 3, 1, 3, "gpipe"),
    ("regularized", 1, 4, 1, "gpipe"),
    ("batch norm", 2, 2, 3, "gpipe"),
    ("frozen", 4, 1, 2, "gpipe"),
    ("integers", 4, 1, 2, "1f1b"),
    ("masked", 3, 1, 2, "gpipe"),
    ("changing length", 3, 1, 2, "gpipe"),
    ("accumulating", 2, 2, 2, "gpipe"),
)
TWO_RANKS = (
    ("batch norm", 2, 1, 4, "1f1b"),
    ("eager", 2, 1, 3, "gpipe"),
    ("eager", 1, 2, 2, "gpipe"),
    ("bfloat16", 2, 1, 2, "gpipe"),
    ("float16", 2, 1, 2, "gpipe"),
    ("masked", 1, 2, 3, "gpipe"),
    ("embedding", 2, 1, 2, "gpipe"),
)


def part(structure: Any, first: int, last: int) -> Any:
    import tensorflow as tf

    return tf.nest.map_structure(lambda a: None if a is None else a[first:last], structure)


def share_of(trainer: Any, batch: Any) -> Any:
    from hpcomm.hyparflow.batch import StepBatch
    from hpcomm.hyparflow.shares import share

    inputs, targets, weights = batch
    samples = len(next(iter(inputs.values())))
    first, last = share(samples, trainer.grid.num_replicas, trainer.grid.replica)
    at_loss = trainer.is_loss_stage
    return StepBatch(
        inputs={n: inputs[n][first:last] for n in trainer.stage_inputs},
        targets=part(targets, first, last) if at_loss else None,
        sample_weight=part(weights, first, last) if at_loss else None,
        num_samples=last - first,
        first_sample=first,
        global_samples=samples,
    )


def close(found: Any, expected: Any, tolerance: float, what: str) -> None:
    scale = max(float(np.max(np.abs(expected), initial=0)), 1e-3)
    error = float(np.max(np.abs(np.asarray(found) - np.asarray(expected)), initial=0)) / scale
    assert error <= tolerance, f"{what}: relative difference {error:.2e}"


def reference(case: Any, replicas: int, micro_batches: int) -> tuple[list[float], Any]:
    import keras

    from hpcomm.verify.reference import train_step

    keras.utils.set_random_seed(3)
    model = case.make()
    losses = []
    for inputs, targets, weights in case.batches():
        given = inputs if len(inputs) > 1 else next(iter(inputs.values()))
        losses.append(train_step(model, given, targets, weights, replicas, micro_batches)[0])
    return losses, model


def run_case(
    name: str, partitions: int, replicas: int, micro: int, schedule: str, comm: Any
) -> None:
    import keras
    from support.engine_cases import CASES

    from hpcomm.hyparflow.agreement import agree
    from hpcomm.hyparflow.trainer import HybridTrainer

    case = CASES[name]
    keras.utils.set_random_seed(3 if comm.rank == 0 else 100 + comm.rank)
    model = case.make()
    trainer = HybridTrainer(
        model,
        comm,
        num_partitions=partitions,
        num_replicas=replicas,
        micro_batches=micro,
        schedule=schedule,
        balance="estimated",
        on_table=False,
    )
    losses = [trainer.train_step(share_of(trainer, batch)).loss for batch in case.batches()]
    assert all(found == losses for found in comm.allgather_object(losses))
    trainer.gather_weights("root", optimizer=True)
    last = trainer.predict_step(share_of(trainer, case.batches()[0])).predictions
    last = next(found for found in comm.allgather_object(last) if found is not None)

    def check() -> None:
        if comm.rank != 0:
            return
        what = f"{name}, {partitions} x {replicas}, {micro} micro-batches"
        expected, alone = reference(case, replicas, micro)
        for step, (a, b) in enumerate(zip(losses, expected, strict=True)):
            close(a, b, case.tolerance, f"{what}: loss of step {step}")
        for a, b in zip(model.weights, alone.weights, strict=True):
            close(a.numpy(), b.numpy(), case.tolerance, f"{what}: {b.path}")
        for a, b in zip(model.optimizer.variables, alone.optimizer.variables, strict=True):
            close(a.numpy(), b.numpy(), 10 * case.tolerance, f"{what}: {b.path}")
        inputs = case.batches()[0][0]
        given = inputs if len(inputs) > 1 else next(iter(inputs.values()))
        outputs = alone(given, training=False)
        for a, b in zip(keras.tree.flatten(last), keras.tree.flatten(outputs), strict=True):
            close(a, keras.ops.convert_to_numpy(b), case.tolerance, f"{what}: outputs")

    agree(comm, check)
    trainer.close()


def run_cases(table: Any) -> None:
    import keras

    import hpcomm

    keras.config.set_floatx("float64")
    world = hpcomm.init()
    for name, partitions, replicas, micro, schedule in table:
        size = partitions * replicas
        comm = world.split(0 if world.rank < size else None)
        if comm is not None:
            run_case(name, partitions, replicas, micro, schedule, comm)
            comm.close()


@pytest.mark.mpi(ranks=4, timeout=600, unit="s")
def test_four_ranks_train_as_one_process(mpi_ranks):
    run_cases(FOUR_RANKS)


@pytest.mark.mpi(ranks=2, timeout=400, unit="s")
def test_two_ranks_train_as_one_process(mpi_ranks):
    run_cases(TWO_RANKS)


def train_dropout(comm: Any, partitions: int, replicas: int, micro: int, make: Any) -> Any:
    from support.engine_cases import simple_batches

    from hpcomm.hyparflow.trainer import HybridTrainer

    trainer = HybridTrainer(
        make,
        comm,
        num_partitions=partitions,
        num_replicas=replicas,
        micro_batches=micro,
        seed=11,
        balance="estimated",
        on_table=False,
    )
    losses = [
        trainer.train_step(share_of(trainer, batch)).loss for batch in simple_batches((12, 12, 9))()
    ]
    trainer.gather_weights("all")
    weights = [v.numpy() for v in trainer.user_model.weights]
    trainer.close()
    return losses, weights


@pytest.mark.mpi(ranks=4, timeout=400, unit="s")
def test_dropout_does_not_depend_on_the_split(mpi_ranks):
    import keras
    from support.engine_cases import dropout_model

    import hpcomm

    keras.config.set_floatx("float64")
    comm = hpcomm.init()
    results = []
    for layout in ((4, 1, 3), (2, 2, 2), (1, 4, 1)):
        keras.utils.set_random_seed(5)
        # A function: its weights must be the same whoever initializes them.
        results.append(train_dropout(comm, *layout, dropout_model))
    losses, weights = results[0]
    for other_losses, other_weights in results[1:]:
        np.testing.assert_allclose(other_losses, losses, rtol=1e-12)
        for a, b in zip(other_weights, weights, strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-11, atol=1e-13)
    keras.utils.set_random_seed(5)
    from_instance = train_dropout(comm, 2, 2, 2, dropout_model())
    np.testing.assert_allclose(from_instance[0], losses, rtol=1e-12)


@pytest.mark.mpi(ranks=3, timeout=400, unit="s")
def test_model_function_holds_weights_only_where_they_are_used(mpi_ranks):
    import keras
    from support.engine_cases import chain, simple_batches

    import hpcomm
    from hpcomm.errors import MismatchError, ModelError
    from hpcomm.hyparflow.trainer import HybridTrainer
    from hpcomm.tensorflow.deferred import is_initialized

    comm = hpcomm.init()
    layers = keras.layers

    def make() -> Any:
        return chain(layers.Dense(8), layers.Dense(8), layers.Dense(8), optimizer="adam")

    keras.utils.set_random_seed(1)
    trainer = HybridTrainer(
        make, comm, num_partitions=3, micro_batches=2, lpp=[1, 2, 1], on_table=False
    )
    own = [is_initialized(v) for v in trainer.user_model.weights]
    expected = [[True] * 2 + [False] * 6, [False] * 2 + [True] * 4 + [False] * 2]
    expected.append([False] * 6 + [True] * 2)
    assert own == expected[comm.rank]
    batch = share_of(trainer, simple_batches((6,))()[0])
    trainer.train_step(batch)
    state = comm.allgather_object(trainer.state_dict())
    kernels = [[k for k in s if k.endswith("kernel") and "optimizer" not in k] for s in state]
    assert [len(k) for k in kernels] == [1, 2, 1]
    trainer.gather_weights("root", optimizer=True)
    assert [is_initialized(v) for v in trainer.user_model.weights] == (
        [True] * 8 if comm.rank == 0 else own
    )
    if comm.rank == 0:
        merged = {k: v for s in state for k, v in s.items()}
        for v, spec in zip(trainer.user_model.weights, trainer.split.graph.variables, strict=True):
            np.testing.assert_array_equal(merged[spec.key], v.numpy())
        assert int(trainer.user_model.optimizer.iterations) == 1
        assert len(trainer.user_model.optimizer.variables) == 2 + 2 * 8
    # A resumed trainer with another split goes on exactly as this one.
    merged = {k: v for s in state for k, v in s.items()}
    other = HybridTrainer(
        make, comm, num_partitions=3, micro_batches=2, lpp=[2, 1, 1], on_table=False
    )
    assert set(other.state_keys()) <= set(merged)
    other.load_state_dict({k: merged[k] for k in other.state_keys()})
    other.load_extra_state(trainer.extra_state())
    again = share_of(other, simple_batches((6,))()[0])
    np.testing.assert_allclose(
        other.train_step(again).loss, trainer.train_step(batch).loss, rtol=1e-6
    )
    trainer.close()
    other.close()

    with pytest.raises(MismatchError, match="rank 1 has"):
        HybridTrainer(chain(layers.Dense(4 + (comm.rank == 1))), comm, num_partitions=3)
    with pytest.raises(MismatchError, match="micro_batches is 2 on rank 2 but 1 on rank 0"):
        HybridTrainer(make, comm, num_partitions=3, micro_batches=1 + (comm.rank == 2))
    with pytest.raises(ModelError, match=r"3 partitions .* only 2 layers"):
        HybridTrainer(chain(layers.Dense(4)), comm, num_partitions=3)


@pytest.mark.mpi(ranks=2, timeout=300, unit="s")
def test_weights_without_gradient_are_left_alone(mpi_ranks):
    """Keras skips weights that the loss does not depend on, weight decay included."""
    import keras
    from support.engine_cases import random

    import hpcomm
    from hpcomm.hyparflow.trainer import HybridTrainer

    comm = hpcomm.init()
    x = keras.Input((6,), name="x")
    a = keras.layers.Dense(5, name="a")(x)
    blocked = keras.layers.Dense(5, name="blocked")(a)
    y = keras.layers.Add()([a, keras.ops.stop_gradient(blocked)])
    unused = keras.layers.Dense(4, name="unused")(y)
    model = keras.Model(x, [keras.layers.Dense(3, name="out")(y), unused])
    model.compile(keras.optimizers.AdamW(0.1, weight_decay=0.5), ["mse", None])
    before = {v.path: v.numpy() for v in model.weights}
    trainer = HybridTrainer(
        model, comm, num_partitions=2, micro_batches=2, lpp=[3, 3], on_table=False
    )
    before = comm.broadcast_object(before)
    targets = [random(6, 3), random(6, 4)]
    for _ in range(2):
        trainer.train_step(share_of(trainer, ({"x": random(6, 6)}, targets, None)))
    trainer.gather_weights()
    if comm.rank == 0:
        moved = {v.path: not np.array_equal(v.numpy(), before[v.path]) for v in model.weights}
        assert moved == {p: not p.startswith(("blocked", "unused")) for p in moved}
    trainer.close()
