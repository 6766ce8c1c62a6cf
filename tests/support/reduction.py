"""Inputs of collectives that every rank can make for every other, and what NumPy makes of them."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np

DTYPES = (
    "float16", "bfloat16", "float32", "float64", "int8", "uint8", "int16", "uint16",
    "int32", "uint32", "int64", "uint64", "bool",
)  # fmt: skip
OPS = ("sum", "avg", "min", "max", "prod")
# Relative to the sum of magnitudes; a chain of a few additions in the type itself.
TOLERANCE = {"float16": 4e-3, "bfloat16": 3e-2, "float32": 1e-6, "float64": 1e-14}


def dtype_of(name: str) -> np.dtype[Any]:
    return np.dtype(ml_dtypes.bfloat16) if name == "bfloat16" else np.dtype(name)


def is_defined(op: str, dtype: str) -> bool:
    """Whether the library offers ``op`` for ``dtype``."""
    if op == "avg":
        return dtype in TOLERANCE
    return not (op == "sum" and dtype == "bool")


def values(dtype: str, count: int, rank: int, seed: int = 0) -> Any:
    """Distinct small values that rank ``rank`` contributes; products of four fit every type."""
    draw = np.random.default_rng((seed, rank, count))
    if dtype == "bool":
        return draw.integers(0, 2, count).astype(bool)
    if dtype in TOLERANCE:
        return draw.uniform(-2, 2, count).astype(dtype_of(dtype))
    low = 0 if dtype.startswith("u") else -3
    return draw.integers(low, 4, count).astype(dtype)


def reduced(op: str, parts: list[Any]) -> Any:
    """The reduction in rank order, in float64 where rounding matters."""
    dtype = parts[0].dtype
    if dtype.kind in "iub":
        function = {"sum": np.add, "min": np.minimum, "max": np.maximum, "prod": np.multiply}[op]
        result = parts[0]
        for part in parts[1:]:
            result = function(result, part, dtype=dtype)
        return result
    wide = np.stack([part.astype(np.float64) for part in parts])
    if op == "avg":
        return wide.mean(axis=0)
    return {"sum": np.sum, "min": np.min, "max": np.max, "prod": np.prod}[op](wide, axis=0)


def assert_reduced(result: Any, op: str, parts: list[Any], note: str) -> None:
    """Compare a result with `reduced`: exactly for whole numbers, within rounding for others."""
    wanted = reduced(op, parts)
    assert result.shape == wanted.shape, note
    assert result.dtype == parts[0].dtype, note
    if result.dtype.kind in "iub":
        np.testing.assert_array_equal(result, wanted, err_msg=note)
        return
    name = "bfloat16" if result.dtype == dtype_of("bfloat16") else result.dtype.name
    scale = np.abs(np.stack([part.astype(np.float64) for part in parts])).sum(axis=0)
    scale = np.maximum(scale, 1.0) if op != "prod" else np.maximum(np.abs(wanted), 1e-2)
    difference = np.abs(result.astype(np.float64) - wanted)
    assert (difference <= TOLERANCE[name] * scale).all(), f"{note}: off by {difference.max()}"


def sizes(ranks: int) -> list[int]:
    """0, 1, around the number of ranks, and odd large ones beyond a chunk."""
    return sorted({0, 1, max(ranks - 1, 0), ranks, ranks + 1, 1023, 70_001})
