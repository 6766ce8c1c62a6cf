"""Move weights and optimizer state between the stages and the user's model.

Values travel in chunks of bounded size. Replica 0's ranks speak for all replicas.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

from hpcomm.errors import InternalError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    import numpy as np

    from hpcomm.grid import Grid
    from hpcomm.hyparflow.adapter import Adapter, StageRunner, StageSpec
    from hpcomm.hyparflow.split import Split

__all__ = ["WeightMover"]

_CHUNK_BYTES = 64 << 20

T = TypeVar("T")


def _picked(state: Mapping[str, np.ndarray], keys: Sequence[str]) -> dict[str, np.ndarray]:
    """Return part of an optimizer's state; nothing if the optimizer has no state yet."""
    missing = [key for key in keys if state and key not in state]
    if missing:
        raise InternalError(f"the optimizer of rank 0 has no value for {', '.join(missing)}")
    return {key: state[key] for key in keys} if state else {}


class WeightMover:
    """Gathering and scattering for one rank.

    Args:
        grid: ranks.
        split: of the model.
        specs: of all stages.
        runner: of this stage.
        adapter: of the framework.
    """

    def __init__(
        self,
        grid: Grid,
        split: Split,
        specs: Sequence[StageSpec],
        runner: StageRunner,
        adapter: Adapter,
    ) -> None:
        self._grid = grid
        self._graph = split.graph
        self._specs = list(specs)
        self._runner = runner
        self._adapter = adapter

    def gather(self, *, everywhere: bool, optimizer: bool) -> None:
        """Fill the user's model on rank 0, or on all ranks; collective over the world."""
        world = self._grid.world
        at_root = world.rank == 0
        for stage, spec in enumerate(self._specs):
            for chunk in self._chunks(self._kept(spec.owned)):
                values = self._fetch(stage, lambda c=chunk: self._runner.read(c))  # type: ignore[misc]
                if everywhere:
                    values = world.broadcast_object(values)
                if values is not None and (at_root or everywhere):
                    self._adapter.write_user(self._graph, chunk, values)
        if optimizer:
            self._gather_optimizer(everywhere=everywhere)

    def scatter(self, *, optimizer: bool) -> None:
        """Send rank 0's model to all stages of all replicas; collective over the world."""
        for stage, spec in enumerate(self._specs):
            for chunk in self._chunks(self._kept(spec.variables)):
                values = self._deliver(
                    stage,
                    lambda c=chunk: self._adapter.read_user(self._graph, c),  # type: ignore[misc]
                )
                if self._grid.partition == stage:
                    self._runner.write(chunk, values)
        if not optimizer:
            return
        at_root = self._grid.world.rank == 0
        state = self._adapter.read_user_optimizer(self._graph) if at_root else {}
        for stage in range(len(self._specs)):
            wanted = self._fetch(stage, lambda: self._runner.optimizer_keys(owned=False))
            values = self._deliver(stage, lambda k=wanted: _picked(state, k))  # type: ignore[misc]
            if self._grid.partition == stage:
                self._runner.write_optimizer(values)

    def equalize(self) -> None:
        """Give all copies of a weight the value of the first one; collective over the world.

        Weights that each rank initialized by itself agree only if their initializers draw from
        seeds alone.
        """
        grid = self._grid
        own = self._kept(self._specs[grid.partition].variables)
        if grid.num_replicas > 1:
            for chunk in self._chunks(own):
                values = self._runner.read(chunk) if grid.replica == 0 else None
                self._runner.write(chunk, grid.replicas.broadcast_object(values))

    def _gather_optimizer(self, *, everywhere: bool) -> None:
        world = self._grid.world
        state: dict[str, np.ndarray] = {}
        for stage in range(len(self._specs)):
            found = self._fetch(stage, self._optimizer_state)
            state.update(found or {})
        if everywhere:
            state = world.broadcast_object(state)
        if world.rank == 0 or everywhere:
            self._adapter.write_user_optimizer(self._graph, state)

    def _optimizer_state(self) -> dict[str, np.ndarray]:
        keys = self._runner.optimizer_keys(owned=True)
        return dict(zip(keys, self._runner.read_optimizer(keys), strict=True))

    def _fetch(self, stage: int, read: Callable[[], T]) -> T | None:
        """Return on rank 0 what a stage of replica 0 reads; None elsewhere."""
        grid = self._grid
        if grid.replica != 0:
            return None
        if stage == 0:
            return read() if grid.partition == 0 else None
        if grid.partition == stage:
            grid.pipeline.send_object(read(), 0)
        elif grid.partition == 0:
            result: T = grid.pipeline.recv_object(stage)
            return result
        return None

    def _deliver(self, stage: int, read: Callable[[], Any]) -> Any:
        """Return on all replicas of a stage what rank 0 reads; None on other ranks."""
        grid = self._grid
        value = None
        if grid.replica == 0:
            if grid.partition == 0:
                value = read()
                if stage != 0:
                    grid.pipeline.send_object(value, stage)
            elif grid.partition == stage:
                value = grid.pipeline.recv_object(0)
        if grid.partition != stage:
            return None
        return grid.replicas.broadcast_object(value)

    def _kept(self, variables: Sequence[int]) -> list[int]:
        """Leave out the states of random number generators, which the engine derives itself."""
        return [v for v in variables if not self._graph.variables[v].is_seed]

    def _chunks(self, variables: Sequence[int]) -> Iterator[list[int]]:
        chunk: list[int] = []
        size = 0
        for variable in variables:
            nbytes = self._graph.variables[variable].nbytes
            if chunk and size + nbytes > _CHUNK_BYTES:
                yield chunk
                chunk, size = [], 0
            chunk.append(variable)
            size += nbytes
        if chunk:
            yield chunk
