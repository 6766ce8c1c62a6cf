from __future__ import annotations

import keras
import numpy as np
import pytest
import tensorflow as tf

from hpcomm.errors import ModelError
from hpcomm.hyparflow.split import split_graph
from hpcomm.layer_graph import MODEL_INPUT
from hpcomm.tensorflow.fingerprint import fingerprint
from hpcomm.tensorflow.graph import extract_graph
from hpcomm.tensorflow.program import Program
from hpcomm.tensorflow.seeds import RandomContext, SeedTable

pytestmark = pytest.mark.tensorflow
layers = keras.layers


def residual():
    x = keras.Input((6,), name="x")
    a = layers.Dense(5, name="a")(x)
    b = layers.Dense(5, name="b")(a)
    return keras.Model(x, layers.Dense(2, name="c")(layers.Add(name="sum")([a, b]) * 2.0))


def nested():
    inner_in = keras.Input((5,))
    inner = keras.Model(inner_in, layers.Dropout(0.1)(layers.Dense(5, name="deep")(inner_in)))
    head = keras.Sequential([keras.Input((5,)), layers.Dense(5), layers.BatchNormalization()])
    x = keras.Input((5,))
    return keras.Model(x, {"out": head(inner(inner(x), training=False))})


def two_towers():
    a, b = keras.Input((4,), name="left"), keras.Input((3,), name="right")
    shared = layers.Dense(4, name="shared")
    u = shared(shared(a))
    v = layers.Dense(4)(b)
    return keras.Model({"left": a, "right": b}, [layers.Multiply()([u, v]), layers.Dense(1)(v)])


def masked():
    x = keras.Input((7,), dtype="int32")
    y = layers.Embedding(10, 4, mask_zero=True)(x)
    y = layers.LSTM(3, return_sequences=True)(layers.Dropout(0.0)(y))
    return keras.Model(x, layers.Dense(2)(y))


def test_graph_calls_stand_in_the_order_of_the_layers():
    model = residual()
    graph = extract_graph(model)
    names = [layer.name for layer in model.layers[1:]]
    assert [call.name for call in graph.calls if call.kind in ("Dense", "Add")] == [
        name for name in names if name in ("a", "b", "sum", "c")
    ]
    assert list(graph.inputs) == ["x"]
    assert [v.name for v in graph.variables] == [v.path for v in model.weights]
    assert graph.variables[0].key == "0.Dense/kernel"
    made = {t.index: t.producer for t in graph.tensors}
    for call in graph.calls:
        assert all(made[t] < call.index for t in call.inputs)


def test_graph_nested_models_are_flattened_and_called_twice():
    graph = extract_graph(nested())
    assert [c.kind for c in graph.calls] == [
        "Dense", "Dropout", "Dense", "Dropout", "Dense", "BatchNormalization",
    ]  # fmt: skip
    assert graph.calls[0].layer == graph.calls[2].layer
    assert graph.calls[2].name == "deep#2"
    assert graph.native.output_structure == {"out": 0}
    assert [c.stateful for c in graph.calls] == [False] * 5 + [True]


def test_graph_nested_model_with_another_dtype_stays_one_call():
    inner = keras.Sequential([keras.Input((3,), dtype="float32"), layers.Dense(2)])
    x = keras.Input((3,), dtype="int32")
    graph = extract_graph(keras.Model(x, inner(x)))
    assert [c.kind for c in graph.calls] == ["Sequential"]


def test_graph_masks_are_tensors_of_the_call_that_makes_them():
    graph = extract_graph(masked())
    embedding = next(c for c in graph.calls if c.kind == "Embedding")
    mask = graph.tensors[graph.tensors[embedding.outputs[0]].mask]
    assert (mask.dtype, mask.shape, mask.producer) == ("bool", (None, 7), embedding.index)
    assert graph.tensors[graph.outputs[0]].mask is not None


def test_graph_seeds_are_no_weights():
    graph = extract_graph(keras.Sequential([keras.Input((3,)), layers.Dropout(0.5)]))
    assert [v.is_seed for v in graph.variables] == [True]
    assert not graph.calls[0].stateful


def test_graph_equal_paths_get_different_keys():
    def tower(name):
        x = keras.Input((3,))
        return keras.Model(x, layers.Dense(3, name="same")(x), name=name or None)

    x = keras.Input((3,))
    y = tower("first")(x)
    graph = extract_graph(keras.Model(x, layers.Add()([y, tower("second")(x)])))
    assert [v.name for v in graph.variables[::2]] == ["same/kernel", "same/kernel"]
    assert [v.key for v in graph.variables[::2]] == ["0.Dense/kernel", "1.Dense/kernel"]


def test_graph_keys_do_not_depend_on_how_keras_numbers_layers():
    def make():
        return keras.Sequential(
            [keras.Input((4, 3)), layers.Bidirectional(layers.LSTM(2)), layers.Dense(2)]
        )

    keys = [[v.key for v in extract_graph(make()).variables] for _ in range(2)]
    assert keys[0] == keys[1]
    assert len(set(keys[0])) == len(keys[0])


def test_graph_subclassed_and_unbuilt_models_are_refused():
    class Mine(keras.Model):
        def call(self, x):
            return x

    for model in (Mine(), keras.Sequential([layers.Dense(3)])):
        with pytest.raises(ModelError, match="graph of layers"):
            extract_graph(model)
    x = keras.Input((3,))
    with pytest.raises(ModelError, match="no layer"):
        extract_graph(keras.Model(x, x))


@pytest.mark.parametrize("make", [residual, nested, two_towers, masked])
def test_program_in_pieces_gives_what_the_model_gives(make):
    keras.utils.set_random_seed(0)
    model = make()
    graph = extract_graph(model)
    rng = np.random.default_rng(0)
    data = {
        name: tf.constant(
            rng.integers(0, 3, (4, *graph.tensors[t].shape[1:])).astype(graph.tensors[t].dtype)
        )
        for name, t in graph.inputs.items()
    }
    given = data if isinstance(model.input, dict) else next(iter(data.values()))
    expected = model(given, training=False)
    table = SeedTable([c.operation for c in graph.native.calls])
    context = RandomContext(table, tf.zeros([], tf.int64), tf.zeros([], tf.int64))
    size = len(graph.calls)
    for first in range(1, size):
        split = split_graph(graph, [first, size - first])
        values = {graph.inputs[name]: value for name, value in data.items()}
        for stage in split.stages:
            program = Program(graph, stage.start, stage.stop, stage.inputs, stage.outputs)
            made = program.run([values[t] for t in stage.inputs], context, training=False)
            values.update(zip(stage.outputs, made.outputs, strict=True))
        outputs = [values[t] for t in graph.outputs]
        found = keras.tree.map_structure(outputs.__getitem__, graph.native.output_structure)
        for a, b in zip(keras.tree.flatten(found), keras.tree.flatten(expected), strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-6, atol=1e-7)


def test_fingerprint_ignores_names_and_sees_everything_else():
    def make(units=4, act="relu", rate=0.1, loss="mse", name="", frozen=False, swift=0.0):
        model = keras.Sequential(
            [keras.Input((3,)), layers.Dense(units, act, name=name or None), layers.Dense(1)]
        )
        model.layers[0].trainable = not frozen
        model.compile(keras.optimizers.SGD(rate, momentum=swift), loss)
        return fingerprint(extract_graph(model))

    same = make()
    assert make() == same
    assert make(name="other") == same
    assert make(rate=0.2) == same  # Callbacks change it; rank 0's counts.
    variants = [
        make(units=5), make(act="tanh"), make(swift=0.5), make(loss="mae"), make(frozen=True),
    ]  # fmt: skip
    assert len({same, *variants}) == 6


def test_inputs_are_model_inputs():
    graph = extract_graph(two_towers())
    assert set(graph.inputs) == {"left", "right"}
    assert all(graph.tensors[t].producer == MODEL_INPUT for t in graph.inputs.values())
