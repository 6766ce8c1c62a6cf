from __future__ import annotations

import os

import pytest
import tensorflow as tf

from hpcomm.tensorflow.executor import on_best_executor


@pytest.fixture
def one_cpu():
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(before)})
    yield
    os.sched_setaffinity(0, before)


def chosen(function, *arguments):
    compiled = tf.function(function, autograph=False)
    call = on_best_executor(compiled, compiled.get_concrete_function(*arguments))
    return compiled, call


def test_one_cpu_runs_a_flat_function_on_the_calling_thread(one_cpu):
    state = tf.Variable(1.0)

    def work(x):
        state.assign_add(tf.reduce_sum(x))
        return tf.nn.relu(x) * state

    x = tf.constant([-1.0, 3.0])
    compiled, call = chosen(work, x)
    assert call is not compiled
    assert call(x).numpy().tolist() == [0.0, 9.0]
    assert compiled(x).numpy().tolist() == [0.0, 15.0]
    assert call(x).numpy().tolist() == [0.0, 21.0]


@pytest.mark.parametrize("kind", ["loop", "branch", "python", "call"])
def test_one_cpu_leaves_functions_in_functions_to_the_usual_executor(one_cpu, kind):
    bodies = {
        "loop": lambda x: tf.while_loop(lambda v: v[0] < 9.0, lambda v: (v * 2.0,), (x,))[0],
        "branch": lambda x: tf.cond(x[0] > 0.0, lambda: x + 1.0, lambda: x - 1.0),
        "python": lambda x: tf.numpy_function(lambda v: v * 3, [x], tf.float32),
        "call": tf.function(lambda x: x + 2.0),
    }
    x = tf.constant([1.0])
    compiled, call = chosen(bodies[kind], x)
    assert call is compiled
    assert (
        call(x).numpy().tolist() == {"loop": [16], "branch": [2], "python": [3], "call": [3]}[kind]
    )


def test_several_cpus_keep_the_usual_executor(monkeypatch):
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1})
    x = tf.constant([1.0])
    compiled, call = chosen(lambda v: v + 1.0, x)
    assert call is compiled
