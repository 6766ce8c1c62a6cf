"""What a split Keras model cannot do, with the reason and the way out: one table.

A feature that is found here is refused by its name before anything is sent. What else is defined
differently because a batch is cut stands in docs/hyparflow.md; the rest works as in one process.
Whether code of the user's mixes the samples of a batch cannot be seen from outside.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import keras
from keras.src.models.functional import Functional

from hpcomm.errors import ModelError, UnsupportedError
from hpcomm.tensorflow.own_optimizer import find_own_methods

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = [
    "REFUSALS",
    "Refusal",
    "find_refusals",
    "refuse",
    "refuse_subclassed",
    "refuse_unsupported",
]


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why a feature is refused, and what to do instead.

    Attributes:
        feature: what the user used, in the user's words.
        why: what stands in the way.
        remedy: what works.
    """

    feature: str
    why: str
    remedy: str


REFUSALS: dict[str, Refusal] = {
    "subclassed-model": Refusal(
        "a subclassed keras.Model",
        "its call() is Python code without a graph of layers, so there is nothing to split",
        "write it with the functional API or as keras.Sequential",
    ),
    "custom-step": Refusal(
        "an overridden train_step, test_step, predict_step or make_*_function",
        "the steps of a split model are run by the pipeline, which would skip this code",
        "express it by compile(loss=…), add_loss, layers or callbacks",
    ),
    "custom-loss-method": Refusal(
        "an overridden compute_loss or compute_metrics",
        "the loss of every micro-batch is made from compile(loss=…), which would skip this code",
        "pass the loss and the metrics to compile(), or use add_loss",
    ),
    "layer-metrics": Refusal(
        "a metric that a layer or the model itself owns",
        "it would see micro-batches on one rank instead of whole batches",
        "pass the metric to compile(metrics=…)",
    ),
    "sparse-input": Refusal(
        "a sparse or ragged input",
        "shapes of boundary tensors must be known on both sides",
        "pass dense arrays, padded where needed",
    ),
    "optional-input": Refusal(
        "an optional input (keras.Input(optional=True))",
        "whether it is there may change from batch to batch, and with it the graph of a stage",
        "make the input mandatory and pass zeros where it is missing",
    ),
    "string-input": Refusal(
        "strings as data",
        "only numbers cross process boundaries",
        "turn text into numbers before training (keras.layers.TextVectorization outside)",
    ),
    "stateful-rnn": Refusal(
        "a stateful recurrent layer (stateful=True)",
        "its state belongs to a position in the batch, and micro-batches and replicas cut the "
        "batch",
        "use stateful=False and pass longer sequences",
    ),
    "float8": Refusal(
        "float8 quantization",
        "its scaling factors are overwritten by values that come as gradients and cannot be summed",
        "train in float32, mixed_bfloat16 or mixed_float16",
    ),
    "distribution": Refusal(
        "keras.distribution or tf.distribute",
        "two systems would distribute the same model",
        "create the model outside of the strategy's scope; hpcomm makes the replicas",
    ),
    "distributed-dataset": Refusal(
        "a distributed tf.data set",
        "it is bound to a tf.distribute strategy",
        "pass the plain tf.data.Dataset",
    ),
    "jax-or-torch-backend": Refusal(
        "a Keras backend other than TensorFlow",
        "stages are compiled with tf.function",
        "set KERAS_BACKEND=tensorflow before keras is imported",
    ),
    "training-inside-callback": Refusal(
        "training from inside a callback (fit, train_on_batch, compile)",
        "the pipeline is in the middle of a step",
        "use set_weights or optimizer.learning_rate in callbacks, and train outside",
    ),
    "schedule-in-callback": Refusal(
        "a learning-rate schedule that a callback puts into the optimizer",
        "every stage has its own optimizer, and only numbers are sent to them",
        "pass the schedule to the optimizer before compile(), or set numbers in the callback",
    ),
    "optimizer-attribute": Refusal(
        "changing the optimizer from a callback, other than its learning_rate",
        "every stage has its own optimizer, and only the learning rate is sent to them",
        "set it before compile(), or change learning_rate",
    ),
    "custom-optimizer": Refusal(
        "an optimizer with its own way to treat all gradients or all weights at once",
        "every stage has its own optimizer, which is given the gradients and weights of the stage",
        "override build and update_step, which are given single weights, or use clipnorm, "
        "clipvalue, global_clipnorm, weight_decay and use_ema",
    ),
    "fixed-batch": Refusal(
        "an input with a fixed batch size",
        "micro-batches and replicas are smaller than the batch",
        "leave the batch axis open: keras.Input(shape), without batch_size",
    ),
    "scalar-loss": Refusal(
        "a loss function that reduces over the batch by itself",
        "whether it is a mean or a sum cannot be told, and the pieces of a batch must be put "
        "together accordingly",
        "return one value per sample and let Keras reduce, or train with one micro-batch and one "
        "replica",
    ),
    "comparing-loss": Refusal(
        "a loss that compares the samples of a batch with each other",
        "pairs of samples in different pieces of a batch would be left out",
        "train with one micro-batch and one replica, or use a loss of single samples",
    ),
    "loss-call": Refusal(
        "a keras.Loss with a __call__ of its own",
        "only Keras's own __call__ reduces the values of samples in a way that is known, and the "
        "pieces of a batch must be put together accordingly",
        "override call() and return one value per sample, or train with one micro-batch and one "
        "replica",
    ),
    "loss-without-reduction": Refusal(
        "a loss with reduction=None",
        "its values cannot be weighted by the samples of a micro-batch",
        "use reduction='sum_over_batch_size' or 'sum'",
    ),
    "mixed-reductions": Refusal(
        "losses with different reductions in one model",
        "a micro-batch would count differently for each of them",
        "give all losses the same reduction",
    ),
    "weighted-mean-of-several-losses": Refusal(
        "reduction='mean_with_sample_weight' for several losses",
        "every output would weight a micro-batch differently",
        "use reduction='sum_over_batch_size'",
    ),
    "whole-model": Refusal(
        "the whole model in one process",
        "the training was started with gather='none', so no rank holds all weights",
        "use gather='root', or save in shards: fit(checkpoint=CheckpointPolicy(…, sharded=True))",
    ),
}


def refuse(key: str, detail: str = "", *, call: str = "fit") -> UnsupportedError:
    """Return the error for one row of the table; the caller raises it.

    Args:
        key: of `REFUSALS`.
        detail: what exactly was met, such as the name of a layer.
        call: name of the public function.

    Returns:
        An error that names the feature, the reason and the remedy.
    """
    row = REFUSALS[key]
    met = f" ({detail})" if detail else ""
    return UnsupportedError(
        f"{call}: {row.feature}{met} is not supported: {row.why}. Instead: {row.remedy}"
    )


def refuse_unsupported(model: Any, *, call: str, needs_loss: bool) -> None:
    """Raise if the model cannot be trained split exactly as in one process.

    Args:
        model: a Keras model.
        call: name of the public function.
        needs_loss: whether the model must be compiled.

    Raises:
        UnsupportedError: it uses a feature of `REFUSALS`.
        ModelError: it is subclassed, or not compiled.
    """
    if keras.backend.backend() != "tensorflow":
        raise refuse("jax-or-torch-backend", keras.backend.backend(), call=call)
    refuse_subclassed(model, call=call)
    if needs_loss and not getattr(model, "compiled", False):
        raise ModelError(
            f"{call}: the model {model.name!r} is not compiled; call model.compile(optimizer=…, "
            "loss=…) first"
        )
    for key, detail in find_refusals(model):
        raise refuse(key, detail, call=call)


def refuse_subclassed(model: Any, *, call: str = "fit") -> None:
    """Raise if a model has no graph of layers.

    Args:
        model: a Keras model, built or not.
        call: name of the public function.

    Raises:
        ModelError: it is subclassed.
    """
    if not _is_graph(model):
        row = REFUSALS["subclassed-model"]
        raise ModelError(
            f"{call}: {row.feature} ({type(model).__name__}) cannot be split: {row.why}. "
            f"Instead: {row.remedy}"
        )


def find_refusals(model: Any) -> Iterator[tuple[str, str]]:
    """Yield (key, detail) for every feature of `REFUSALS` that the model uses.

    Args:
        model: a functional or Sequential model.
    """
    steps = ("train_step", "test_step", "predict_step", "make_train_function", "make_test_function")
    for name in (*steps, "make_predict_function"):
        if _is_overridden(model, name):
            yield "custom-step", f"{type(model).__name__}.{name}"
    for name in ("compute_loss", "compute_metrics"):
        if _is_overridden(model, name):
            yield "custom-loss-method", f"{type(model).__name__}.{name}"
    if getattr(model, "_distribute_strategy", None) is not None:
        yield "distribution", type(model._distribute_strategy).__name__
    if keras.distribution.distribution() is not None:
        yield "distribution", type(keras.distribution.distribution()).__name__
    for name in find_own_methods(getattr(model, "optimizer", None)):
        yield "custom-optimizer", name
    for metric in getattr(model, "_metrics", ()):
        yield "layer-metrics", f"{metric.name!r} of the model"
    for layer in model._flatten_layers(include_self=False):
        yield from _layer_refusals(layer)


def _is_overridden(model: Any, name: str) -> bool:
    """Tell whether the class, or this very object, has a method of its own."""
    return name in vars(model) or getattr(type(model), name) is not getattr(keras.Model, name)


def _layer_refusals(layer: Any) -> Iterator[tuple[str, str]]:
    if isinstance(layer, keras.layers.InputLayer):
        if layer.sparse or getattr(layer, "ragged", False):
            yield "sparse-input", repr(layer.name)
        if getattr(layer, "optional", False):
            yield "optional-input", repr(layer.name)
        if str(layer.dtype) == "string":
            yield "string-input", repr(layer.name)
    if getattr(layer, "stateful", False):
        yield "stateful-rnn", repr(layer.name)
    if not isinstance(layer, keras.Model):
        for metric in getattr(layer, "_metrics", ()):
            yield "layer-metrics", f"{metric.name!r} of layer {layer.name!r}"
    if getattr(layer, "quantization_mode", None) == "float8":
        yield "float8", repr(layer.name)


def _is_graph(model: Any) -> bool:
    if isinstance(model, keras.Sequential):
        return type(model).call is keras.Sequential.call
    return isinstance(model, Functional) and type(model).call is Functional.call
