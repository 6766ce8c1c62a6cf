"""Metrics are kept by one rank, the one with the outputs; rank 0 shows them to the callbacks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hpcomm.communicator import Communicator
    from hpcomm.hyparflow.batch import StepResult
    from hpcomm.hyparflow.data import Batch
    from hpcomm.hyparflow.framework import ModelMetrics

__all__ = ["Measurement"]


class Measurement:
    """One rank's view of the metrics.

    Attributes:
        keeper: rank that keeps them: the loss stage of replica 0.
        is_keeper: whether that is this rank.
    """

    def __init__(self, comm: Communicator, keeper: int, metrics: ModelMetrics | None) -> None:
        """Say who keeps the metrics.

        Args:
            comm: all ranks.
            keeper: rank that computes the loss in replica 0.
            metrics: the model's, on that rank; None elsewhere.
        """
        self._comm = comm
        self._metrics = metrics
        self.keeper = keeper
        self.is_keeper = comm.rank == keeper

    def reset(self) -> None:
        """Forget all samples."""
        if self._metrics is not None:
            self._metrics.reset()

    def update(self, batch: Batch, result: StepResult) -> None:
        """Take in one global batch.

        Args:
            batch: as this rank got it.
            result: of its step.
        """
        if self._metrics is not None:
            self._metrics.update(
                batch.targets,
                result.predictions,
                batch.sample_weight,
                result.masks,
                loss=result.loss,
                samples=batch.step.global_samples,
            )

    def to_root(self) -> dict[str, Any]:
        """Bring the values to rank 0; collective over the keeper and rank 0, free elsewhere.

        Returns:
            Name → value on rank 0; an empty dict elsewhere.
        """
        values: dict[str, Any] = self._to_root(self._metrics.results() if self._metrics else None)
        return values or {}

    def to_all(self, *, as_dict: bool) -> Any:
        """Bring the values to every rank; collective.

        Args:
            as_dict: rank 0 wants name → value; else the values as the framework's evaluate gives
                them.

        Returns:
            The values, the same on every rank.
        """
        wanted = self._comm.broadcast_object(as_dict)
        values = None
        if self._metrics is not None:
            values = self._metrics.results()
            if not wanted:
                values = self._metrics.in_order(values)
        return self._comm.broadcast_object(values, root=self.keeper)

    def state_to_root(self) -> list[Any] | None:
        """Bring the state of the metrics to rank 0, for a checkpoint; collective like `to_root`."""
        state: list[Any] | None = self._to_root(self._metrics.state() if self._metrics else None)
        return state

    def restore(self, state: Sequence[Any] | None) -> None:
        """Go on in the middle of an epoch; call it on every rank alike.

        Args:
            state: from `state_to_root`; None where there is none.
        """
        if self._metrics is not None and state is not None:
            self._metrics.restore(state)

    def _to_root(self, value: Any) -> Any:
        if self.keeper == 0 or not (self.is_keeper or self._comm.rank == 0):
            return value
        if self.is_keeper:
            self._comm.send_object(value, 0)
            return None
        return self._comm.recv_object(self.keeper)
