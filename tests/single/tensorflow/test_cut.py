from __future__ import annotations

import gc

import keras
import numpy as np
import pytest
import tensorflow as tf

from hpcomm.tensorflow.compiled import CompiledPasses
from hpcomm.tensorflow.eager import EagerPasses
from hpcomm.tensorflow.graph import extract_graph
from hpcomm.tensorflow.program import Program
from hpcomm.tensorflow.seeds import SeedTable
from hpcomm.tensorflow.stage_math import StageMath

pytestmark = pytest.mark.tensorflow
layers = keras.layers


class Doubling(layers.Layer):
    """A branch and a loop, whose gradients TensorFlow builds by rewriting the forward part."""

    def call(self, x):
        positive = keras.ops.cond(keras.ops.sum(x) > 0, lambda: x * 2.0, lambda: x * x)
        return tf.while_loop(lambda i, _: i < 3, lambda i, v: (i + 1, v * v + x), [0, positive])[1]

    def compute_output_shape(self, shape):
        return shape


class Penalty(layers.Layer):
    def call(self, x):
        self.add_loss(0.5 * keras.ops.mean(keras.ops.square(x)))
        return x

    def compute_output_shape(self, shape):
        return shape


def convolutional():
    x = keras.Input((8, 8, 3))
    y = layers.BatchNormalization()(layers.Conv2D(4, 3, padding="same")(x))
    y = layers.MaxPooling2D()(layers.ReLU()(y))
    return keras.Model(x, y)


def controlled():
    x = keras.Input((5,))
    return keras.Model(x, Penalty()(Doubling()(layers.Dense(5, "tanh")(x))))


def recurrent():
    x = keras.Input((6,), dtype="int32")
    y = layers.Embedding(11, 4)(x)
    return keras.Model(
        x,
        layers.LSTM(3, return_sequences=True)(layers.GRU(4, unroll=True, return_sequences=True)(y)),
    )


def passing():
    """Two outputs, one of which is an input that passes through."""
    x, y = keras.Input((4,)), keras.Input((4,))
    return keras.Model([x, y], [layers.Dense(4)(x), layers.Identity()(y)])


MODELS = {f.__name__: f for f in (convolutional, controlled, recurrent, passing)}


def make_math(model, sources):
    graph = extract_graph(model)
    variables = list(model.trainable_variables)
    return graph, StageMath(
        program=Program(graph, 0, len(graph.calls), tuple(graph.inputs.values()), graph.outputs),
        table=SeedTable([call.operation for call in graph.native.calls]),
        loss=None,
        structure=None,
        sources=sources,
        errors=tuple(range(len(graph.outputs))),
        variables=variables,
        accumulators=[tf.Variable(tf.zeros(v.shape, v.dtype)) for v in variables],
    )


@pytest.mark.parametrize("name", sorted(MODELS))
def test_cut_functions_give_what_the_tape_gives(name):
    keras.utils.set_random_seed(0)
    model = MODELS[name]()
    integer = model.inputs[0].dtype == "int32"
    sources = () if integer else tuple(range(len(model.inputs)))
    results = []
    state = [v.numpy() for v in model.non_trainable_variables]
    for compiled in (False, True):
        for v, value in zip(model.non_trainable_variables, state, strict=True):
            v.assign(value)
        _, math = make_math(model, sources)
        specs = [tf.TensorSpec(t.shape, t.dtype) for t in model.inputs]
        errors = [tf.TensorSpec(t.shape, t.dtype) for t in model.outputs]
        passes = CompiledPasses(math, specs, errors) if compiled else EagerPasses(math)
        passes.trace(None, None)
        found, states = [], []
        rng = np.random.default_rng(1)
        zero = tf.zeros([], tf.int64)
        # Micro-batches of different size in flight at the same time.
        for size in (3, 2, 3, 1):
            inputs = [
                tf.constant(
                    rng.integers(0, 11, (size, *t.shape[1:])).astype("int32")
                    if integer
                    else rng.normal(size=(size, *t.shape[1:])).astype("float32")
                )
                for t in model.inputs
            ]
            outputs, added, kept = passes.forward(inputs, zero, zero)
            found += [o.numpy() for o in outputs]
            found += [] if added is None else [added.numpy()]
            states.append((kept, [tf.cos(o) for o in outputs]))
        for kept, seeds in states:
            gradients = passes.backward(kept, seeds, tf.constant(0.7))
            found += [g.numpy() for g in gradients if g is not None]
        found += [a.numpy() for a in math.accumulators]
        found += [v.numpy() for v in model.non_trainable_variables]
        results.append(found)
    eager, cut = results
    assert len(eager) == len(cut)
    for a, b in zip(eager, cut, strict=True):
        np.testing.assert_allclose(b, a, rtol=2e-5, atol=2e-6)


def test_cut_reach_tells_which_gradient_depends_on_which_error():
    x = keras.Input((4,))
    left, right = (
        layers.Dense(3, name="l")(x),
        layers.Dense(2, name="r")(keras.ops.stop_gradient(x)),
    )
    model = keras.Model(x, [left, right])
    _, math = make_math(model, (0,))
    passes = CompiledPasses(
        math,
        [tf.TensorSpec((None, 4), tf.float32)],
        [tf.TensorSpec((None, 3), tf.float32), tf.TensorSpec((None, 2), tf.float32)],
    )
    reach = passes.trace(None, None)
    assert reach.sources == [[True], [False], [False]]
    left_only, right_only = [True, True, False, False], [False, False, True, True]
    assert reach.variables == [left_only, right_only, [False] * 4]


def test_cut_keeps_no_large_tensor_for_its_shape_alone():
    """An addition wants the shapes of its operands for its gradient, not their values."""
    x = keras.Input((16, 16, 8))
    y = layers.Conv2D(8, 3, padding="same", use_bias=False)(x)
    z = layers.Add()([layers.Add()([y, x]), y])
    _, math = make_math(keras.Model(x, z), (0,))
    spec = tf.TensorSpec((None, 16, 16, 8))
    passes = CompiledPasses(math, [spec], [spec])
    passes.trace(None, None)
    zero = tf.zeros([], tf.int64)
    passes.forward([tf.ones((2, 16, 16, 8))], zero, zero)
    # The convolution's input is all that is needed.
    assert [op for op, spec in passes.kept if len(spec.shape) == 4] == ["Placeholder"]


class Multiply(layers.Layer):
    """Calls Python from inside the graph."""

    def call(self, x):
        y = tf.numpy_function(lambda a: a * 3, [tf.stop_gradient(x)], tf.float32)
        return x * tf.ensure_shape(y, x.shape)

    def compute_output_shape(self, shape):
        return shape


def test_cut_lets_go_of_the_graph_it_cut():
    x = keras.Input((3,))
    _, math = make_math(keras.Model(x, Multiply()(layers.Dense(3)(x))), (0,))
    spec = tf.TensorSpec((None, 3), tf.float32)
    passes = CompiledPasses(math, [spec], [spec])
    passes.trace(None, None)
    zero = tf.zeros([], tf.int64)
    before = {id(o) for o in gc.get_objects() if type(o).__name__ == "FuncGraph"}
    passes.forward([tf.ones((2, 3))], zero, zero)
    gc.collect()
    graphs = [
        o for o in gc.get_objects() if type(o).__name__ == "FuncGraph" and id(o) not in before
    ]
    assert len(graphs) == 2, [g.name for g in graphs]
    outputs, _, state = passes.forward([tf.ones((2, 3))], zero, zero)
    (gradient,) = passes.backward(state, [tf.ones_like(outputs[0])], tf.ones([]))
    assert gradient.shape == (2, 3)


def test_compiled_traces_twice_at_most_for_any_sizes():
    x = keras.Input((3,))
    runs = []

    class Counted(layers.Layer):
        def call(self, x):
            runs.append(x.shape)
            return x * 2.0

        def compute_output_shape(self, shape):
            return shape

    _, math = make_math(keras.Model(x, Counted()(layers.Dense(3)(x))), (0,))
    spec = tf.TensorSpec((None, 3), tf.float32)
    passes = CompiledPasses(math, [spec], [spec])
    runs.clear()
    passes.trace(None, None)
    zero = tf.zeros([], tf.int64)
    for size in (4, 4, 3, 2, 4, 1):
        outputs, _, state = passes.forward([tf.ones((size, 3))], zero, zero)
        passes.backward(state, [tf.ones_like(outputs[0])], tf.ones([]))
    # One look at what depends on what, then the first size, then all others.
    assert [shape[0] for shape in runs] == [None, 4, None]
