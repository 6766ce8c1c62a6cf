from __future__ import annotations

import itertools

from hypothesis import given, settings
from hypothesis import strategies as st

from hpcomm.hyparflow.split import split_graph
from hpcomm.layer_graph import MODEL_INPUT, Call, LayerGraph, Tensor, Variable


def make_graph(wiring, outputs, inputs=1, layers=None, variables=(), masks=None, stateful=()):
    """``wiring[i]`` = tensors that call i consumes; call i makes tensor ``inputs + i``."""
    masks = masks or {}
    tensors = [Tensor(i, f"in{i}", (None, 4), "float32", MODEL_INPUT) for i in range(inputs)]
    calls = []
    for i, consumed in enumerate(wiring):
        layer = layers[i] if layers else i
        calls.append(
            Call(
                i,
                f"call{i}",
                layer,
                "Layer",
                tuple(consumed),
                (inputs + i,),
                tuple(v for v, users in enumerate(variables) if layer in users),
                layer in stateful,
            )
        )
        tensors.append(Tensor(inputs + i, f"t{i}", (None, 4), "float32", i))
    for tensor, producer in masks.items():
        index = len(tensors)
        tensors.append(Tensor(index, f"mask{tensor}", (None,), "bool", producer))
        old = tensors[tensor]
        tensors[tensor] = Tensor(tensor, old.name, old.shape, old.dtype, old.producer, index)
    weights = [Variable(v, f"w{v}", (4, 4), "float32", True) for v in range(len(variables))]
    names = {f"in{i}": i for i in range(inputs)}
    return LayerGraph("model", calls, tensors, weights, names, tuple(outputs))


def test_split_chain_sends_one_tensor_per_boundary():
    graph = make_graph([[0], [1], [2], [3]], outputs=[4])
    split = split_graph(graph, [1, 2, 1])
    assert [(e.tensor, e.source, e.target) for e in split.edges] == [(1, 0, 1), (3, 1, 2)]
    assert split.stages[0].model_inputs == ("in0",)
    assert split.stages[1].inputs == (1,)
    assert split.stages[2].outputs == (4,)


def test_split_skip_goes_directly_to_every_consumer():
    graph = make_graph([[0], [1], [1, 2], [1, 3]], outputs=[4])
    split = split_graph(graph, [1, 1, 1, 1])
    assert [(e.tensor, e.source, e.target) for e in split.edges] == [
        (1, 0, 1),
        (1, 0, 2),
        (1, 0, 3),
        (2, 1, 2),
        (3, 2, 3),
    ]
    assert split.stages[0].outputs == (1,)


def test_split_early_output_travels_to_the_loss_stage():
    graph = make_graph([[0], [1], [2]], outputs=[1, 3])
    split = split_graph(graph, [1, 1, 1])
    assert (1, 0, 2) in [(e.tensor, e.source, e.target) for e in split.edges]
    assert split.stages[2].outputs == (1, 3)
    assert 1 in split.stages[2].inputs


def test_split_inputs_are_fed_where_they_are_consumed():
    graph = make_graph([[0], [2, 1]], outputs=[3], inputs=2)
    split = split_graph(graph, [1, 1])
    assert split.stages[0].model_inputs == ("in0",)
    assert split.stages[1].model_inputs == ("in1",)
    assert split.stages[1].inputs == (1, 2)


def test_split_mask_travels_with_its_tensor():
    graph = make_graph([[0], [1]], outputs=[2], masks={1: 0})
    split = split_graph(graph, [1, 1])
    assert [(e.tensor, e.source, e.target) for e in split.edges] == [(1, 0, 1), (3, 0, 1)]


def test_split_tied_weights_belong_to_their_first_stage():
    graph = make_graph([[0], [1], [2]], outputs=[3], layers=[7, 8, 7], variables=[{7}, {8}])
    split = split_graph(graph, [1, 1, 1])
    assert split.tied == {0: (0, 2)}
    assert split.tie_groups() == [((0, 2), (0,))]
    assert [s.owned for s in split.stages] == [(0,), (1,), ()]
    assert [s.variables for s in split.stages] == [(0,), (1,), (0,)]


def test_graph_state_of_a_shared_layer_forbids_cuts_between_its_calls():
    graph = make_graph(
        [[0], [1], [2], [3]], outputs=[4], layers=[0, 5, 1, 5], variables=[{5}], stateful=[5]
    )
    assert graph.forbidden_cuts() == {2, 3}


def test_graph_cut_bytes_counts_all_that_spans_a_boundary():
    graph = make_graph([[0], [1], [1, 2]], outputs=[3])
    assert graph.cut_bytes(2) == [0, 32, 64, 32]


@st.composite
def random_graphs(draw):
    size = draw(st.integers(1, 9))
    inputs = draw(st.integers(1, 3))
    wiring = [
        draw(st.lists(st.integers(0, inputs + i - 1), min_size=1, max_size=3, unique=True))
        for i in range(size)
    ]
    outputs = draw(st.lists(st.integers(0, inputs + size - 1), min_size=1, max_size=3, unique=True))
    stages = draw(st.integers(1, size))
    cuts = sorted(draw(st.permutations(range(1, size)))[: stages - 1])
    bounds = [0, *cuts, size]
    layers = [draw(st.integers(0, 3)) for _ in range(size)]
    return (
        make_graph(wiring, outputs, inputs, layers, variables=[{0}, {1, 2}, {3}]),
        [b - a for a, b in itertools.pairwise(bounds)],
    )


@settings(max_examples=200, deadline=None)
@given(random_graphs())
def test_split_any_graph_every_stage_can_compute_what_it_must(case):
    graph, lpp = case
    split = split_graph(graph, lpp)
    owners = [v for stage in split.stages for v in stage.owned]
    used = {v for call in graph.calls for v in call.variables}
    assert sorted(owners) == sorted(used)
    for stage in split.stages:
        have = set(stage.inputs)
        for name in stage.model_inputs:
            assert graph.inputs[name] in have
        for call in graph.calls[stage.start : stage.stop]:
            assert set(call.inputs) <= have
            have.update(call.outputs)
        assert set(stage.outputs) <= have
        for edge in split.sends(stage.index):
            assert edge.tensor in stage.outputs or stage.index == split.num_stages - 1
            assert edge.target > stage.index
        assert [e.tensor for e in split.receives(stage.index)] == list(
            stage.inputs[len(stage.model_inputs) :]
        )
    assert set(split.stages[-1].outputs) == set(graph.outputs)
