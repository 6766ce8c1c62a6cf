"""From a replica's share of a batch to micro-batches, and from their outputs back to a batch."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any

import numpy as np

from hpcomm.hyparflow.shares import cut
from hpcomm.hyparflow.structure import flatten, map_arrays

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hpcomm.communicator import Communicator

__all__ = ["join_outputs", "micro_batch_ranges", "total_weight"]


def micro_batch_ranges(num_samples: int, micro_batches: int) -> list[tuple[int, int]]:
    """Return (start, stop) of every micro-batch inside a share.

    Sizes differ by at most one, larger ones first. A share with fewer samples than micro-batches is
    cut into single samples.

    Args:
        num_samples: of the share; 0 gives no micro-batch.
        micro_batches: pieces wanted.
    """
    if num_samples == 0:
        return []
    sizes = cut(num_samples, min(micro_batches, num_samples))
    bounds = np.concatenate([[0], np.cumsum(sizes)])
    return [(int(a), int(b)) for a, b in itertools.pairwise(bounds)]


def total_weight(sample_weight: Any, num_samples: int) -> float:
    """Return the sum of sample weights; without any, every sample counts one.

    Args:
        sample_weight: None, an array, or a structure with one array.
        num_samples: that the weights are for.
    """
    leaves = list(flatten(sample_weight))
    return float(np.sum(np.asarray(leaves[0], np.float64))) if leaves else float(num_samples)


def join_outputs(
    parts: Sequence[Sequence[np.ndarray]], replicas: Communicator
) -> list[np.ndarray] | None:
    """Put the outputs of all micro-batches of all replicas together, in the order of the batch.

    Collective over the loss stages of all replicas.

    Args:
        parts: per micro-batch of this replica, its output arrays; may be empty.
        replicas: replicas of the last partition.

    Returns:
        The arrays for the whole batch on replica 0; None elsewhere, and for an empty batch.
    """
    own = [np.concatenate(arrays) for arrays in zip(*parts, strict=True)] if parts else None
    if replicas.rank != 0:
        replicas.send_object(own, 0)
        return None
    everyone = [own, *(replicas.recv_object(peer) for peer in range(1, replicas.size))]
    found = [arrays for arrays in everyone if arrays is not None]
    if not found:
        return None
    if len(found) == 1:
        return list(found[0])
    return [np.concatenate(arrays) for arrays in zip(*found, strict=True)]


def fill(structure: Any, values: Sequence[Any]) -> Any:
    """Return a structure of positions with the values at those positions."""
    return map_arrays(lambda position: values[position], structure)
