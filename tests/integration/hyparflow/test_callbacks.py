"""Keras callbacks over several ranks: hooks, files, decisions and values as in one process."""

from __future__ import annotations

import csv
import shutil
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytestmark = pytest.mark.tensorflow

EPOCHS = 6
OPTIONS = {"epochs": EPOCHS, "batch_size": 8, "shuffle": False, "verbose": 0}
BATCH_HOOKS = [
    f"on_{mode}_batch_{end}" for mode in ("train", "test", "predict") for end in ("begin", "end")
]
SPAN_HOOKS = [
    f"on_{mode}_{end}" for mode in ("train", "test", "predict") for end in ("begin", "end")
]


def recorder() -> Any:
    """Return a callback with every hook, which records its name, its index and names of values."""
    import keras

    class Records(keras.callbacks.Callback):
        def __init__(self) -> None:
            super().__init__()
            self.seen: list[Any] = []

    def indexed(name: str) -> Any:
        def hook(self: Any, index: int, logs: Any = None) -> None:
            self.seen.append((name, index, sorted(logs or {})))

        return hook

    def plain(name: str) -> Any:
        def hook(self: Any, logs: Any = None) -> None:
            self.seen.append((name, None, sorted(logs or {})))

        return hook

    for name in [*BATCH_HOOKS, "on_epoch_begin", "on_epoch_end"]:
        setattr(Records, name, indexed(name))
    for name in SPAN_HOOKS:
        setattr(Records, name, plain(name))
    return Records()


def callbacks_of_keras(folder: Path) -> list[Any]:
    from keras import callbacks as keras_callbacks

    folder.mkdir()
    return [
        recorder(),
        keras_callbacks.ModelCheckpoint(folder / "m-{epoch}.keras"),
        keras_callbacks.ModelCheckpoint(
            folder / "best.weights.h5", "val_loss", save_best_only=True, save_weights_only=True
        ),
        keras_callbacks.ModelCheckpoint(folder / "step-{epoch}-{batch}.keras", save_freq=2),
        keras_callbacks.LearningRateScheduler(lambda epoch, rate: rate * 0.5 if epoch else rate),
        keras_callbacks.ReduceLROnPlateau("loss", patience=1, min_delta=10.0),
        keras_callbacks.EarlyStopping(
            "val_loss", min_delta=5.0, patience=3, restore_best_weights=True
        ),
        keras_callbacks.CSVLogger(folder / "log.csv"),
        keras_callbacks.TerminateOnNaN(),
        keras_callbacks.BackupAndRestore(folder / "backup", delete_checkpoint=False),
    ]


def shared_folder(comm: Any) -> Path:
    return Path(comm.broadcast_object(tempfile.mkdtemp() if comm.rank == 0 else None))


def close(got: dict[str, Any], expected: dict[str, Any]) -> None:
    assert list(got) == list(expected)
    for name, values in expected.items():
        np.testing.assert_allclose(got[name], values, rtol=1e-8, err_msg=name)


def model() -> Any:
    import keras
    from support.keras_cases import mlp

    keras.utils.set_random_seed(2)
    return mlp(optimizer=keras.optimizers.Adam(0.01), metrics=["accuracy"])


def files(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())


def check_callbacks_of_keras(comm: Any, layout: dict[str, Any]) -> None:
    import keras
    from support.keras_cases import xy

    import hpcomm.hyparflow as hf

    folder = shared_folder(comm)
    x, y = xy()
    options = OPTIONS | {"validation_data": (x[:9], y[:9])}
    net = model()
    callbacks = callbacks_of_keras(folder / "split") if comm.rank == 0 else None
    history = hf.fit(net, x, y, comm=comm, on_table=False, callbacks=callbacks, **layout, **options)
    assert len({str(h) for h in comm.allgather_object(history.history)}) == 1
    if comm.rank == 0:
        assert callbacks is not None
        alone, expected = model(), callbacks_of_keras(folder / "alone")
        reference = alone.fit(x, y, callbacks=expected, **options)
        close(history.history, reference.history)
        assert history.epoch == reference.epoch
        assert 1 < len(history.epoch) < EPOCHS  # stopped early
        assert callbacks[0].seen == expected[0].seen
        assert files(folder / "split") == files(folder / "alone")
        for got, want in zip(net.get_weights(), alone.get_weights(), strict=True):
            np.testing.assert_allclose(got, want, rtol=1e-8)
        for name in files(folder / "alone"):
            if name.endswith(".keras"):
                one, two = (
                    keras.models.load_model(folder / kind / name) for kind in ("split", "alone")
                )
                pairs = zip(
                    one.variables + one.optimizer.variables,
                    two.variables + two.optimizer.variables,
                    strict=True,
                )
                for got, want in pairs:
                    np.testing.assert_allclose(got, want, rtol=1e-8, atol=1e-12)
        logs = [
            np.asarray(list(csv.reader((folder / kind / "log.csv").open()))[1:], float)
            for kind in ("split", "alone")
        ]
        np.testing.assert_allclose(*logs, rtol=1e-8)
        shutil.rmtree(folder)


def user_callback() -> Any:
    import keras
    from support.keras_cases import xy

    x, y = xy()

    class Meddles(keras.callbacks.Callback):
        """Does to the model whatever a user may think of."""

        def __init__(self) -> None:
            super().__init__()
            self.values: list[Any] = []

        def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
            self.values.append(self.model.evaluate(x, y, verbose=0))
            self.values.append(self.model.predict(x[:5], verbose=0))
            kernel = self.model.layers[1].kernel
            kernel.assign(kernel * 0.5)
            self.model.optimizer.learning_rate.assign(0.003)
            self.values.append(int(self.model.optimizer.iterations))

        def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
            if batch == 1:
                weights = self.model.get_weights()
                self.model.set_weights([0.9 * array for array in weights])

        def on_train_end(self, logs: Any = None) -> None:
            self.values.append(float(np.sum(self.model.get_weights()[0])))

    return Meddles()


def check_a_meddling_callback(comm: Any, layout: dict[str, Any]) -> None:
    from support.keras_cases import xy

    import hpcomm.hyparflow as hf

    x, y = xy()
    net, callback = model(), user_callback()
    history = hf.fit(
        net, x, y, comm=comm, on_table=False, callbacks=[callback], **layout, **OPTIONS
    )
    if comm.rank == 0:
        alone, expected = model(), user_callback()
        reference = alone.fit(x, y, callbacks=[expected], **OPTIONS)
        close(history.history, reference.history)
        for got, want in zip(callback.values, expected.values, strict=True):
            np.testing.assert_allclose(got, want, rtol=1e-8)


def check_swapped_averages(comm: Any, layout: dict[str, Any]) -> None:
    import keras
    from support.keras_cases import mlp, xy

    import hpcomm.hyparflow as hf

    def make() -> Any:
        keras.utils.set_random_seed(2)
        return mlp(optimizer=keras.optimizers.SGD(0.1, use_ema=True, ema_momentum=0.8))

    x, y = xy()
    options = OPTIONS | {"validation_data": (x, y), "epochs": 2}
    callbacks = [keras.callbacks.SwapEMAWeights(swap_on_epoch=True)]
    history = hf.fit(
        make(), x, y, comm=comm, on_table=False, callbacks=callbacks, **layout, **options
    )
    if comm.rank == 0:
        callbacks = [keras.callbacks.SwapEMAWeights(swap_on_epoch=True)]
        close(history.history, make().fit(x, y, callbacks=callbacks, **options).history)


def check_evaluate_and_predict_hooks(comm: Any, layout: dict[str, Any]) -> None:
    from support.keras_cases import xy

    import hpcomm.hyparflow as hf

    x, y = xy()
    net, records = model(), recorder()
    got = hf.evaluate(net, x, y, comm=comm, callbacks=[records], verbose=0, **layout)
    outputs = hf.predict(net, x, comm=comm, callbacks=[records], verbose=0, **layout)
    named = hf.evaluate(net, x, y, comm=comm, return_dict=True, verbose=0, **layout)
    assert len({str(value) for value in comm.allgather_object((got, named))}) == 1
    alone, expected = model(), recorder()
    np.testing.assert_allclose(
        got, alone.evaluate(x, y, callbacks=[expected], verbose=0), rtol=1e-8
    )
    np.testing.assert_allclose(
        outputs, alone.predict(x, callbacks=[expected], verbose=0), rtol=1e-8
    )
    assert named == pytest.approx(alone.evaluate(x, y, return_dict=True, verbose=0), rel=1e-8)
    if comm.rank == 0:
        assert records.seen == expected.seen
    else:
        assert records.seen == []


def check_failures(comm: Any, layout: dict[str, Any]) -> None:
    """A failing callback is the same error everywhere; the communicator stays usable."""
    import keras
    from support.keras_cases import xy

    import hpcomm.hyparflow as hf
    from hpcomm.errors import CallbackError, UnsupportedError

    class Fails(keras.callbacks.Callback):
        def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
            if batch == 1:
                raise KeyError("nothing")

    x, y = xy()
    with pytest.raises(CallbackError) as caught:
        hf.fit(model(), x, y, comm=comm, on_table=False, callbacks=[Fails()], **layout, **OPTIONS)
    assert str(caught.value) == (
        "callback Fails.on_train_batch_end failed on rank 0: KeyError: 'nothing'"
    )
    assert comm.allgather_object(comm.rank) == list(range(comm.size))
    with pytest.raises(UnsupportedError, match="gather='none'"):
        hf.fit(
            model(),
            x,
            y,
            comm=comm,
            on_table=False,
            gather="none",
            callbacks=[keras.callbacks.ModelCheckpoint("never.keras")],
            **layout,
            **OPTIONS,
        )
    assert comm.allgather_object(comm.rank) == list(range(comm.size))


def run_checks(layout: dict[str, Any]) -> None:
    import keras

    import hpcomm

    keras.config.set_floatx("float64")
    keras.config.set_dtype_policy("float64")
    comm = hpcomm.init()
    check_callbacks_of_keras(comm, layout)
    check_a_meddling_callback(comm, layout)
    check_swapped_averages(comm, layout)
    check_evaluate_and_predict_hooks(comm, layout)
    check_failures(comm, layout)


@pytest.mark.mpi(ranks=[2], timeout=300, unit="s")
def test_callbacks_over_two_partitions(mpi_ranks: int) -> None:
    run_checks({"strategy": "model", "num_partitions": mpi_ranks, "micro_batches": 3})


@pytest.mark.mpi(ranks=[2], timeout=300, unit="s")
def test_callbacks_over_two_replicas(mpi_ranks: int) -> None:
    run_checks({"strategy": "data", "num_replicas": mpi_ranks})
