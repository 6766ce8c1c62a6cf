from __future__ import annotations

from typing import Any

import keras
import numpy as np
import pytest

from hpcomm.tensorflow.metrics import KerasMetrics, plain_values

pytestmark = pytest.mark.tensorflow
BATCHES = (slice(0, 8), slice(8, 16), slice(16, 21))


def two_outputs(*, run_eagerly: bool = False) -> tuple[Any, Any, Any, Any]:
    keras.utils.set_random_seed(3)
    inputs = keras.Input((4,))
    outputs = [
        keras.layers.Dense(3, "softmax", name="p")(inputs),
        keras.layers.Dense(1, "sigmoid", name="q")(inputs),
    ]
    model = keras.Model(inputs, outputs)
    model.compile(
        "sgd",
        ["sparse_categorical_crossentropy", "binary_crossentropy"],
        loss_weights=[1.0, 0.3],
        metrics=[["accuracy"], [keras.metrics.AUC(num_thresholds=9, name="auc")]],
        weighted_metrics=[[], ["accuracy"]],
        run_eagerly=run_eagerly,
    )
    generator = np.random.default_rng(0)
    x = generator.normal(size=(21, 4)).astype("float32")
    y = [generator.integers(0, 3, 21), generator.integers(0, 2, (21, 1)).astype("float32")]
    weight = generator.uniform(size=21).astype("float32")
    return model, x, y, [weight, weight]


def rows(structure: Any, window: slice) -> Any:
    return keras.tree.map_structure(lambda array: array[window], structure)


def loss_of(model: Any, y: Any, outputs: Any, weight: Any) -> float:
    total = 0.0
    for i, (kind, factor) in enumerate(zip(model.loss, (1.0, 0.3), strict=True)):
        loss = keras.losses.get(kind)(y[i], outputs[i])
        total += factor * float(np.mean(np.asarray(loss) * weight[i]))
    return total


@pytest.mark.parametrize("run_eagerly", [False, True])
def test_values_are_those_of_evaluate(run_eagerly: bool) -> None:
    model, x, y, weight = two_outputs(run_eagerly=run_eagerly)
    expected = model.evaluate(x, y, 8, sample_weight=weight, verbose=0, return_dict=True)
    in_order = model.evaluate(x, y, 8, sample_weight=weight, verbose=0)
    metrics = KerasMetrics(model)
    assert metrics.needs_predictions
    metrics.reset()
    for window in BATCHES:
        outputs = [np.asarray(output) for output in model(x[window])]
        part_y, part_weight = rows(y, window), rows(weight, window)
        loss = loss_of(model, part_y, outputs, part_weight)
        metrics.update(
            part_y, outputs, part_weight, {}, loss=loss, samples=window.stop - window.start
        )
    values = metrics.results()
    assert list(values) == list(expected)
    for name, value in expected.items():
        assert values[name] == pytest.approx(value, rel=2e-5), name
    np.testing.assert_allclose(metrics.in_order(values), in_order, rtol=2e-5)


def test_a_restored_state_goes_on_in_the_middle() -> None:
    def feed(metrics: KerasMetrics, model: Any, x: Any, y: Any, weight: Any, batches: Any) -> None:
        for window in batches:
            outputs = [np.asarray(output) for output in model(x[window])]
            metrics.update(rows(y, window), outputs, rows(weight, window), {}, loss=0.5, samples=3)

    model, *data = two_outputs()
    whole = KerasMetrics(model)
    whole.reset()
    feed(whole, model, *data, BATCHES[:2])
    saved = whole.state()
    feed(whole, model, *data, BATCHES[2:])
    fresh, *data = two_outputs()  # has made no metric variable yet
    again = KerasMetrics(fresh)
    again.reset()
    again.restore(saved)
    feed(again, fresh, *data, BATCHES[2:])
    assert again.results() == whole.results()


def test_masks_of_outputs_count_as_in_keras() -> None:
    keras.utils.set_random_seed(0)
    model = keras.Sequential(
        [
            keras.Input((4,), dtype="int32"),
            keras.layers.Embedding(5, 3, mask_zero=True),
            keras.layers.Dense(2, "softmax"),
        ]
    )
    model.compile("sgd", "sparse_categorical_crossentropy", metrics=["accuracy"])
    x = np.asarray([[1, 2, 0, 0], [3, 0, 0, 0], [1, 1, 1, 1]])
    y = np.asarray([[0, 1, 1, 1], [1, 0, 0, 0], [0, 0, 1, 1]])
    loss, accuracy = model.evaluate(x, y, verbose=0)
    metrics = KerasMetrics(model)
    metrics.reset()
    metrics.update(y, np.asarray(model(x)), None, {0: x != 0}, loss=loss, samples=3)
    assert metrics.results() == pytest.approx({"accuracy": accuracy, "loss": loss})
    metrics.reset()
    metrics.update(y, np.asarray(model(x)), None, {}, loss=loss, samples=3)
    assert metrics.results()["accuracy"] != pytest.approx(accuracy)


def test_outputs_are_not_needed_for_a_loss_alone() -> None:
    model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)])
    model.compile("sgd", "mse")
    metrics = KerasMetrics(model)
    assert not metrics.needs_predictions
    metrics.reset()
    metrics.update(None, None, None, {}, loss=2.0, samples=1)
    metrics.update(None, None, None, {}, loss=5.0, samples=2)
    assert metrics.results() == {"loss": pytest.approx(4.0)}
    assert metrics.in_order({"loss": 4.0}) == 4.0


def test_plain_values_are_numbers_or_arrays() -> None:
    values = plain_values({"a": np.float32(1), "b": {"c": np.ones(2)}, "d": 3})
    assert values["a"] == 1.0
    assert isinstance(values["d"], float)
    np.testing.assert_array_equal(values["c"], [1, 1])
