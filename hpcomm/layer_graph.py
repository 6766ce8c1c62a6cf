"""The layer graph of a model as plain data: calls in topological order, tensors, variables.

An adapter extracts it; balance, split and schedule read nothing else, so they know no framework.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

ITEM_BYTES = {
    "bool": 1,
    "int8": 1,
    "uint8": 1,
    "int16": 2,
    "uint16": 2,
    "float16": 2,
    "bfloat16": 2,
    "int32": 4,
    "uint32": 4,
    "float32": 4,
    "int64": 8,
    "uint64": 8,
    "float64": 8,
    "complex64": 8,
    "complex128": 16,
}
"""Bytes of one element by name of the dtype."""

FLOATING = frozenset({"float16", "bfloat16", "float32", "float64"})
"""Dtypes through which partial errors flow."""

UNKNOWN_EXTENT = 32
"""What an extent counts that is not known before run time and is not that of the batch axis."""

MODEL_INPUT = -1
"""``Tensor.producer`` of a tensor that the data supply."""


@dataclass(frozen=True, slots=True)
class Tensor:
    """A value that flows between calls.

    Attributes:
        index: position in ``LayerGraph.tensors``.
        name: for messages and traces.
        shape: with the batch axis; None where an extent is not known before run time.
        dtype: name, as NumPy or ml_dtypes spell it.
        producer: index of the call that makes it, or ``MODEL_INPUT``.
        mask: index of the tensor that masks this one, or None. A mask goes wherever its tensor
            goes.
    """

    index: int
    name: str
    shape: tuple[int | None, ...]
    dtype: str
    producer: int
    mask: int | None = None

    @property
    def is_floating(self) -> bool:
        """Whether a partial error can exist for it."""
        return self.dtype in FLOATING

    def nbytes(self, num_samples: int) -> int:
        """Return its size for a batch, with ``UNKNOWN_EXTENT`` for other unknown extents.

        Args:
            num_samples: extent of the first axis where that is unknown.
        """
        unknown = [num_samples] + [UNKNOWN_EXTENT] * len(self.shape)
        extents = (
            u if extent is None else extent for extent, u in zip(self.shape, unknown, strict=False)
        )
        return math.prod(extents) * ITEM_BYTES.get(self.dtype, 4)


@dataclass(frozen=True, slots=True)
class Variable:
    """A weight or another piece of state.

    Attributes:
        index: position in ``LayerGraph.variables``.
        key: unique name that depends on the structure of the model alone: neither on the split nor
            on names that a framework numbers through a process.
        shape: fully known.
        dtype: name.
        trainable: whether the optimizer updates it.
        is_seed: whether it is the state of a random number generator (the engine seeds those
            itself).
    """

    index: int
    key: str
    shape: tuple[int, ...]
    dtype: str
    trainable: bool
    is_seed: bool = False
    name: str = ""
    """What the framework calls it on this rank."""

    @property
    def count(self) -> int:
        """Number of elements."""
        return math.prod(self.shape)

    @property
    def nbytes(self) -> int:
        """Size in bytes."""
        return self.count * ITEM_BYTES.get(self.dtype, 4)


@dataclass(frozen=True, slots=True)
class Call:
    """One call of one layer; a layer used twice has two calls.

    Attributes:
        index: position in ``LayerGraph.calls``, a topological order.
        name: unique; the layer's name, with ``#2`` … for later calls of the same layer.
        layer: identifies the layer object; equal for all its calls.
        kind: class name of the layer, for tables.
        inputs: tensors it consumes, without repetition, in order of appearance.
        outputs: tensors it makes.
        variables: indices of all variables of the layer.
        stateful: whether the layer has non-trainable state, which all its calls must share in one
            process.
    """

    index: int
    name: str
    layer: int
    kind: str
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    variables: tuple[int, ...] = ()
    stateful: bool = False


@dataclass
class LayerGraph:
    """A model as the engine sees it.

    Attributes:
        name: of the model.
        calls: in topological order; stages are contiguous pieces of it.
        tensors: all tensors.
        variables: all variables of all calls.
        inputs: tensor index of each model input by name, in the model's order.
        outputs: tensor indices of the model's outputs, flattened in the model's order.
        fingerprint: hash of everything that must agree between ranks.
        native: what the adapter needs to execute the calls; opaque here.
    """

    name: str
    calls: list[Call]
    tensors: list[Tensor]
    variables: list[Variable]
    inputs: dict[str, int]
    outputs: tuple[int, ...]
    fingerprint: str = ""
    native: Any = field(default=None, repr=False)

    @cached_property
    def consumers(self) -> list[list[int]]:
        """Indices of the calls that consume each tensor."""
        users: list[list[int]] = [[] for _ in self.tensors]
        for call in self.calls:
            for tensor in call.inputs:
                users[tensor].append(call.index)
        return users

    @cached_property
    def calls_of_layer(self) -> dict[int, list[int]]:
        """Indices of the calls of each layer."""
        calls: dict[int, list[int]] = {}
        for call in self.calls:
            calls.setdefault(call.layer, []).append(call.index)
        return calls

    @cached_property
    def last_use(self) -> list[int]:
        """Last call that needs each tensor; ``len(calls)`` for outputs, -1 for unused ones."""
        last = [max(users, default=-1) for users in self.consumers]
        for tensor in self.outputs:
            last[tensor] = len(self.calls)
        for masked in self.tensors:
            if masked.mask is not None:
                last[masked.mask] = max(last[masked.mask], last[masked.index])
        return last

    def forbidden_cuts(self) -> set[int]:
        """Return the positions at which no boundary may lie.

        A boundary at position i separates call i-1 from call i. All calls of a layer with
        non-trainable state stay together, because that state lives in one process.
        """
        forbidden: set[int] = set()
        for calls in self.calls_of_layer.values():
            if len(calls) > 1 and self.calls[calls[0]].stateful:
                forbidden.update(range(calls[0] + 1, calls[-1] + 1))
        return forbidden

    def cut_bytes(self, num_samples: int) -> list[int]:
        """Return the bytes that span a boundary, for every position 0 … len(calls).

        Args:
            num_samples: of one micro-batch.
        """
        size = len(self.calls)
        change = [0] * (size + 2)
        for tensor in self.tensors:
            last = self.last_use[tensor.index]
            if tensor.producer == MODEL_INPUT or last <= tensor.producer:
                continue
            nbytes = tensor.nbytes(num_samples)
            change[tensor.producer + 1] += nbytes
            change[min(last, size) + 1] -= nbytes
        total, result = 0, []
        for position in range(size + 1):
            total += change[position]
            result.append(total)
        return result
