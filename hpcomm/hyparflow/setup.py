"""Bring a model onto the ranks: open, compare, balance, split, build. Collective throughout.

Whatever can fail here fails on every rank alike: what depends on the arguments and the model alone
is computed on every rank from agreed values, the rest goes through `agree`.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from hpcomm.errors import MismatchError
from hpcomm.hyparflow.adapter import find_adapter
from hpcomm.hyparflow.agreement import agree, closing_on_failure, demand_equal
from hpcomm.hyparflow.arguments import check_choice, check_whole, resolve_layout
from hpcomm.hyparflow.partial_errors import make_spec
from hpcomm.hyparflow.planning import BALANCES, chain_costs, check_schedule, partition
from hpcomm.hyparflow.schedule import SCHEDULES
from hpcomm.hyparflow.split import split_graph

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hpcomm.communicator import Communicator
    from hpcomm.grid import Grid
    from hpcomm.hyparflow.adapter import Adapter, StageRunner, StageSpec
    from hpcomm.hyparflow.balance import Partition
    from hpcomm.hyparflow.split import Split
    from hpcomm.layer_graph import LayerGraph

__all__ = ["Options", "Setup", "set_up"]

DEFAULT_MICRO_BATCH_SIZE = 8


@dataclass(frozen=True)
class Options:
    """Arguments of `HybridTrainer` that all ranks must give alike; see there."""

    strategy: str = "hybrid"
    num_partitions: int | None = None
    num_replicas: int | None = None
    micro_batches: int = 1
    lpp: tuple[int, ...] | None = None
    schedule: str = "gpipe"
    balance: str = "measured"
    micro_batch_size: int | None = None
    memory_limit_bytes: int | None = None
    seed: int | None = None
    keep_gradients: bool = False

    def check(self) -> None:
        """Raise unless every single value makes sense.

        Raises:
            InvalidArgumentError: one does not.
        """
        check_whole("micro_batches", self.micro_batches)
        check_choice("schedule", self.schedule, sorted(SCHEDULES))
        check_choice("balance", self.balance, BALANCES)
        for name in ("micro_batch_size", "memory_limit_bytes"):
            if getattr(self, name) is not None:
                check_whole(name, getattr(self, name))
        if self.seed is not None:
            check_whole("seed", self.seed, least=0)


@dataclass
class Setup:
    """A model on the ranks, ready to train.

    Attributes:
        adapter: of the framework.
        model: the user's, or what the function returned.
        graph: its layers.
        split: the stages.
        plan: their costs.
        specs: per stage, what it computes.
        grid: of the ranks.
        seed: of all randomness.
        runner: this rank's stage.
        deferred: whether a function built the model, so that weights exist only where needed.
    """

    adapter: Adapter
    model: Any
    graph: LayerGraph
    split: Split
    plan: Partition
    specs: list[StageSpec]
    grid: Grid
    seed: int
    runner: StageRunner
    deferred: bool = field(default=False)

    @property
    def spec(self) -> StageSpec:
        """This rank's stage."""
        return self.specs[self.grid.partition]


def set_up(model_or_function: Any, comm: Communicator, options: Options) -> Setup:
    """Do it; collective over ``comm``.

    Args:
        model_or_function: a model, or a function that returns one.
        comm: all ranks.
        options: the same on all ranks.

    Raises:
        InvalidArgumentError: an argument is wrong.
        MismatchError: ranks gave different arguments or models.
        ModelError: the model cannot be split so.
        UnsupportedError: it uses something that is refused by name.
    """
    demand_equal(comm, "HybridTrainer", vars(options))
    options.check()
    layout = resolve_layout(
        options.strategy,
        options.num_partitions,
        options.num_replicas,
        world_size=comm.size,
        num_nodes=comm.num_nodes,
    )
    adapter = find_adapter()
    state = comm.broadcast_object(random.getstate() if comm.rank == 0 else None)
    model = agree(comm, lambda: adapter.open(model_or_function, state))
    graph = agree(comm, lambda: adapter.extract(model))
    _demand_same_model(comm, graph)
    adapter.check(graph, pieces=layout.replicas * options.micro_batches)
    plan = _plan(comm, adapter, graph, options, layout.partitions)
    split = split_graph(graph, plan.lpp)
    check_schedule(split, options.schedule, options.micro_batches)
    # The seed of the framework's user decides, if none is given here.
    seed = options.seed if options.seed is not None else random.getrandbits(31)
    seed = comm.broadcast_object(seed)
    grid = comm.grid(replicas=layout.replicas, partitions=layout.partitions)
    with closing_on_failure((grid.pipeline, grid.replicas)):
        specs = [make_spec(split, stage, grid.replica) for stage in range(split.num_stages)]
        deferred = adapter.needs_memory_later(model)
        runner = agree(comm, lambda: adapter.make_stage(graph, specs[grid.partition], seed))
        # A rate that was set on rank 0 after compile counts, as its weights do.
        rate = comm.broadcast_object(adapter.learning_rate(model))
        if rate is not None:
            runner.set_learning_rate(rate)
    return Setup(adapter, model, graph, split, plan, specs, grid, seed, runner, deferred)


def _demand_same_model(comm: Communicator, graph: LayerGraph) -> None:
    reports = comm.allgather_object((graph.fingerprint, graph.name, len(graph.calls)))
    for rank, (fingerprint, name, layers) in enumerate(reports):
        if fingerprint != reports[0][0]:
            raise MismatchError(
                f"all ranks must pass the same model, compiled alike; rank {rank} has {name!r} "
                f"with {layers} layers, rank 0 has {reports[0][1]!r} with {reports[0][2]} layers "
                "(shapes, settings of layers, optimizer and loss are compared, names are not)",
                rank=rank,
            )


def _plan(
    comm: Communicator, adapter: Adapter, graph: LayerGraph, options: Options, num_stages: int
) -> Partition:
    samples = options.micro_batch_size or DEFAULT_MICRO_BATCH_SIZE
    timed = options.balance == "measured" and num_stages > 1

    def measure() -> Sequence[float] | None:
        # One rank's clock decides, or the ranks would come to different cuts.
        return adapter.measure(graph, samples, timed=timed) if comm.rank == 0 else None

    seconds = comm.broadcast_object(agree(comm, measure))
    slots = adapter.slots_per_weight(graph.native.model)
    objective: Literal["time", "memory"] = "memory" if options.balance == "memory" else "time"
    return partition(
        chain_costs(graph, seconds, samples, slots),
        num_stages,
        options.schedule,
        options.micro_batches,
        lpp=options.lpp,
        memory_limit_bytes=options.memory_limit_bytes,
        objective=objective,
    )
