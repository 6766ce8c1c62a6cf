"""What users should know of differences from one process that are no errors, as sentences."""

from __future__ import annotations

from types import FunctionType
from typing import TYPE_CHECKING, Any

import keras

from hpcomm.tensorflow.loss import StageLoss
from hpcomm.tensorflow.slots import layers_of_optimizer

if TYPE_CHECKING:
    from collections.abc import Iterator

    from hpcomm.layer_graph import LayerGraph

__all__ = ["find_notices"]

_LOOKUPS = frozenset({"Embedding", "ReversibleEmbedding"})
"""Layers whose weights get a gradient per looked-up row."""

_LINEAR = (keras.optimizers.SGD, keras.optimizers.Lion)
"""Optimizers to which it is the same whether such gradients come one by one or added up."""


def find_notices(graph: LayerGraph, pieces: int) -> Iterator[str]:
    """Yield sentences about a model.

    Args:
        graph: of the model.
        pieces: of a batch.
    """
    model = graph.native.model
    if not getattr(model, "compiled", False):
        return
    if model.jit_compile:
        yield (
            "jit_compile is switched off: stages are compiled with tf.function, without XLA, "
            "which refuses calls of communication"
        )
    masked = any(graph.tensors[t].mask is not None for t in graph.outputs)
    if masked and pieces > 1 and StageLoss(model).reduction == "mean":
        yield (
            "a mask reaches the loss: the mean over unmasked values is taken in each of "
            f"{pieces} pieces of a batch and weighted by their samples, as in gradient "
            "accumulation; reduction='sum' makes it independent of the pieces"
        )
    if any(call.kind in _LOOKUPS for call in graph.calls) and _sees_slices(model.optimizer):
        yield (
            "gradients of embeddings are added up before the optimizer sees them, as in "
            "gradient accumulation; Keras's own fit hands it one slice per lookup, and "
            f"{type(model.optimizer).__name__} then squares or clips repeated rows one by one"
        )
    adding = [call.name for call in graph.calls if _adds_loss(graph, call.index)]
    if adding and pieces > 1:
        yield (
            f"{', '.join(adding)}: what add_loss is given in each of {pieces} pieces of a batch is "
            "weighted by their samples; that is the loss of one process for a mean over the "
            "samples, and not for a sum over them"
        )


def _sees_slices(optimizer: Any) -> bool:
    inner = layers_of_optimizer(optimizer)[-1][1]
    return not isinstance(inner, _LINEAR) or bool(inner.clipnorm or inner.global_clipnorm)


def _adds_loss(graph: LayerGraph, index: int) -> bool:
    """Tell whether code of the user's in the layer of a call mentions add_loss."""
    layer = graph.native.calls[index].operation
    if not isinstance(layer, keras.Layer):
        return False
    kinds = {kind for member in layer._flatten_layers() for kind in type(member).__mro__}
    return any(
        isinstance(function, FunctionType) and "add_loss" in function.__code__.co_names
        for kind in kinds
        if kind.__module__.partition(".")[0] != "keras"
        for function in vars(kind).values()
    )
