"""Weights, optimizer state and counters of a `HybridTrainer`, seen from outside."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Mapping

    from hpcomm.grid import Grid
    from hpcomm.hyparflow.adapter import StageRunner
    from hpcomm.hyparflow.reduction import Reducer
    from hpcomm.hyparflow.setup import Options, Setup
    from hpcomm.hyparflow.weights import WeightMover

__all__ = ["StateAccess"]


class StateAccess:
    """The part of `HybridTrainer` that reads and writes state between steps."""

    grid: Grid
    step: int
    _setup: Setup
    _options: Options
    _runner: StageRunner
    _reducer: Reducer
    _mover: WeightMover
    _stale_statistics: bool
    _kept_gradients: dict[int, np.ndarray]

    def gather_weights(
        self, to: Literal["root", "all"] = "root", *, optimizer: bool = False
    ) -> None:
        """Fill the user's model with the whole model's weights; collective over all ranks.

        Args:
            to: "root" fills rank 0's model, "all" every rank's.
            optimizer: also fill the user's optimizer, which is built if need be.
        """
        self.average_statistics()
        self._mover.gather(everywhere=to == "all", optimizer=optimizer)

    def scatter_weights(self, *, optimizer: bool = False) -> None:
        """Send rank 0's weights to all stages; collective over all ranks.

        Args:
            optimizer: also send the state of rank 0's optimizer.
        """
        self._mover.scatter(optimizer=optimizer)
        self._stale_statistics = False

    def average_statistics(self) -> None:
        """Average moving statistics over the replicas; collective.

        A second call without a training step in between is free. Averaging before the values are
        read gives the same as averaging after every step, because a moving average is linear.
        """
        if self._stale_statistics:
            self._average(active=True)

    def gather_gradients(self) -> dict[str, np.ndarray] | None:
        """Return the last step's gradients by variable path on rank 0, None elsewhere; collective.

        Summed over micro-batches, replicas and tied copies, with regularization, before clipping.
        The trainer must have been made with ``keep_gradients=True``.
        """
        grid, own = self.grid, dict(self._kept_gradients)
        if grid.replica != 0:
            return None
        if grid.partition != 0:
            grid.pipeline.send_object(own, 0)
            return None
        for stage in range(1, grid.num_partitions):
            own.update(grid.pipeline.recv_object(stage))
        variables = self._setup.graph.variables
        return {variables[i].name: value for i, value in own.items()}

    def state_dict(self, *, optimizer: bool = True) -> dict[str, np.ndarray]:
        """Return what this stage owns, by keys that do not depend on the split; local.

        Call `average_statistics` on all ranks before.

        Args:
            optimizer: with its state.
        """
        owned = self._without_seeds(self._setup.spec.owned)
        keys = [self._setup.graph.variables[i].key for i in owned]
        state = dict(zip(keys, self._runner.read(owned), strict=True))
        if optimizer:
            slots = self._runner.optimizer_keys(owned=True)
            state.update(zip(slots, self._runner.read_optimizer(slots), strict=True))
        return state

    def state_keys(self, *, optimizer: bool = True) -> list[str]:
        """Return the keys that this stage needs to load, tied copies included; local.

        Args:
            optimizer: with its state.
        """
        needed = self._without_seeds(self._setup.spec.variables)
        keys = [self._setup.graph.variables[i].key for i in needed]
        return keys + (self._runner.optimizer_keys(owned=False) if optimizer else [])

    def load_state_dict(self, state: Mapping[str, np.ndarray]) -> None:
        """Load values for `state_keys`; local.

        Args:
            state: by key; keys that are missing leave their values as they are.
        """
        variables = self._setup.graph.variables
        needed = self._without_seeds(self._setup.spec.variables)
        found = [i for i in needed if variables[i].key in state]
        self._runner.write(found, [state[variables[i].key] for i in found])
        self._runner.write_optimizer(
            {key: value for key, value in state.items() if key.startswith("optimizer/")}
        )
        self._stale_statistics = False

    def extra_state(self) -> dict[str, Any]:
        """Return seed and counters as a JSON-able dict, the same on all ranks."""
        return {"seed": self._setup.seed, "step": self.step}

    def load_extra_state(self, state: Mapping[str, Any]) -> None:
        """Take over what `extra_state` gave; local, on every rank alike."""
        self._setup.seed = int(state["seed"])
        self._runner.seed = self._setup.seed
        self.step = int(state["step"])

    @property
    def learning_rate(self) -> float | None:
        """Current learning rate; None where it is a schedule."""
        return self._runner.learning_rate

    def set_learning_rate(self, value: float) -> None:
        """Set the learning rate of this rank's optimizer; local, to be called on every rank."""
        self._runner.set_learning_rate(value)

    @property
    def iterations(self) -> int:
        """Updates that the optimizer has done."""
        return self._runner.iterations

    def finalize(self) -> None:
        """End of training: what Keras's ``optimizer.finalize_variable_values`` does; local."""
        self._runner.finalize()

    def _average(self, *, active: bool) -> None:
        variables = self._runner.changed_state
        if self.grid.num_replicas > 1:
            # A replica that had no sample at all may not know yet which variables change.
            variables = sorted({i for found in self._all_changed() for i in found})
        values = self._reducer.average(self._runner.read(variables), active=active)
        self._runner.write(variables, values)
        self._stale_statistics = False

    def _all_changed(self) -> list[list[int]]:
        found: list[list[int]] = self.grid.replicas.allgather_object(self._runner.changed_state)
        return found

    def _without_seeds(self, variables: tuple[int, ...]) -> list[int]:
        return [i for i in variables if not self._setup.graph.variables[i].is_seed]
