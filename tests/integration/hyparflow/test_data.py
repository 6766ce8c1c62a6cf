"""Every way of passing data and models gives the training that Keras does on the same batches."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytestmark = pytest.mark.tensorflow

QUIET = {"verbose": 0, "on_table": False}
OPTIONS = {"epochs": 2, "shuffle": False}


def start() -> Any:
    import keras

    import hpcomm

    keras.config.set_floatx("float64")
    keras.config.set_dtype_policy("float64")
    return hpcomm.init()


def model(**compile_: Any) -> Any:
    import keras
    from support.keras_cases import mlp

    keras.utils.set_random_seed(2)
    return mlp(metrics=["accuracy"], **compile_)


def xy() -> Any:
    from support.keras_cases import xy as pair

    return pair()


def close(got: Any, expected: Any) -> None:
    assert list(got) == list(expected)
    for name, values in expected.items():
        np.testing.assert_allclose(got[name], values, rtol=1e-9, err_msg=name)


def batches_of(parts: list[Any]) -> Any:
    """A Keras data set of given batches."""
    import keras

    class Parts(keras.utils.PyDataset):
        def __len__(self) -> int:
            return len(parts)

        def __getitem__(self, index: int) -> Any:
            return parts[index]

    return Parts()


def check_shards(comm: Any, layout: dict[str, Any], *, streamed: bool) -> None:
    """Replicas hold 14 and 9 samples; a global batch takes three of each."""
    import tensorflow as tf

    import hpcomm.hyparflow as hf

    x, y = xy()
    cut = 14
    replica = comm.rank // layout.get("num_partitions", 1)
    mine = slice(0, cut) if replica == 0 else slice(cut, len(x))
    net = model()
    options = OPTIONS | QUIET | layout | {"comm": comm, "data": "shard"}
    if streamed:
        shard = tf.data.Dataset.from_tensor_slices((x[mine], y[mine])).batch(3)
        history = hf.fit(net, shard, validation_data=shard, **options)
    else:
        pair = (x[mine], y[mine])
        history = hf.fit(net, *pair, batch_size=6, validation_data=pair, **options)
    parts = []
    for step in range(5):
        both = [
            np.arange(cut)[3 * step : 3 * step + 3],
            np.arange(cut, len(x))[3 * step : 3 * step + 3],
        ]
        index = np.concatenate(both)
        parts.append((x[index], y[index]))
    reference = model().fit(
        batches_of(parts), validation_data=batches_of(parts), verbose=0, **OPTIONS
    )
    close(history.history, reference.history)


def check_only_rank_0_has_data(comm: Any, layout: dict[str, Any]) -> None:
    import hpcomm.hyparflow as hf

    x, y = xy()
    mine = (x, y) if comm.rank == 0 else (None, None)
    net = model()
    options = OPTIONS | layout
    history = hf.fit(net, *mine, batch_size=10, comm=comm, **options, **QUIET)
    values = hf.evaluate(net, *mine, comm=comm, verbose=0, **layout)
    outputs = hf.predict(net, mine[0], comm=comm, verbose=0, **layout)
    alone = model()
    close(history.history, alone.fit(x, y, batch_size=10, verbose=0, **OPTIONS).history)
    np.testing.assert_allclose(values, alone.evaluate(x, y, verbose=0), rtol=1e-9)
    np.testing.assert_allclose(outputs, alone.predict(x, verbose=0), rtol=1e-9)


def check_validation(comm: Any, layout: dict[str, Any]) -> None:
    import tensorflow as tf

    import hpcomm.hyparflow as hf

    x, y = xy()
    weights = np.linspace(0.5, 2.0, len(x))
    dataset = tf.data.Dataset.from_tensor_slices((x, y)).batch(4)
    for more in (
        {"validation_split": 0.3},
        {"validation_data": (x[:9], y[:9], weights[:9]), "validation_batch_size": 4},
        {"validation_data": dataset, "validation_steps": 2},
        {"validation_data": (x, y), "validation_freq": [2]},
    ):
        got = hf.fit(model(), x, y, comm=comm, **OPTIONS, **layout, **more, **QUIET)
        close(got.history, model().fit(x, y, verbose=0, **OPTIONS, **more).history)
    got = hf.evaluate(model(), dataset, steps=3, comm=comm, verbose=0, **layout)
    np.testing.assert_allclose(got, model().evaluate(dataset, steps=3, verbose=0), rtol=1e-9)


def check_training_goes_on(comm: Any, layout: dict[str, Any]) -> None:
    """A second fit finds weights and moments of the first, and the rate a callback has set."""
    import keras

    import hpcomm.hyparflow as hf

    x, y = xy()
    net, alone = (model(optimizer=keras.optimizers.Adam(0.01)) for _ in range(2))
    for factor in (0.5, 0.7):
        halve = keras.callbacks.LearningRateScheduler(lambda _, rate, f=factor: rate * f)
        got = hf.fit(net, x, y, comm=comm, callbacks=[halve], **OPTIONS, **layout, **QUIET)
        halve = keras.callbacks.LearningRateScheduler(lambda _, rate, f=factor: rate * f)
        close(got.history, alone.fit(x, y, callbacks=[halve], verbose=0, **OPTIONS).history)


def check_unbuilt(comm: Any, layout: dict[str, Any]) -> None:
    import keras

    import hpcomm.hyparflow as hf

    def make() -> Any:
        keras.utils.set_random_seed(4)
        net = keras.Sequential([keras.layers.Dense(5, "tanh"), keras.layers.Dense(3, "softmax")])
        net.compile("sgd", "sparse_categorical_crossentropy")
        return net

    x, y = xy()
    got = hf.fit(make(), x, y, comm=comm, **OPTIONS, **layout, **QUIET)
    close(got.history, make().fit(x, y, verbose=0, **OPTIONS).history)


def check_order(comm: Any, layouts: list[dict[str, Any]]) -> None:
    """The same seed gives the same training under every split; dropout included."""
    import keras

    import hpcomm.hyparflow as hf

    def make() -> Any:
        keras.utils.set_random_seed(2)
        layers = keras.layers
        net = keras.Sequential(
            [
                keras.Input((6,)),
                layers.Dense(7, "tanh"),
                layers.Dropout(0.4),
                layers.Dense(3, "softmax"),
            ]
        )
        net.compile("sgd", "sparse_categorical_crossentropy")
        return net

    x, y = xy()

    def train(layout: dict[str, Any], **more: Any) -> Any:
        return hf.fit(make(), x, y, comm=comm, epochs=2, batch_size=10, **layout, **more, **QUIET)

    for shuffle in (True, "batch"):
        histories = [train(layout, shuffle=shuffle, seed=3).history for layout in layouts]
        for other in histories[1:]:
            close(other, histories[0])
    first, second, third = (train(layouts[0], seed=seed).history["loss"] for seed in (3, 3, 4))
    assert first == second != third
    drawn = train(layouts[0]).history["loss"]
    assert len({tuple(values) for values in comm.allgather_object(drawn)}) == 1


def check_function(comm: Any, layout: dict[str, Any]) -> None:
    """A function instead of a model: no rank has all weights until they are asked for."""
    import hpcomm.hyparflow as hf

    x, y = xy()
    folder = Path(comm.broadcast_object(tempfile.mkdtemp() if comm.rank == 0 else None))
    options = OPTIONS | layout | {"comm": comm}
    alone = model()
    expected = alone.fit(x, y, verbose=0, **OPTIONS).history
    instance = hf.fit(model(), x, y, gather="all", **options, **QUIET)
    for got, want in zip(instance.model.get_weights(), alone.get_weights(), strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-9)
    history = hf.fit(model, x, y, **options, **QUIET)
    close(history.history, expected)
    assert (history.model is not None) == (comm.rank == 0)
    if comm.rank == 0:
        for got, want in zip(history.model.get_weights(), alone.get_weights(), strict=True):
            np.testing.assert_allclose(got, want, rtol=1e-9)
        history.model.save(folder / "whole.keras")
    policy = hf.CheckpointPolicy(folder / "shards", sharded=True)
    history = hf.fit(model, x, y, gather="none", checkpoint=policy, **options, **QUIET)
    close(history.history, expected)
    assert history.model is None
    comm.barrier()
    for weights in (folder / "shards", folder / "whole.keras"):
        values = hf.evaluate(model, x, y, comm=comm, weights=weights, verbose=0, **layout)
        np.testing.assert_allclose(values, alone.evaluate(x, y, verbose=0), rtol=1e-9)
        outputs = hf.predict(model, x, comm=comm, weights=weights, verbose=0, **layout)
        np.testing.assert_allclose(outputs, alone.predict(x, verbose=0), rtol=1e-9)


def inputs_alone(x: Any) -> list[Any]:
    """Data sets of every kind whose batches have inputs and no targets."""
    import keras
    import tensorflow as tf

    class Batches(keras.utils.PyDataset):
        def __len__(self) -> int:
            return 3

        def __getitem__(self, index: int) -> Any:
            return x[4 * index : 4 * index + 4]

    class Tuples(Batches):
        def __getitem__(self, index: int) -> Any:
            return (super().__getitem__(index),)

    return [tf.data.Dataset.from_tensor_slices(x).batch(4), Batches(), Tuples()]


def check_errors(comm: Any, layout: dict[str, Any]) -> None:
    """Wrong data and arguments: the same message everywhere, and the ranks can go on."""
    import hpcomm.hyparflow as hf
    from hpcomm.errors import DataError, InvalidArgumentError, MismatchError, ModelError

    x, y = xy()

    def broken() -> Any:
        yield x[:4], y[:4]
        yield x[:4], y[:4]
        raise RuntimeError("the disk is gone")

    def message(kind: type[Exception], text: str, *data: Any, **more: Any) -> None:
        with pytest.raises(kind, match=text) as caught:
            hf.fit(model(), *data, comm=comm, **(layout | more), **QUIET)
        texts = {str(other) for other in comm.allgather_object(str(caught.value))}
        assert len(texts) == 1, texts

    message(InvalidArgumentError, "same number of samples", x, y[:-1])
    message(InvalidArgumentError, r"shape \(23, 5\), but the model wants \(None, 6\)", x[:, :5], y)
    message(InvalidArgumentError, r"has 1 input\(s\)", [x, x], y)
    message(
        InvalidArgumentError,
        "class_weight or sample_weight",
        x,
        y,
        class_weight={0: 1.0},
        sample_weight=y,
    )
    message(InvalidArgumentError, "epochs must be a whole number >= 0, got -1", x, y, epochs=-1)
    message(InvalidArgumentError, "validation_split", x, y, validation_split=1.5)
    message(InvalidArgumentError, "rank 0 must pass the data", None, None)
    message(InvalidArgumentError, "the data hold no targets", x)
    message(InvalidArgumentError, "the data hold no targets", x, y, validation_data=x)
    for untargeted in inputs_alone(x):
        message(DataError, "reading the data failed on rank 0: fit: .*hold no targets", untargeted)
        message(DataError, "data hold no targets", x, y, validation_data=untargeted)
    bare = (x[:4] for _ in range(4))
    message(InvalidArgumentError, r"must return a tuple.*weights\)\.$", bare, steps_per_epoch=2)
    message(InvalidArgumentError, "lpp must be a list", x, y, lpp=3)
    message(InvalidArgumentError, "callbacks must be Keras callbacks", x, y, callbacks=[3])
    message(InvalidArgumentError, "Unrecognized data type", "nonsense")
    message(
        MismatchError, "epochs is 2 on rank 1 but 1 on rank 0", x, y, epochs=1 + (comm.rank > 0)
    )
    message(MismatchError, "numbers of samples are", x[comm.rank :], y[comm.rank :])
    message(DataError, "the disk is gone", broken())
    module = pytest.importorskip("torch").nn.Linear(6, 3)
    for wrong, kind, text in (
        (module, InvalidArgumentError, "got torch.nn.modules.linear.Linear"),
        (lambda: module, ModelError, "function returned torch.nn.modules.linear.Linear"),
    ):
        with pytest.raises(kind, match=text):
            hf.fit(wrong, x, y, comm=comm, **layout, **QUIET)
    assert comm.allgather_object(comm.rank) == list(range(comm.size))


@pytest.mark.mpi(ranks=[2], timeout=400, unit="s")
def test_data_over_two_partitions(mpi_ranks: int) -> None:
    comm = start()
    layout = {"strategy": "model", "num_partitions": mpi_ranks, "micro_batches": 3}
    check_only_rank_0_has_data(comm, layout)
    check_validation(comm, layout)
    check_training_goes_on(comm, layout)
    check_unbuilt(comm, layout)
    check_function(comm, layout)
    check_order(comm, [layout, {"strategy": "data"}])
    check_errors(comm, layout)


@pytest.mark.mpi(ranks=[4], timeout=400, unit="s")
def test_data_over_two_replicas_of_two_partitions(mpi_ranks: int) -> None:
    comm = start()
    layout = {"strategy": "hybrid", "num_partitions": 2, "num_replicas": mpi_ranks // 2}
    for streamed in (False, True):
        check_shards(comm, layout, streamed=streamed)
    check_only_rank_0_has_data(comm, layout)
    check_function(comm, layout)
