"""Sums of gradients over replicas and over stages that share weights."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hpcomm.communicator import Communicator
    from hpcomm.grid import Grid
    from hpcomm.hyparflow.adapter import StageRunner
    from hpcomm.hyparflow.split import Split
    from hpcomm.trace import Trace

__all__ = ["Reducer"]


class Reducer:
    """Communicators and order of the sums of one rank.

    Every partition has a communicator of its own replicas, so that its gradients are summed as soon
    as they are complete, while earlier stages still compute.

    Args:
        grid: ranks.
        split: of the model; its tie groups get communicators. Collective over the pipeline.
        trace: where waiting is recorded.
    """

    def __init__(self, grid: Grid, split: Split, trace: Trace) -> None:
        self._replicas = grid.replicas
        self._trace = trace
        self.groups: dict[int, Communicator] = {}
        for number, (stages, _) in enumerate(split.tie_groups()):
            name = f"{grid.pipeline.name}.tied{number}"
            color = 0 if grid.partition in stages else None
            comm = grid.pipeline.split(color, grid.partition, name)
            if comm is not None:
                self.groups[number] = comm

    def sum_gradients(self, runner: StageRunner) -> list[Any] | None:
        """Return packed gradients summed over all ranks that share them; None if none does.

        Collective over the replicas of this partition, and over the stages of each tie group.
        """
        if self._replicas.size == 1 and not self.groups:
            return None
        packed = runner.pack()
        if self._replicas.size > 1:
            works = [self._replicas.allreduce(flat, asynchronous=True) for flat in packed]
            with self._trace.span("allreduce", "gradients", group=self._replicas.name):
                packed = [work.wait() for work in works]
            for work in works:
                self._trace.flight(
                    "allreduce",
                    "gradients",
                    work.submitted_ns,
                    work.completed_ns,
                    group=self._replicas.name,
                )
        for position, number in enumerate(runner.bucket_groups):
            if number is not None:
                comm = self.groups[number]
                with self._trace.span("allreduce", "tied gradients", group=comm.name):
                    packed[position] = comm.allreduce(packed[position])
        return packed

    def average(self, values: Sequence[np.ndarray], *, active: bool) -> list[np.ndarray]:
        """Return the mean over those replicas that are active.

        Collective over the replicas of this partition.

        Args:
            values: floating arrays, the same shapes on all replicas.
            active: whether this replica's values count.
        """
        if self._replicas.size == 1 or not values:
            return list(values)
        count = float(self._replicas.allreduce(np.array([float(active)]))[0])
        if count == 0:
            return list(values)
        flat = np.concatenate([np.asarray(v, np.float64).ravel() for v in values])
        total = self._replicas.allreduce(flat if active else np.zeros_like(flat)) / count
        result, start = [], 0
        for value in values:
            piece = total[start : start + value.size]
            result.append(piece.reshape(value.shape).astype(value.dtype))
            start += value.size
        return result
