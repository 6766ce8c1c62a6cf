"""Which partial errors travel: pure reasoning about the graph and about what the stages report.

A boundary tensor has a partial error only if it is floating, if something trainable lies upstream
of it, and if the loss depends on it in a differentiable way. The first two are read off the graph;
the third is what the stages' traces tell. All ranks come to the same answer, so that nobody waits
for an error that nobody sends.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from hpcomm.hyparflow.adapter import StageSpec

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from hpcomm.hyparflow.adapter import Reach
    from hpcomm.hyparflow.split import Split
    from hpcomm.layer_graph import LayerGraph

__all__ = ["Liveness", "differentiable", "find_live", "make_spec"]


def differentiable(graph: LayerGraph) -> set[int]:
    """Return the floating tensors that depend on a trainable variable."""
    trainable = {v.index for v in graph.variables if v.trainable}
    depends: set[int] = set()
    for call in graph.calls:
        if trainable.intersection(call.variables) or depends.intersection(call.inputs):
            depends.update(call.outputs)
    return {t for t in depends if graph.tensors[t].is_floating}


def make_spec(split: Split, index: int, replica: int) -> StageSpec:
    """Return what the rank of one stage must compute.

    Args:
        split: of the model.
        index: of the stage.
        replica: of the rank.
    """
    graph, stage = split.graph, split.stages[index]
    is_last = index == split.num_stages - 1
    flowing = differentiable(graph)
    received = stage.inputs[len(stage.model_inputs) :]
    outputs = stage.outputs
    if is_last:
        masks = (graph.tensors[t].mask for t in stage.outputs)
        outputs += tuple(m for m in dict.fromkeys(masks) if m is not None and m not in outputs)
    groups = {
        number: variables
        for number, (stages, variables) in enumerate(split.tie_groups())
        if index in stages
    }
    return StageSpec(
        start=stage.start,
        stop=stage.stop,
        inputs=stage.inputs,
        outputs=outputs,
        sources=tuple(t for t in received if t in flowing),
        errors=() if is_last else tuple(t for t in stage.outputs if t in flowing),
        variables=stage.variables,
        owned=stage.owned,
        groups=groups,
        is_last=is_last,
        replica=replica,
    )


class Liveness(NamedTuple):
    """What really flows backward.

    Attributes:
        edges: indices of the edges that a partial error travels along.
        errors: per stage and tensor of ``StageSpec.errors``, whether any error arrives.
        variables: per stage and trainable variable, whether it gets a gradient on any stage.
        runs_backward: per stage, whether a backward pass has anything to do.
    """

    edges: frozenset[int]
    errors: list[list[bool]]
    variables: list[list[bool]]
    runs_backward: list[bool]


def find_live(split: Split, specs: Sequence[StageSpec], reaches: Mapping[int, Reach]) -> Liveness:
    """Follow the errors from the loss to the inputs.

    Args:
        split: of the model.
        specs: of all stages.
        reaches: what each stage's trace said.
    """
    graph = split.graph
    live_edges: set[int] = set()
    errors: list[list[bool]] = [[] for _ in specs]
    variables: list[list[bool]] = [[] for _ in specs]
    with_gradient: set[int] = set()
    for index in range(split.num_stages - 1, -1, -1):
        spec, reach = specs[index], reaches[index]
        errors[index] = [
            any(e.index in live_edges for e in split.sends(index) if e.tensor == tensor)
            for tensor in spec.errors
        ]
        # The last row is the stage's own losses: the compiled loss, and what layers added.
        rows = [*errors[index], True]
        sources = _any_row(rows, reach.sources, len(spec.sources))
        reached = {t for t, live in zip(spec.sources, sources, strict=True) if live}
        live_edges.update(e.index for e in split.receives(index) if e.tensor in reached)
        trainable = [v for v in spec.variables if graph.variables[v].trainable]
        variables[index] = _any_row(rows, reach.variables, len(trainable))
        with_gradient.update(v for v, live in zip(trainable, variables[index], strict=True) if live)
    runs = [
        any(variables[i]) or any(e.index in live_edges for e in split.receives(i))
        for i in range(split.num_stages)
    ]
    for index, spec in enumerate(specs):
        trainable = [v for v in spec.variables if graph.variables[v].trainable]
        variables[index] = [v in with_gradient for v in trainable]
    return Liveness(frozenset(live_edges), errors, variables, runs)


def _any_row(rows: Sequence[bool], table: Sequence[Sequence[bool]], width: int) -> list[bool]:
    # A last stage reports one row, the loss; elsewhere there is one per output and the losses.
    used = [row for live, row in zip(rows[-len(table) :], table, strict=True) if live]
    return [any(row[column] for row in used) for column in range(width)]
