from __future__ import annotations

import itertools

import keras
import numpy as np
import pytest
import tensorflow as tf

from hpcomm.tensorflow.graph import extract_graph
from hpcomm.tensorflow.program import Program
from hpcomm.tensorflow.seeds import RandomContext, SeedTable, mix, step_key

pytestmark = pytest.mark.tensorflow
layers = keras.layers
SAMPLES = 12

# Odd row sizes exercise the padding to whole blocks of the generator.
PER_SAMPLE = {
    "dropout": (layers.Dropout(0.4), (7,), "float32"),
    "dropout of float64": (layers.Dropout(0.4, dtype="float64"), (3, 5), "float64"),
    "dropout of bfloat16": (layers.Dropout(0.4, dtype="bfloat16"), (9,), "bfloat16"),
    "dropout with a noise shape": (
        layers.Dropout(0.5, noise_shape=(None, 1, 5)),
        (4, 5),
        "float32",
    ),
    "spatial": (layers.SpatialDropout1D(0.5), (6, 3), "float32"),
    "noise": (layers.GaussianNoise(1.0), (5,), "float32"),
    "noise of float64": (layers.GaussianNoise(1.0, dtype="float64"), (5,), "float64"),
    "gaussian dropout": (layers.GaussianDropout(0.3), (6,), "float32"),
    "alpha dropout": (layers.AlphaDropout(0.3), (3, 3), "float32"),
    "dropout of one number": (layers.Dropout(0.5), (), "float32"),
}


def run(layer, x, first, *, key=5, compiled=True, call=0):
    table = SeedTable([layer])

    def body(x, key, first):
        context = RandomContext(table, key, first, call)
        with context.active():
            return layer(x, training=True)

    function = (
        tf.function(
            body,
            input_signature=[
                tf.TensorSpec((None, *x.shape[1:]), x.dtype),
                tf.TensorSpec((), tf.int64),
                tf.TensorSpec((), tf.int64),
            ],
        )
        if compiled
        else body
    )
    result = function(x, tf.constant(key, tf.int64), tf.constant(first, tf.int64))
    return tf.cast(result, tf.float64).numpy()


@pytest.mark.parametrize("name", sorted(PER_SAMPLE))
def test_random_layers_draw_the_same_for_any_cut_of_the_batch(name):
    layer, shape, dtype = PER_SAMPLE[name]
    x = tf.cast(1.0 + tf.random.stateless_uniform((SAMPLES, *shape), [1, 2]), dtype)
    whole = run(layer, x, 0)
    for cuts in ((0, 4, 8, 12), (0, 1, 7, 12)):
        pieces = [
            run(layer, x[a:b], a, compiled=compiled)
            for compiled in (True, False)
            for a, b in itertools.pairwise(cuts)
        ]
        half = len(pieces) // 2
        np.testing.assert_array_equal(np.concatenate(pieces[:half]), whole)
        np.testing.assert_array_equal(np.concatenate(pieces[half:]), whole)
    assert not np.array_equal(run(layer, x, 0, key=6), whole)
    assert not np.array_equal(run(layer, x, 0, call=1), whole)
    assert not np.array_equal(run(layer, x, SAMPLES), whole)


def test_dropout_keeps_the_asked_share_and_scales_it():
    layer = layers.Dropout(0.3)
    x = tf.ones((400, 101))
    y = run(layer, x, 0)
    kept = y != 0
    assert abs(kept.mean() - 0.7) < 4 * np.sqrt(0.21 / kept.size)
    np.testing.assert_allclose(y[kept], 1 / 0.7, rtol=1e-6)
    # Samples are independent of each other, and so are neighbouring elements.
    assert abs(np.corrcoef(kept[:-1].ravel(), kept[1:].ravel())[0, 1]) < 0.02
    assert abs(np.corrcoef(kept[:, :-1].ravel(), kept[:, 1:].ravel())[0, 1]) < 0.02


def test_dropout_fixed_noise_shape_drops_the_same_of_every_sample():
    y = run(layers.Dropout(0.5, noise_shape=(1, 40)), tf.ones((6, 40)), 3)
    np.testing.assert_array_equal(y, np.repeat(y[:1], 6, 0))
    assert 0 < (y[0] != 0).sum() < 40


def test_dropout_extreme_rates():
    x = tf.ones((3, 4))
    np.testing.assert_array_equal(run(layers.Dropout(0.0), x, 0), x)
    np.testing.assert_array_equal(run(layers.Dropout(1.0), x, 0), np.zeros((3, 4)))


def test_noise_is_normal():
    y = run(layers.GaussianNoise(0.5), tf.zeros((300, 33)), 0)
    assert abs(y.mean()) < 0.03
    assert abs(y.std() - 0.5) < 0.02


def test_layer_seed_chosen_by_the_user_changes_the_mask():
    x = tf.ones((4, 50))
    first, second = (run(layers.Dropout(0.5, seed=seed), x, 0) for seed in (1, 2))
    again = run(layers.Dropout(0.5, seed=1), x, 0)
    assert not np.array_equal(first, second)
    np.testing.assert_array_equal(first, again)


def test_other_random_layers_depend_on_step_and_first_sample_only():
    layer = layers.RandomFlip("horizontal")
    x = tf.reshape(tf.range(8 * 6 * 6 * 1, dtype=tf.float32), (8, 6, 6, 1))
    base = run(layer, x, 0)
    np.testing.assert_array_equal(run(layer, x, 0), base)
    assert any(not np.array_equal(run(layer, x, first), base) for first in range(1, 6))


def test_keras_is_left_as_it_was():
    from keras.src.backend.tensorflow import random as keras_random
    from keras.src.random.seed_generator import SeedGenerator

    before = (keras_random.dropout, keras_random.normal, keras_random.uniform, SeedGenerator.next)
    with RandomContext(SeedTable([]), 0, 0).active():
        assert keras_random.dropout is not before[0]
    after = (keras_random.dropout, keras_random.normal, keras_random.uniform, SeedGenerator.next)
    assert before == after


def test_two_uses_of_a_shared_dropout_draw_differently():
    x = keras.Input((30,))
    shared = layers.Dropout(0.5)
    graph = extract_graph(keras.Model(x, [shared(x), shared(x)]))
    table = SeedTable([call.operation for call in graph.native.calls])
    program = Program(graph, 0, 2, tuple(graph.inputs.values()), graph.outputs)
    context = RandomContext(table, tf.constant(1, tf.int64), tf.constant(0, tf.int64))
    a, b = program.run([tf.ones((4, 30))], context, training=True).outputs
    assert not np.array_equal(a, b)


def test_mix_and_step_key():
    assert mix(0) == 0xE220A8397B1DCDAF  # SplitMix64's first output for seed 0.
    assert len({mix(a, b) for a in range(20) for b in range(20)}) == 400
    keys = {
        step_key(s, t, training=w) for s in (0, 1, 2**40) for t in (0, 1) for w in (False, True)
    }
    assert len(keys) == 12
    assert all(-(2**63) <= key < 2**63 for key in keys)
