from __future__ import annotations

import math
import sys

import numpy as np
import pytest

from hpcomm.errors import InternalError
from hpcomm.verify.case import Case
from hpcomm.verify.compare import Outcome, compare, relative_difference, worst
from hpcomm.verify.result import make_report, make_result

NAN, INF = math.nan, math.inf


@pytest.mark.parametrize(
    ("got", "want", "distance"),
    [
        ([1.0, 2.0], [1.0, 2.0], 0.0),
        ([1.0, 2.5], [1.0, 2.0], 0.25),
        ([-1.0], [1.0], 2.0),
        ([0.0, 0.0], [0.0, 0.0], 0.0),
        ([1e-300], [0.0], INF),
        ([], [], 0.0),
        ([1.0], [1.0, 1.0], INF),
        ([NAN], [1.0], INF),
        ([1.0], [NAN], INF),
        ([INF, 1.0], [1.0, 1.0], INF),
    ],
)
def test_relative_difference(got, want, distance):
    assert relative_difference(np.array(got), np.array(want)) == distance


def test_relative_difference_takes_integers_and_halves():
    assert relative_difference(np.array([3], np.int32), np.array([2], np.int64)) == 0.5
    assert relative_difference(np.array([3], np.float16), np.array([2], np.float16)) == 0.5


def test_worst_names_the_tensor_and_minds_missing_ones():
    one, two = np.ones(3), np.full(3, 2.0)
    assert worst({"a": one, "b": two}, {"a": one, "b": one}) == (1.0, "b")
    assert worst({"a": one}, {"a": one, "b": one}) == (INF, "b")
    assert worst({"a": one, "b": one}, {"a": one}) == (INF, "b")


def _outcome(**changes):
    values = {
        "losses": [1.0, 0.5],
        "outputs": {"y": np.ones(2)},
        "gradients": {"w": np.ones(2)},
        "weights": {"w": np.ones(2)},
    }
    return Outcome(**(values | changes))


@pytest.mark.parametrize(
    ("quantity", "change"),
    [
        ("loss", {"losses": [1.0, 0.75]}),
        ("loss", {"losses": [1.0]}),
        ("outputs", {"outputs": {"y": np.array([1.0, 1.5])}}),
        ("gradients", {"gradients": {"w": np.array([1.0, 1.5])}}),
        ("gradients", {"gradients": {}}),
        ("weights_after_steps", {"weights": {"w": np.array([1.0, 1.5])}}),
    ],
)
def test_compare_finds_the_quantity_that_differs(quantity, change):
    distances, where = compare(_outcome(**change), _outcome())
    assert distances.pop(quantity) >= 0.5
    assert where[quantity]
    assert set(distances.values()) == {0.0}


@pytest.mark.parametrize("missing", ["losses", "outputs", "gradients", "weights"])
def test_compare_refuses_an_empty_reference(missing):
    empty = _outcome(**{missing: type(getattr(_outcome(), missing))()})
    with pytest.raises(InternalError, match="no losses, outputs"):
        compare(_outcome(), empty)


def test_result_passes_within_the_tolerance_only():
    case = Case("tied", 2, 2, 3)
    good = dict.fromkeys(("loss", "outputs", "gradients", "weights_after_steps"), 1e-12)
    record = make_result(case, 1e-9, 1.234, distances=good, where={})
    assert record["passed"]
    assert record["strategy"] == "hybrid"
    assert record["max_rel_error"] == good
    for name in good:
        bad = make_result(case, 1e-9, 1.0, distances=good | {name: INF}, where={})
        assert not bad["passed"]
        assert bad["max_rel_error"][name] == sys.float_info.max
    failed = make_result(case, 1e-9, 1.0, error="refused")
    assert not failed["passed"]
    assert failed["error"] == "refused"


def test_report_has_one_record_or_a_verdict_over_all():
    records = [{"model": "a", "passed": True}, {"model": "b", "passed": False}]
    assert make_report(records[:1], {"mpi": "x"}) == {
        "model": "a",
        "passed": True,
        "environment": {"mpi": "x"},
    }
    assert make_report(records, {})["passed"] is False
    assert make_report(records[:1] * 2, {})["passed"] is True
    assert make_report([], {})["passed"] is False
