"""Ranks as a rectangle: replicas of a model times partitions of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from hpcomm import checks
from hpcomm.errors import InvalidArgumentError

if TYPE_CHECKING:
    from typing import Self

    from hpcomm.communicator import Communicator

__all__ = ["Grid"]


@dataclass(frozen=True, slots=True)
class Grid:
    """Where a rank stands among R replicas of a model in P partitions, and whom it talks to there.

    Attributes:
        world: the communicator that was arranged; its rank is ``replica * num_partitions +
            partition``.
        pipeline: the partitions of this rank's replica; rank there == ``partition``.
        replicas: the replicas of this rank's partition; rank there == ``replica``.
        replica: which copy of the model this rank works for, 0 … R-1.
        partition: which part of it, 0 … P-1.
    """

    world: Communicator
    pipeline: Communicator
    replicas: Communicator
    replica: int
    partition: int

    @property
    def num_replicas(self) -> int:
        """R."""
        return self.replicas.size

    @property
    def num_partitions(self) -> int:
        """P."""
        return self.pipeline.size

    def world_rank(self, replica: int, partition: int) -> int:
        """Return the rank in ``world`` of a place in the grid."""
        return replica * self.num_partitions + partition

    def close(self) -> None:
        """Close the two communicators that the grid made; ``world`` stays open."""
        self.pipeline.close()
        self.replicas.close()

    @classmethod
    def create(cls, world: Communicator, *, replicas: int, partitions: int) -> Self:
        """See `Communicator.grid`."""
        for label, value in (("replicas", replicas), ("partitions", partitions)):
            if checks.whole(value, f"grid: {label}") < 1:
                raise InvalidArgumentError(
                    f"grid: {label} must be a whole number >= 1, got {value!r}; rank {world.rank}",
                    rank=world.rank,
                )
        if replicas * partitions != world.size:
            raise InvalidArgumentError(
                f"grid: {replicas} replicas x {partitions} partitions need "
                f"{replicas * partitions} ranks, but {world.name!r} has {world.size}; "
                "start that many ranks or change the grid",
                rank=world.rank,
            )
        replica, partition = divmod(world.rank, partitions)
        pipeline = world.split(replica, partition, f"{world.name}.pipeline{replica}")
        group = world.split(partition, replica, f"{world.name}.replicas{partition}")
        assert pipeline is not None
        assert group is not None
        return cls(
            world=world, pipeline=pipeline, replicas=group, replica=replica, partition=partition
        )
