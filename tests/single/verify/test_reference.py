from __future__ import annotations

import ast
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from hpcomm.verify import reference
from hpcomm.verify.case import MODELS, Case
from hpcomm.verify.compare import Outcome, compare

pytestmark = pytest.mark.tensorflow

REFERENCE = Path(reference.__file__)


def test_reference_imports_nothing_of_this_project():
    imported = set()
    for node in ast.walk(ast.parse(REFERENCE.read_text())):
        if isinstance(node, ast.Import):
            imported |= {alias.name.split(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0
            imported.add(node.module.split(".")[0])
    assert imported <= {"__future__", "typing", "collections", "keras", "numpy", "tensorflow"}


@pytest.fixture(autouse=True)
def _keras_globals():
    keras = pytest.importorskip("keras")
    yield
    keras.config.set_floatx("float32")
    keras.config.set_dtype_policy("float32")


def _fit(case):
    """Train with Keras's own ``fit``, one micro-batch per step."""
    import keras

    from hpcomm.verify.problem import make_problem

    problem = make_problem(case)
    model = problem.model
    losses = []
    for x, y, weight in problem.batches:
        history = model.fit(
            problem.inputs_for_keras(x),
            problem.targets_for_keras(y),
            sample_weight=weight,
            batch_size=case.batch_size,
            shuffle=False,
            verbose=0,
        )
        losses.append(history.history["loss"][0])
    return losses, {v.path: keras.ops.convert_to_numpy(v) for v in model.variables}


@pytest.mark.parametrize("name", ["two-towers", "tied", "regularized"])
def test_reference_with_one_micro_batch_is_keras_fit(name):
    from hpcomm.verify.references import compute

    case = Case(name, 1, 1, 1)
    losses, weights = _fit(case)
    want = compute(case)
    assert np.allclose(want.losses, losses, rtol=1e-6)  # History keeps float32
    # fit ends with the moving average of the weights where the optimizer keeps one.
    averages = {
        path.removeprefix("average/"): array
        for path, array in want.weights.items()
        if path.startswith("average/")
    }
    assert set(weights) <= set(want.weights)
    for path, array in weights.items():
        expected = averages.get(path, want.weights[path])
        assert np.allclose(array, expected, rtol=1e-9, atol=1e-12), path


@pytest.mark.parametrize(("replicas", "pieces"), [(1, 3), (1, 4), (2, 1), (2, 3)])
def test_reference_does_not_depend_on_the_cut_without_batch_norm(replicas, pieces):
    from hpcomm.verify.references import compute

    whole = compute(Case("tied", 1, 1, 1))
    cut = compute(Case("tied", 1, replicas, pieces))
    distances, _ = compare(cut, whole)
    assert max(distances.values()) < 1e-12


def test_reference_averages_statistics_over_replicas():
    from hpcomm.verify.references import compute

    one = compute(Case("two-towers", 1, 1, 2, steps=1))
    two = compute(Case("two-towers", 1, 2, 1, steps=1))
    name = next(path for path in one.weights if path.endswith("moving_mean"))
    # One replica: a <- .99(.99·0 + .01 m1) + .01 m2; two replicas: mean of .01 m1 and .01 m2.
    assert not np.allclose(one.weights[name], two.weights[name], rtol=1e-6)
    scale = np.abs(two.weights[name]).max()
    assert np.allclose(one.weights[name] / 2, two.weights[name], atol=0.02 * scale)
    for path in one.gradients:
        assert np.allclose(one.gradients[path], two.gradients[path], rtol=1e-9, atol=1e-12)


def test_problem_is_the_same_every_time_and_resets():
    from hpcomm.verify.problem import make_problem

    case = Case("regularized", 2, 1, 1)
    one, other = make_problem(case), make_problem(case)
    for a, b in zip(one.start, other.start, strict=True):
        assert np.array_equal(a, b)
    assert np.array_equal(one.batches[1][0]["image"], other.batches[1][0]["image"])
    assert not np.array_equal(one.batches[0][0]["image"], one.batches[1][0]["image"])
    assert one.batches[0][2] is not None
    one.model.variables[0].assign(one.model.variables[0] + 1.0)
    one.reset()
    assert np.array_equal(one.model.variables[0].numpy(), one.start[0])


def test_problem_has_the_dtype_of_its_case_whatever_came_before():
    import keras

    from hpcomm.verify.problem import make_problem

    for dtype in ("float64", "float32", "float64"):
        problem = make_problem(Case("two-towers", 2, 1, 1, dtype=dtype))
        policies = {layer.dtype_policy.name for layer in problem.model.layers}
        assert policies <= {dtype, "int32"}
        assert {variable.dtype for variable in problem.model.trainable_variables} == {dtype}
        assert keras.config.dtype_policy().name == keras.config.floatx() == dtype
        assert problem.batches[0][0]["image"].dtype == dtype


def test_references_are_kept_and_found_again(tmp_path, monkeypatch):
    from hpcomm.verify import references

    case = Case("tied", 2, 1, 3, steps=1)
    first = references.reference(case, tmp_path)
    monkeypatch.setattr(references, "compute", lambda _: pytest.fail("computed twice"))
    again = references.reference(replace(case, partitions=4), tmp_path)
    assert isinstance(again, Outcome)
    distances, _ = compare(again, first)
    assert set(distances.values()) == {0.0}
    assert len(list(tmp_path.glob("*.npz"))) == 1
    with pytest.raises(pytest.fail.Exception, match="computed twice"):
        references.reference(replace(case, micro_batches=4), tmp_path)


@pytest.mark.parametrize("name", MODELS)
def test_no_gradient_of_a_verified_model_is_rounding_noise(name):
    """A tensor whose true gradient is zero has no meaningful relative difference."""
    from hpcomm.verify.references import compute

    outcome = compute(Case(name, 1, 1, 1, steps=1))
    for path, gradient in outcome.gradients.items():
        assert np.abs(gradient).max() > 1e-8, path
