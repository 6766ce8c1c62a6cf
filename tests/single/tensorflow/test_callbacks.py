"""Hooks, the model facade and the decisions, with a session that only records what is asked."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import keras
import numpy as np
import pytest

from hpcomm.errors import InvalidArgumentError, UnsupportedError
from hpcomm.tensorflow.callbacks import HOOKS, KerasCallbackHost
from hpcomm.tensorflow.facade import ModelFacade

pytestmark = pytest.mark.tensorflow


class Session:
    """Records requests; the "stages" are rank 0's model itself."""

    def __init__(self, optimizer: Any = None) -> None:
        keras.utils.set_random_seed(0)
        model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(2), keras.layers.Dense(1)])
        model.compile(optimizer or keras.optimizers.Adam(0.5), "mse")
        model.optimizer.build(model.trainable_variables)
        self.call = "fit"
        self.asked: list[Any] = []
        self.trainer = SimpleNamespace(user_model=model, learning_rate=0.5)

    def gather_now(self, *, optimizer: bool = False) -> None:
        self.asked.append(("gather", optimizer))

    def scatter_now(self, *, optimizer: bool = False) -> None:
        self.asked.append(("scatter", optimizer))

    def save_now(self, path: Any, **keywords: Any) -> None:
        self.asked.append(("save", path, keywords))

    def evaluate_now(self, x: Any, y: Any, **keywords: Any) -> Any:
        self.asked.append(("evaluate", keywords))
        return 1.5

    def predict_now(self, x: Any, **keywords: Any) -> Any:
        self.asked.append(("predict", keywords))
        return x

    def show_iterations(self) -> None:
        self.trainer.user_model.optimizer.iterations.assign(7)


def host_of(session: Session, *callbacks: Any, verbose: int = 0) -> KerasCallbackHost:
    host = KerasCallbackHost(session, list(callbacks), verbose=verbose, epochs=3, steps=4)
    host.begun = host.call("on_train_begin", None, None)
    return host


class Asks(keras.callbacks.Callback):
    """Does something with the model at the end of an epoch."""

    def __init__(self, what: Any) -> None:
        super().__init__()
        self.what, self.result = what, None

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        self.result = self.what(self.model)


def ask(what: Any, session: Session | None = None) -> tuple[Any, list[Any], dict[str, Any]]:
    session = session or Session()
    callback = Asks(what)
    decided = host_of(session, callback).call("on_epoch_end", 0, {"loss": 1.0})
    return callback.result, session.asked, decided


def test_reading_weights_gathers_them() -> None:
    weights, asked, _ = ask(lambda model: model.get_weights())
    assert asked == [("gather", False)]
    assert [w.shape for w in weights] == [(3, 2), (2,), (2, 1), (1,)]
    for read in (
        lambda model: model.layers[0].kernel,
        lambda model: model.trainable_variables,
        lambda model: model.get_layer(index=0),
        lambda model: model(np.zeros((1, 3))),
    ):
        assert ("gather", False) in ask(read)[1]


def test_what_needs_no_weights_gathers_nothing() -> None:
    def look(model: Any) -> Any:
        model.stop_training = False
        model.summary(print_fn=lambda *_, **__: None)
        return model.name, model.output_shape, model.count_params(), isinstance(model, keras.Model)

    result, asked, decided = ask(look)
    assert asked == []
    assert result[1:] == ((None, 1), 11, True)
    assert decided["learning_rate"] is None


def test_setting_weights_sends_them() -> None:
    def double(model: Any) -> None:
        model.set_weights([2 * w for w in model.get_weights()])

    assert ask(double)[1][-1] == ("scatter", False)


def test_a_variable_changed_behind_the_facade_is_sent() -> None:
    def change(model: Any) -> None:
        kernel = model.layers[0].kernel
        kernel.assign(kernel * 2)

    assert ask(change)[1] == [("gather", False), ("scatter", False)]
    assert ask(lambda model: model.layers[0].kernel * 2)[1] == [("gather", False)]


def test_optimizer_state_changed_behind_the_facade_is_sent() -> None:
    def change(model: Any) -> None:
        model.optimizer.variables[-1].assign(model.optimizer.variables[-1] + 1)

    assert ask(change)[1][-1] == ("scatter", True)


@pytest.mark.parametrize("how", ["set", "assign", "loss scale"])
def test_a_new_learning_rate_is_decided(how: str) -> None:
    def change(model: Any) -> Any:
        optimizer = model.optimizer
        if how == "assign":
            optimizer.learning_rate.assign(0.25)
        else:
            optimizer.learning_rate = 0.25
        return int(optimizer.iterations)

    optimizer = keras.optimizers.SGD(0.5)
    if how == "loss scale":
        optimizer = keras.optimizers.LossScaleOptimizer(optimizer)
    iterations, asked, decided = ask(change, Session(optimizer))
    assert iterations == 7
    assert asked == []
    assert decided["learning_rate"] == 0.25


def test_other_changes_of_the_optimizer_and_training_are_refused() -> None:
    schedule = keras.optimizers.schedules.ExponentialDecay(0.1, 2, 0.5)

    def put_schedule(model: Any) -> None:
        model.optimizer.learning_rate = schedule

    def put_decay(model: Any) -> None:
        model.optimizer.weight_decay = 0.1

    def put_optimizer(model: Any) -> None:
        model.optimizer = keras.optimizers.SGD()

    for what, text in (
        (lambda model: model.fit(), "training from inside a callback"),
        (lambda model: model.compile("sgd"), "training from inside a callback"),
        (put_optimizer, "training from inside a callback"),
        (put_decay, "changing the optimizer from a callback"),
        (put_schedule, "learning-rate schedule that a callback puts"),
    ):
        with pytest.raises(UnsupportedError, match=text):
            ask(what)


def test_saving_evaluating_and_predicting_go_to_the_session(tmp_path: Path) -> None:
    def work(model: Any) -> Any:
        model.save(tmp_path / "m.keras", overwrite=True)
        model.save_weights(tmp_path / "m.weights.h5")
        return model.evaluate(1, 2, verbose=0), model.predict(3, batch_size=4)

    result, asked, _ = ask(work)
    assert result == (1.5, 3)
    assert asked == [
        ("save", tmp_path / "m.keras", {"overwrite": True}),
        ("save", tmp_path / "m.weights.h5", {"overwrite": True, "weights_only": True}),
        ("evaluate", {"verbose": 0}),
        ("predict", {"batch_size": 4}),
    ]


def test_loading_weights_sends_weights_and_optimizer(tmp_path: Path) -> None:
    session = Session()
    path = tmp_path / "m.weights.h5"
    session.trainer.user_model.save_weights(path)
    assert ask(lambda model: model.load_weights(path), session)[1] == [
        ("gather", True),
        ("scatter", True),
    ]


def test_hooks_are_split_by_who_must_take_part() -> None:
    quiet = host_of(Session())
    assert quiet.served == frozenset()
    assert "on_train_batch_end" not in quiet.local
    bar = host_of(Session(), verbose=1)
    assert "on_train_batch_end" in bar.local
    stops = host_of(Session(), keras.callbacks.EarlyStopping("loss"), verbose=1)
    assert stops.served == {"on_train_begin", "on_epoch_end", "on_train_end"}
    batch = host_of(Session(), keras.callbacks.LambdaCallback(on_train_batch_end=print), verbose=1)
    assert batch.served == {"on_train_batch_end"}
    assert "on_train_batch_end" not in batch.local

    class OldName(keras.callbacks.Callback):
        def on_batch_end(self, batch: int, logs: Any = None) -> None: ...

    assert host_of(Session(), OldName()).served == {"on_train_batch_end"}

    class Looks(OldName):
        hpcomm_passive = True

    assert "on_train_batch_end" in host_of(Session(), Looks()).local
    assert bar.local <= HOOKS


def test_logs_of_an_epoch_are_those_after_all_callbacks() -> None:
    class Adds(keras.callbacks.Callback):
        def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
            logs["extra"] = np.float32(2)

    host = host_of(Session(), Adds())
    assert host.call("on_epoch_end", 0, {"loss": 1.0, "auc": 0.5})["logs"] == {
        "auc": 0.5,
        "loss": 1.0,
        "extra": 2.0,
    }
    assert host.call("on_epoch_end", 1, {"loss": 3.0})["logs"] == {"loss": 3.0, "extra": 2.0}


def test_the_failing_callback_is_named() -> None:
    def fail(model: Any) -> None:
        raise KeyError("no such thing")

    with pytest.raises(KeyError) as caught:
        ask(fail)
    assert caught.value.hpcomm_origin == "callback Asks.on_epoch_end"


def test_a_backup_sets_the_first_epoch(tmp_path: Path) -> None:
    session = Session()
    first = keras.callbacks.BackupAndRestore(tmp_path / "backup", delete_checkpoint=False)
    session.save_now = lambda path, **_: session.trainer.user_model.save_weights(path)
    host_of(session, first).call("on_epoch_end", 2, {"loss": 1.0})
    again = host_of(session, keras.callbacks.BackupAndRestore(tmp_path / "backup"))
    assert again.begun["initial_epoch"] == 3


def test_the_facade_is_a_model_to_isinstance() -> None:
    facade = ModelFacade(Session())
    assert isinstance(facade, keras.Sequential)
    assert isinstance(facade.optimizer, keras.optimizers.Adam)
    assert facade.optimizer.name.startswith("adam")


def test_what_is_no_callback_is_refused() -> None:
    with pytest.raises(InvalidArgumentError, match="fit: callbacks must be Keras callbacks, got 3"):
        host_of(Session(), 3)
