"""Which rank computes what, and which tensors travel between which stages.

A boundary tensor travels directly from the stage that makes it to every stage that needs it,
however far apart they are. The loss, with all model outputs, is computed on the last stage.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from hpcomm.layer_graph import MODEL_INPUT

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hpcomm.layer_graph import LayerGraph


@dataclass(frozen=True, slots=True)
class Edge:
    """One boundary tensor on its way to one consumer stage.

    Attributes:
        index: position among all edges of the split, the same on all ranks.
        tensor: index of the tensor.
        source: stage that makes it.
        target: stage that needs it.
    """

    index: int
    tensor: int
    source: int
    target: int


@dataclass(frozen=True, slots=True)
class Stage:
    """One contiguous part of the model.

    Attributes:
        index: position in the pipeline.
        start: its first call.
        stop: one past its last call.
        model_inputs: names of the model inputs it consumes, in the model's order.
        inputs: all tensors it starts from: model inputs first, then received ones in edge order.
        outputs: tensors it must deliver: boundary tensors in order, on the last stage the model's
            outputs.
        variables: variables its calls use.
        owned: those of them that no earlier stage uses; each variable of the model is owned once.
    """

    index: int
    start: int
    stop: int
    model_inputs: tuple[str, ...]
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    variables: tuple[int, ...]
    owned: tuple[int, ...]


@dataclass(frozen=True)
class Split:
    """A graph cut into stages.

    Attributes:
        graph: what was cut.
        stages: in pipeline order.
        edges: boundary tensors by (tensor, target).
        tied: variables that several stages use, with those stages in order; the first one owns the
            variable.
    """

    graph: LayerGraph
    stages: tuple[Stage, ...]
    edges: tuple[Edge, ...]
    tied: dict[int, tuple[int, ...]] = field(default_factory=dict)

    @property
    def num_stages(self) -> int:
        """Length of the pipeline."""
        return len(self.stages)

    def receives(self, stage: int) -> list[Edge]:
        """Return the edges that end at a stage, in the agreed order."""
        return [edge for edge in self.edges if edge.target == stage]

    def sends(self, stage: int) -> list[Edge]:
        """Return the edges that start at a stage, in the agreed order."""
        return [edge for edge in self.edges if edge.source == stage]

    def tie_groups(self) -> list[tuple[tuple[int, ...], tuple[int, ...]]]:
        """Return (stages, variables) for every set of stages that shares trainable variables."""
        groups: dict[tuple[int, ...], list[int]] = {}
        for variable, stages in sorted(self.tied.items()):
            if self.graph.variables[variable].trainable:
                groups.setdefault(stages, []).append(variable)
        return [(stages, tuple(groups[stages])) for stages in sorted(groups)]


def split_graph(graph: LayerGraph, lpp: Sequence[int]) -> Split:
    """Cut a graph.

    Args:
        graph: the model.
        lpp: calls per stage, already checked (``balance.check_lpp``).

    Returns:
        Stages and edges.
    """
    bounds = [0, *itertools.accumulate(lpp)]
    stage_of_call = [stage for stage, count in enumerate(lpp) for _ in range(count)]
    last = len(lpp) - 1
    needed = _needed_by_stage(graph, stage_of_call, last)
    edges = _edges(graph, stage_of_call, needed)
    users: dict[int, list[int]] = {}
    for call in graph.calls:
        for variable in call.variables:
            stages = users.setdefault(variable, [])
            if stage_of_call[call.index] not in stages:
                stages.append(stage_of_call[call.index])
    names = {tensor: name for name, tensor in graph.inputs.items()}
    result = []
    for index in range(len(lpp)):
        own_inputs = [t for t in graph.inputs.values() if t in needed[index]]
        received = [edge.tensor for edge in edges if edge.target == index]
        outputs = list(dict.fromkeys(edge.tensor for edge in edges if edge.source == index))
        if index == last:
            outputs = list(dict.fromkeys(graph.outputs))
        result.append(
            Stage(
                index=index,
                start=bounds[index],
                stop=bounds[index + 1],
                model_inputs=tuple(names[t] for t in own_inputs),
                inputs=tuple(own_inputs + received),
                outputs=tuple(outputs),
                variables=tuple(sorted(v for v, stages in users.items() if index in stages)),
                owned=tuple(sorted(v for v, stages in users.items() if stages[0] == index)),
            )
        )
    tied = {v: tuple(stages) for v, stages in users.items() if len(stages) > 1}
    return Split(graph, tuple(result), tuple(edges), tied)


def _needed_by_stage(graph: LayerGraph, stage_of_call: Sequence[int], last: int) -> list[set[int]]:
    """Return for each stage the tensors it needs but does not make."""
    needed: list[set[int]] = [set() for _ in range(last + 1)]

    def note(tensor: int, stage: int) -> None:
        producer = graph.tensors[tensor].producer
        if producer == MODEL_INPUT or stage_of_call[producer] != stage:
            needed[stage].add(tensor)
            mask = graph.tensors[tensor].mask
            if mask is not None and producer != MODEL_INPUT:
                note(mask, stage)

    for call in graph.calls:
        for tensor in call.inputs:
            note(tensor, stage_of_call[call.index])
    for tensor in graph.outputs:
        note(tensor, last)
    return needed


def _edges(
    graph: LayerGraph, stage_of_call: Sequence[int], needed: Sequence[set[int]]
) -> list[Edge]:
    pairs = sorted(
        (tensor, target)
        for target, tensors in enumerate(needed)
        for tensor in tensors
        if graph.tensors[tensor].producer != MODEL_INPUT
    )
    return [
        Edge(index, tensor, stage_of_call[graph.tensors[tensor].producer], target)
        for index, (tensor, target) in enumerate(pairs)
    ]
