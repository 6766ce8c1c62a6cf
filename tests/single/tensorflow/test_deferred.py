from __future__ import annotations

import random

import keras
import numpy as np
import pytest

from hpcomm.tensorflow.adapter import KerasAdapter
from hpcomm.tensorflow.costs import estimate_seconds, measure_seconds
from hpcomm.tensorflow.deferred import (
    build_deferred,
    initialize,
    is_initialized,
    temporarily_initialized,
)
from hpcomm.tensorflow.graph import extract_graph

pytestmark = pytest.mark.tensorflow
layers = keras.layers


def make_model():
    model = keras.Sequential(
        [
            keras.Input((8, 8, 3)),
            layers.Conv2D(6, 3),
            layers.BatchNormalization(),
            layers.Flatten(),
            layers.Dropout(0.5),
            layers.Dense(4),
        ]
    )
    model.compile("adam", "mse", metrics=["mae"])
    return model


def test_build_deferred_gives_no_memory_and_the_usual_weights_later():
    keras.utils.set_random_seed(7)
    expected = make_model()
    keras.utils.set_random_seed(7)
    model, pending = build_deferred(make_model, random.getstate())
    assert pending
    assert not any(is_initialized(v) for v in model.variables)
    assert model.count_params() == expected.count_params()
    initialize(model.layers[0].variables)
    assert [is_initialized(v) for v in model.layers[-1].variables] == [False, False]
    initialize(model.variables)
    for a, b in zip(model.variables, expected.variables, strict=True):
        np.testing.assert_array_equal(a.numpy(), b.numpy())


def test_open_initializes_what_belongs_to_no_layer():
    model = KerasAdapter().open(make_model, random.getstate())
    assert int(model.optimizer.iterations) == 0
    model._loss_tracker.update_state(3.0)
    assert float(model._loss_tracker.result()) == 3.0
    assert KerasAdapter().needs_memory_later(model)


def test_initialize_takes_values_without_running_the_initializer():
    def explode(shape, dtype=None):
        raise AssertionError("the initializer must not run")

    def build():
        layer = layers.Dense(3)
        layer.build((None, 2))
        return layer

    layer, _ = build_deferred(build, random.getstate())
    layer.kernel._initializer = explode
    initialize([layer.kernel], [np.full((2, 3), 5.0, "float32")])
    np.testing.assert_array_equal(layer.kernel.numpy(), np.full((2, 3), 5.0))


def test_temporarily_initialized_gives_the_memory_back():
    layer, _ = build_deferred(lambda: _built(layers.Dense(3)), random.getstate())
    with temporarily_initialized(layer.variables):
        first = layer.kernel.numpy()
    assert not is_initialized(layer.kernel)
    initialize(layer.variables)
    np.testing.assert_array_equal(layer.kernel.numpy(), first)


def _built(layer):
    layer.build((None, 2))
    return layer


def test_deferral_ends_with_the_context():
    with pytest.raises(ZeroDivisionError):
        build_deferred(lambda: 1 / 0, random.getstate())
    assert is_initialized(keras.Variable("zeros", shape=(2,)))


def test_measure_seconds_of_a_deferred_model_leaves_it_deferred():
    model, _ = build_deferred(make_model, random.getstate())
    graph = extract_graph(model)
    seconds = measure_seconds(graph, 4)
    assert len(seconds) == len(graph.calls)
    assert all(s > 0 for s in seconds)
    assert not any(is_initialized(v) for v in model.variables)


def test_estimate_seconds_ranks_layers_by_work():
    x = keras.Input((32, 32, 8))
    y = layers.Conv2D(64, 3, padding="same", name="large")(x)
    y = layers.Conv2D(8, 1, padding="same", name="small")(y)
    y = layers.GlobalAveragePooling2D(name="pool")(y)
    graph = extract_graph(keras.Model(x, layers.Dense(10, name="tiny")(y)))
    by_name = dict(zip([c.name for c in graph.calls], estimate_seconds(graph, 8), strict=True))
    assert by_name["large"] > by_name["small"] > by_name["pool"] > by_name["tiny"]
