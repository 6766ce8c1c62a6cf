"""What one forward and backward of every call costs: timed, or estimated from shapes."""

from __future__ import annotations

import json
import math
import time
from typing import TYPE_CHECKING, Any

import keras
import tensorflow as tf

from hpcomm.layer_graph import ITEM_BYTES, MODEL_INPUT, UNKNOWN_EXTENT
from hpcomm.log import logger
from hpcomm.tensorflow.deferred import temporarily_initialized
from hpcomm.tensorflow.executor import on_best_executor
from hpcomm.tensorflow.program import Program
from hpcomm.tensorflow.seeds import SeedTable
from hpcomm.tensorflow.stage_math import StageMath

if TYPE_CHECKING:
    from collections.abc import Callable

    from hpcomm.layer_graph import Call, LayerGraph

__all__ = ["estimate_seconds", "measure_seconds"]

_WARM_UPS = 2
_MIN_RUNS = 5
_MAX_RUNS = 60
_MIN_SECONDS = 0.05
"""A layer is run at least this long, in _MIN_RUNS to _MAX_RUNS runs; the fastest run counts: it is
the one that nothing else on the machine disturbed."""

_FLOPS_PER_S = 2e10
_BYTES_PER_S = 5e9
"""Speed of one core that estimates are made with; only ratios matter."""

_LOOKUPS = frozenset({"Embedding", "ReversibleEmbedding"})
"""Layers that read rows of their weights instead of multiplying with them."""


def measure_seconds(graph: LayerGraph, num_samples: int) -> list[float]:
    """Time every kind of call once: compiled forward and backward of a micro-batch, alone.

    Calls of equal layers on equal shapes are timed once together. A layer that cannot run alone is
    estimated.

    Args:
        graph: the model.
        num_samples: of a micro-batch.

    Returns:
        Seconds per call.
    """
    estimates = estimate_seconds(graph, num_samples)
    overhead_s = _fastest_seconds(_compiled(lambda: tf.constant(0.0)))
    timed: dict[str, float | None] = {}
    result = []
    for call in graph.calls:
        kind = _kind(graph, call)
        if kind not in timed:
            timed[kind] = _time_call(graph, call, num_samples)
        seconds = timed[kind]
        if seconds is None:
            seconds = estimates[call.index]
        result.append(max(seconds - overhead_s, 1e-7))
    return result


def estimate_seconds(graph: LayerGraph, num_samples: int) -> list[float]:
    """Estimate every call from the shapes of its weights and tensors.

    A weight of two or more axes is multiplied once per position of the output, forward and twice
    backward; every tensor is read or written once in each of the three passes.

    Args:
        graph: the model.
        num_samples: of a micro-batch.

    Returns:
        Seconds per call, on a fictitious core; good for ratios.
    """
    return [_estimate(graph, call, num_samples) for call in graph.calls]


def _estimate(graph: LayerGraph, call: Call, num_samples: int) -> float:
    tensors = [graph.tensors[t] for t in (*call.inputs, *call.outputs)]
    nbytes = sum(tensor.nbytes(num_samples) for tensor in tensors)
    positions = 1
    for index in call.outputs:
        tensor = graph.tensors[index]
        last = tensor.shape[-1] if tensor.shape else 1
        width = last if last is not None else UNKNOWN_EXTENT
        count = tensor.nbytes(num_samples) // ITEM_BYTES.get(tensor.dtype, 4)
        positions = max(positions, count // max(width, 1))
    weights = [graph.variables[v] for v in call.variables]
    multiplied = sum(w.count for w in weights if len(w.shape) >= 2)
    if call.kind in _LOOKUPS:
        multiplied = 0
    seconds = 3 * (2 * multiplied * positions / _FLOPS_PER_S + nbytes / _BYTES_PER_S)
    return seconds + sum(w.nbytes for w in weights) / _BYTES_PER_S


def _kind(graph: LayerGraph, call: Call) -> str:
    """Return equal text for calls that cost the same."""
    native = graph.native.calls[call.index]
    try:
        config = dict(native.operation.get_config())
        config.pop("name", None)
        text = json.dumps(config, sort_keys=True, default=lambda _: "?")
    except Exception:
        # An operation without a configuration is compared with itself only.
        text = f"operation {call.layer}"
    shapes = [
        (graph.tensors[t].shape, graph.tensors[t].dtype, graph.tensors[t].producer == MODEL_INPUT)
        for t in (*call.inputs, *call.outputs)
    ]
    trained = [graph.variables[v].trainable for v in call.variables]
    return repr((call.kind, text, shapes, trained, str(native.node.arguments.kwargs.keys())))


def _time_call(graph: LayerGraph, call: Call, num_samples: int) -> float | None:
    """Return the time of one call, dispatch included, or None if it does not run alone."""
    native = graph.native
    variables = [native.variables[v] for v in call.variables]
    inputs = [_example(graph, t, num_samples) for t in call.inputs]
    outputs = [t for t in call.outputs if graph.tensors[t].is_floating]
    math_of_call = StageMath(
        program=Program(graph, call.index, call.index + 1, call.inputs, outputs),
        table=SeedTable([native.calls[call.index].operation]),
        loss=None,
        structure=None,
        sources=tuple(
            i
            for i, t in enumerate(call.inputs)
            if graph.tensors[t].is_floating and graph.tensors[t].producer != MODEL_INPUT
        ),
        errors=tuple(range(len(outputs))),
        variables=[
            v
            for v, index in zip(variables, call.variables, strict=True)
            if graph.variables[index].trainable
        ],
    )

    def run() -> Any:
        made = math_of_call.forward(inputs, tf.zeros([], tf.int64), tf.zeros([], tf.int64))
        seeds = [tf.ones_like(tensor) for tensor in made.outputs]
        found = math_of_call.backward(made, seeds, tf.ones([], keras.backend.floatx()))
        gradients = [g for g in (*found.sources, *found.variables) if g is not None]
        return [*made.outputs, *(tf.convert_to_tensor(g) for g in gradients)]

    state = [v for v in variables if not v.trainable]
    try:
        with temporarily_initialized(variables):
            before = [v.numpy() for v in state]
            seconds = _fastest_seconds(_compiled(run))
            for variable, value in zip(state, before, strict=True):
                variable.assign(value)
    except Exception as error:
        # A mask, or a layer that needs real data: the estimate has to do.
        logger.info("layer %r is estimated, for it does not run alone: %s", call.layer, error)
        return None
    return seconds


def _example(graph: LayerGraph, index: int, num_samples: int) -> Any:
    tensor = graph.tensors[index]
    shape = [
        (num_samples if i == 0 else UNKNOWN_EXTENT) if extent is None else extent
        for i, extent in enumerate(tensor.shape)
    ]
    if tensor.is_floating:
        return tf.cast(tf.random.stateless_normal(shape, seed=[1, index]), tensor.dtype)
    count = math.prod(shape)
    return tf.cast(tf.reshape(tf.range(count) % 2, shape), tensor.dtype)


def _compiled(function: Callable[[], Any]) -> Callable[[], Any]:
    """Return the function as a stage would run it."""
    concrete = tf.function(function, autograph=False).get_concrete_function()
    return on_best_executor(concrete, concrete)


def _fastest_seconds(function: Callable[[], Any]) -> float:
    for _ in range(_WARM_UPS):
        function()
    runs: list[float] = []
    while len(runs) < _MAX_RUNS and (len(runs) < _MIN_RUNS or sum(runs) < _MIN_SECONDS):
        start_s = time.perf_counter()
        function()
        runs.append(time.perf_counter() - start_s)
    return min(runs)
