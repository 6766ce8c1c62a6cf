"""A model that uses the same weights in several places, far enough apart for several stages.

Tokens are embedded by a table that also makes the logits at the other end (weight tying); between
them one dense layer is applied at four depths, each time followed by its own normalization and by a
mixing layer of its own.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from keras import Model, layers

from hpcomm.models.keras.common import logits_dtype
from hpcomm.models.task import InputSpec, OutputSpec, Task

if TYPE_CHECKING:
    from hpcomm.models.task import BuildOptions

_TOKENS = 8
_WIDTH = 24
_REPEATS = 4


def task(options: BuildOptions) -> Task:
    """Return inputs and outputs: tokens → one class (the vocabulary is the classes).

    The target is a token; ``num_classes`` is the size of the vocabulary.
    """
    return Task(
        inputs=(InputSpec("tokens", (_TOKENS,), "int32", options.num_classes),),
        outputs=(OutputSpec("classes", "classes", options.num_classes),),
    )


def build(options: BuildOptions) -> Model:
    """Build the model.

    Args:
        options: classes and dtype policy; there is no image, ``image_size`` is not used.

    Returns:
        Uncompiled model, tokens (batch, 8) int32 in [0, classes) → logits (batch, classes).
    """
    dtype = options.dtype
    table = layers.ReversibleEmbedding(options.num_classes, _WIDTH, dtype=dtype, name="table")
    shared = layers.Dense(_WIDTH, activation="tanh", dtype=dtype, name="shared")
    tokens = layers.Input((_TOKENS,), dtype="int32", name="tokens")
    x = table(tokens)
    for index in range(_REPEATS):
        y = shared(x)
        y = layers.LayerNormalization(dtype=dtype, name=f"norm{index}")(y)
        y = layers.Conv1D(_WIDTH, 3, padding="same", dtype=dtype, name=f"mix{index}")(y)
        x = layers.Add(dtype=dtype, name=f"add{index}")([x, y])
    x = layers.GlobalAveragePooling1D(dtype=dtype, name="pool")(x)
    logits = layers.Activation("linear", dtype=logits_dtype(dtype), name="classes")(
        table(x, reverse=True)
    )
    return Model(tokens, logits, name="tied")
