from __future__ import annotations

import numpy as np
import pytest

from hpcomm import datasets
from hpcomm.models import registry

pytestmark = pytest.mark.tensorflow

SMALL = ["mlp", "resnet20-v1", "resnet29-v2", "vgg16", "two-towers", "tied", "regularized"]


@pytest.fixture(scope="module")
def keras():
    return pytest.importorskip("keras")


def _built(name, **choices):
    entry = registry.get(name)
    options = entry.options(**choices)
    return entry, options, entry.build(options)


@pytest.mark.parametrize(
    ("name", "parameters"),
    [
        # He et al. 2016 table 6: 0.27 M, 0.85 M, 1.7 M
        ("resnet20-v1", 0.27e6),
        ("resnet56-v1", 0.85e6),
        ("resnet110-v1", 1.7e6),
        ("vgg16", 15.2e6),
    ],
)
def test_parameters_are_the_published_ones(keras, name, parameters):
    _, _, model = _built(name)
    assert model.count_params() == pytest.approx(parameters, rel=0.03)


def test_resnet1001_has_the_papers_thirty_million_parameters(keras):
    # Parameters are linear in n for depth 9n+2, so two small networks tell those of the large one.
    small, large = (_built(f"resnet{9 * n + 2}-v2")[2].count_params() for n in (1, 2))
    assert small + 110 * (large - small) == pytest.approx(30e6, rel=0.03)


@pytest.mark.parametrize("name", SMALL)
def test_models_have_the_layers_that_the_registry_promises(keras, name):
    from hpcomm.tensorflow.graph import extract_graph

    entry, _, model = _built(name)
    assert len(extract_graph(model).calls) >= entry.least_layers


@pytest.mark.parametrize("name", SMALL)
def test_model_trains_on_its_own_task_in_plain_keras(keras, name):
    keras.utils.set_random_seed(0)
    entry, options, model = _built(name)
    if entry.image_size:
        entry, options, model = _built(name, image_size=8)
    assert isinstance(model, keras.Model)
    assert not model.compiled
    entry.compile(model, options)
    task = entry.task(options)
    assert [layer.name for layer in model.layers if isinstance(layer, keras.layers.InputLayer)] == [
        spec.name for spec in task.inputs
    ]
    assert {name.split(".")[0] for name in model.output_names} == {o.name for o in task.outputs}
    data = datasets.synthetic(task, samples=16, sample_weighted=entry.recipe.sample_weighted)
    x = data.inputs if len(data.inputs) > 1 else next(iter(data.inputs.values()))
    y = data.targets if len(data.targets) > 1 else next(iter(data.targets.values()))
    weight = data.sample_weight
    before = [keras.ops.convert_to_numpy(v) for v in model.trainable_variables]
    history = model.fit(x, y, sample_weight=weight, batch_size=8, epochs=1, verbose=0)
    assert np.isfinite(history.history["loss"]).all()
    changed = [
        not np.array_equal(a, keras.ops.convert_to_numpy(v))
        for a, v in zip(before, model.trainable_variables, strict=True)
    ]
    assert np.mean(changed) > 0.95


def test_layers_have_unique_speaking_names(keras):
    for name in SMALL:
        _, _, model = _built(name)
        names = [layer.name for layer in model.layers]
        assert len(set(names)) == len(names)


def test_two_towers_has_long_skips_and_an_integer_tensor(keras):
    _, _, model = _built("two-towers")
    order = {operation.name: i for i, operation in enumerate(model.operations)}
    spans, integers = [], 0
    for operation in model.operations:
        for node in operation._inbound_nodes:
            for tensor in node.input_tensors:
                source = tensor._keras_history.operation
                spans.append(order[operation.name] - order[source.name])
                is_input = isinstance(source, keras.layers.InputLayer)
                integers += keras.backend.is_int_dtype(tensor.dtype) and not is_input
    assert len(model.inputs) == len(model.outputs) == 2
    # Longer than three of four equal stages.
    assert max(spans) > 0.5 * len(order)
    assert integers == 1


def test_tied_uses_weights_far_apart(keras):
    _, _, model = _built("tied")
    calls = {layer.name: len(layer._inbound_nodes) for layer in model.layers}
    assert calls["table"] == 2
    assert calls["shared"] == 4
    assert len(model.trainable_variables) == len({v.path for v in model.trainable_variables})


def test_regularized_carries_what_it_promises(keras):
    entry, options, model = _built("regularized", image_size=8)
    entry.compile(model, options)
    assert len(model.losses) == 9
    assert not model.get_layer("frozen").trainable
    assert model.optimizer.global_clipnorm == 0.1
    assert model.optimizer.use_ema
    assert model.optimizer.weight_decay


@pytest.mark.parametrize("name", SMALL)
def test_dtype_policy_reaches_every_layer_but_not_the_logits(keras, name):
    _, _, model = _built(name, dtype="mixed_bfloat16")
    assert all(keras.backend.standardize_dtype(t.dtype) == "float32" for t in model.outputs)
    _, _, model = _built(name, dtype="float64")
    assert all(v.dtype == "float64" for v in model.trainable_variables)
    assert all(keras.backend.standardize_dtype(t.dtype) == "float64" for t in model.outputs)


def test_dropout_can_be_set_and_left_out(keras):
    for rate, want in ((None, 2), (0.0, 0), (0.2, 2)):
        _, _, model = _built("vgg16", dropout=rate)
        found = [layer for layer in model.layers if isinstance(layer, keras.layers.Dropout)]
        assert len(found) == want
        if rate:
            assert all(layer.rate == rate for layer in found)


@pytest.mark.parametrize("optimizer", ["sgd", "adam", "adamw", "rmsprop"])
def test_recipe_makes_every_optimizer(keras, optimizer):
    from hpcomm.models.keras.recipe import make_optimizer
    from hpcomm.models.task import Recipe

    made = make_optimizer(Recipe(optimizer=optimizer, learning_rate=0.5, clipnorm=2.0))
    assert type(made).__name__.lower() == optimizer
    assert float(made.learning_rate) == pytest.approx(0.5)
    assert made.clipnorm == 2.0


def test_recipe_decays_to_zero_over_the_training(keras):
    from hpcomm.errors import InvalidArgumentError
    from hpcomm.models.keras.recipe import make_optimizer
    from hpcomm.models.task import Recipe

    schedule = make_optimizer(Recipe(learning_rate=0.5), total_steps=100)._learning_rate
    rates = [float(schedule(step)) for step in (0, 10, 55, 100)]
    assert rates[0] == pytest.approx(0.05)
    assert rates[1] == pytest.approx(0.5)
    assert 0.2 < rates[2] < 0.3
    assert rates[3] == pytest.approx(0.0, abs=1e-6)
    with pytest.raises(InvalidArgumentError, match="'lion' is not known"):
        make_optimizer(Recipe(optimizer="lion"))
    with pytest.raises(InvalidArgumentError, match="decay 'steps' is not known"):
        make_optimizer(Recipe(decay="steps"), total_steps=3)
