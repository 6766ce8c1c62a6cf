"""From a graph to a split: costs, balance, and the table of stages that rank 0 shows."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING, Any, Literal

from rich.console import Console
from rich.table import Table

from hpcomm.errors import InvalidArgumentError
from hpcomm.hyparflow.balance import (
    CallCost,
    ChainCosts,
    Partition,
    balance,
    check_lpp,
    check_num_stages,
    evaluate,
)
from hpcomm.hyparflow.refine import refine, run_dry
from hpcomm.hyparflow.schedule import kept_by_stage, make_schedule
from hpcomm.hyparflow.simulate import expand, simulate
from hpcomm.timeline import ideal_bubble

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hpcomm.hyparflow.split import Split
    from hpcomm.layer_graph import LayerGraph

__all__ = [
    "BALANCES",
    "chain_costs",
    "check_schedule",
    "partition",
    "stage_rows",
    "stage_table",
    "table_title",
]

BALANCES = ("measured", "estimated", "memory")
"""Ways to balance: by timed layers, by estimated ones, or by memory first."""

SECONDS_PER_BYTE = 2e-10
"""What moving a byte between two processes costs a stage: copies into and out of shared memory."""

SECONDS_PER_KEPT_BYTE = 7e-11
"""What it costs to write an activation to memory and read it again, 14 GB/s there and back: stages
of a ResNet-110 that keep 8 micro-batches are 5 to 9 % slower than their layers one by one."""


def chain_costs(
    graph: LayerGraph, seconds: Sequence[float], num_samples: int, slots_per_weight: int
) -> ChainCosts:
    """Return what the balancer needs to know.

    Args:
        graph: the model.
        seconds: of every call.
        num_samples: of a micro-batch.
        slots_per_weight: numbers that the optimizer keeps per trainable weight.
    """
    first_user: dict[int, int] = {}
    shared: list[tuple[int, int, int]] = []
    costs = []
    for call in graph.calls:
        weight_bytes = 0
        for index in call.variables:
            variable = graph.variables[index]
            # A trainable weight comes with its gradient and its slots.
            nbytes = variable.nbytes * (2 + slots_per_weight if variable.trainable else 1)
            if index in first_user:
                shared.append((first_user[index], call.index, nbytes))
            else:
                weight_bytes += nbytes
            first_user[index] = call.index
        activations = sum(graph.tensors[t].nbytes(num_samples) for t in call.outputs)
        costs.append(CallCost(float(seconds[call.index]), weight_bytes, activations))
    return ChainCosts(
        calls=costs,
        cut_bytes=graph.cut_bytes(num_samples),
        forbidden=frozenset(graph.forbidden_cuts()),
        shared=shared,
        seconds_per_byte=SECONDS_PER_BYTE,
        seconds_per_kept_byte=SECONDS_PER_KEPT_BYTE,
    )


def partition(
    costs: ChainCosts,
    num_stages: int,
    schedule: str,
    micro_batches: int,
    *,
    lpp: Sequence[int] | None,
    memory_limit_bytes: int | None,
    objective: Literal["time", "memory"],
) -> Partition:
    """Return the user's partition, checked, or the best one.

    Args:
        costs: of the chain.
        num_stages: length of the pipeline.
        schedule: name; decides how many activations a stage keeps.
        micro_batches: pieces of a replica's batch.
        lpp: layers per partition; None balances.
        memory_limit_bytes: what a stage may need at most.
        objective: what comes first.

    Raises:
        InvalidArgumentError: ``lpp`` does not fit the model.
        ModelError: no such partition exists.
    """
    kept = kept_by_stage(schedule, num_stages, micro_batches)
    check_num_stages(len(costs.calls), num_stages, costs.forbidden)
    if lpp is None:
        even = balance(costs, kept, memory_limit_bytes=memory_limit_bytes, objective=objective)
        if objective == "memory":
            return even
        return refine(costs, even, schedule, micro_batches, memory_limit_bytes=memory_limit_bytes)
    check_lpp(lpp, len(costs.calls), num_stages, costs.forbidden)
    given = evaluate(costs, list(lpp), kept)
    if memory_limit_bytes is not None and max(given.memory_bytes) > memory_limit_bytes:
        raise InvalidArgumentError(
            f"lpp: {list(lpp)} needs {max(given.memory_bytes)} bytes in its fullest partition, "
            f"memory_limit_bytes is {memory_limit_bytes}; move layers or allow more"
        )
    return given


def check_schedule(split: Split, schedule: str, micro_batches: int) -> None:
    """Dry-run the schedule against the edges of a split.

    Raises:
        InternalError: ranks would wait for each other for ever.
    """
    edges = [(e.source, e.target, str(e.index)) for e in split.edges]
    simulate(
        [
            expand(
                stage,
                make_schedule(schedule, stage, split.num_stages, micro_batches),
                edges,
                edges,
            )
            for stage in range(split.num_stages)
        ]
    )


def stage_rows(split: Split, plan: Partition) -> list[dict[str, Any]]:
    """Return the table of stages as plain data.

    Args:
        split: of the model.
        plan: its figures.

    Returns:
        Per stage: "partition", "layers", "first", "last", "parameters", "milliseconds" (per
        micro-batch), "memory_mib", "sends" and "receives" (tensors per micro-batch).
    """
    graph = split.graph
    return [
        {
            "partition": stage.index,
            "layers": stage.stop - stage.start,
            "first": graph.calls[stage.start].name,
            "last": graph.calls[stage.stop - 1].name,
            "parameters": sum(
                graph.variables[v].count for v in stage.variables if not graph.variables[v].is_seed
            ),
            "milliseconds": plan.seconds[stage.index] * 1e3,
            "memory_mib": plan.memory_bytes[stage.index] / 2**20,
            "sends": len(split.sends(stage.index)),
            "receives": len(split.receives(stage.index)),
        }
        for stage in split.stages
    ]


def table_title(
    split: Split, plan: Partition, schedule: str, replicas: int, micro_batches: int
) -> str:
    """Return what stands above the table of stages.

    Args:
        split: of the model.
        plan: its figures.
        schedule: name.
        replicas: copies of the model.
        micro_batches: per replica and batch.
    """
    title = (
        f"{split.graph.name}: {split.num_stages} partition(s) x {replicas} replica(s), "
        f"{micro_batches} micro-batch(es), {schedule}"
    )
    if split.num_stages > 1:
        step = run_dry(plan.seconds, schedule, micro_batches)
        equal = ideal_bubble(split.num_stages, micro_batches)
        title += f"; bubble {step.idle_fraction:.1%} expected, {equal:.1%} if all were equal"
    return title


def stage_table(rows: Sequence[dict[str, Any]], title: str) -> str:
    """Return the table of stages as text.

    Args:
        rows: from `stage_rows`.
        title: above the table.
    """
    table = Table(title=title)
    heads = ("partition", "layers", "first", "last", "parameters", "ms", "MiB", "sends", "receives")
    for head in heads:
        table.add_column(head, justify="left" if head in ("first", "last") else "right")
    for row in rows:
        table.add_row(
            str(row["partition"]),
            str(row["layers"]),
            row["first"],
            row["last"],
            f"{row['parameters']:,}",
            f"{row['milliseconds']:.2f}",
            f"{row['memory_mib']:.1f}",
            str(row["sends"]),
            str(row["receives"]),
        )
    console = Console(file=io.StringIO(), width=110)
    console.print(table)
    output = console.file
    assert isinstance(output, io.StringIO)
    return output.getvalue()
