"""`hpcomm verify`: split training is the same training, and mistakes are noticed."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from hpcomm.verify.case import GRIDS, MICRO_BATCHES, MODELS

pytestmark = pytest.mark.tensorflow


def verify(*arguments, cwd, timeout=850):
    return subprocess.run(
        [sys.executable, "-m", "hpcomm", "verify", *map(str, arguments)],
        cwd=cwd,
        capture_output=True,
        text=True,
        timeout=timeout,
    )


@pytest.mark.slow
def test_verify_pairwise_cases_agree_with_one_process(tmp_path):
    done = verify("--pairwise", "--json", "out.json", "--state", "state.jsonl", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    document = json.loads((tmp_path / "out.json").read_text())
    assert document["passed"]
    cases = document["cases"]
    assert {case["model"] for case in cases} == set(MODELS)
    assert {(case["partitions"], case["replicas"]) for case in cases} == set(GRIDS)
    assert {case["micro_batches"] for case in cases} == set(MICRO_BATCHES)
    for case in cases:
        assert case["dtype"] == "float64"
        assert max(case["max_rel_error"].values()) <= 1e-9
    # Everything is in the state file: a second run computes nothing and says the same.
    again = verify("--pairwise", "--json", "-", "--state", "state.jsonl", "--quiet", cwd=tmp_path)
    assert again.returncode == 0
    assert json.loads(again.stdout)["cases"] == cases


def test_verify_fails_with_a_planted_fault(tmp_path):
    done = verify(
        "--model", "two-towers", "--strategy", "model", "--partitions", 2, "--micro-batches", 3,
        "--inject", "scale", "--json", "-", cwd=tmp_path,
    )  # fmt: skip
    assert done.returncode == 1, done.stderr
    document = json.loads(done.stdout)
    assert not document["passed"]
    assert document["max_rel_error"]["gradients"] > 1e-6
    assert "1 of 1 cases FAILED" in " ".join(done.stderr.split())


def test_verify_runs_dtypes_and_seeds_in_one_launch(tmp_path):
    """A float32 case behind a float64 one, and the other way round, are as if alone."""
    common = ("--strategy", "model", "--partitions", 2, "--micro-batches", 3, "--steps", 1)
    done = verify(
        *common, "--model", "tied,two-towers", "--dtype", "float64,float32", "--seed", "0,1",
        "--json", "-", "--state", "state.jsonl", cwd=tmp_path,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    cases = json.loads(done.stdout)["cases"]
    assert [(case["model"], case["dtype"], case["seed"]) for case in cases] == [
        (model, dtype, seed)
        for model in ("tied", "two-towers")
        for dtype in ("float64", "float32")
        for seed in (0, 1)
    ]
    for case in cases:
        furthest = max(case["max_rel_error"].values())
        if case["dtype"] == "float64":
            assert case["tolerance"] == 1e-9
            assert furthest < 1e-11
        else:
            # float32 in earnest: neither computed in float64 nor spoiled by anything of it.
            assert case["tolerance"] == 1e-3
            assert 1e-9 < furthest < 1e-3
    # One of them asked for alone: nothing is run again.
    again = verify(
        *common, "--model", "two-towers", "--dtype", "float32", "--seed", 1,
        "--json", "-", "--state", "state.jsonl", "--quiet", cwd=tmp_path, timeout=60,
    )  # fmt: skip
    assert again.returncode == 0, again.stderr
    row = json.loads(again.stdout)
    assert row.pop("environment")
    assert row.pop("command")
    assert row in cases


@pytest.mark.parametrize("partitions", [9, 40])
def test_more_partitions_than_layers_are_refused_before_ranks_start(tmp_path, partitions):
    done = verify(
        "--model", "tied,mlp", "--strategy", "model", "--partitions", partitions, cwd=tmp_path,
        timeout=120,
    )  # fmt: skip
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == (
        f"hpcomm: ModelError: --model {'mlp' if partitions == 9 else 'tied'}: {partitions} "
        f"partitions were asked for, but the model has only {6 if partitions == 9 else 20} layers "
        "(calls of layers, input layers not counted); use fewer partitions\n"
    )


def test_verify_refuses_a_fault_without_effect(tmp_path):
    done = verify(
        "--model", "tied", "--strategy", "data", "--micro-batches", 1, "--inject", "order",
        "--json", "-", cwd=tmp_path,
    )  # fmt: skip
    assert done.returncode == 1
    assert "had no effect" in done.stderr


def test_verify_runs_as_ranks_of_another_launcher(tmp_path):
    command = [
        sys.executable,
        "-m",
        "hpcomm",
        "run",
        "-n",
        "2",
        "--",
        sys.executable,
        "-m",
        "hpcomm",
    ]
    done = subprocess.run(
        [*command, "verify", "--model", "tied", "--strategy", "model", "--partitions", "2",
         "--micro-batches", "3", "--schedule", "gpipe,1f1b", "--json", "out.json"],
        cwd=tmp_path, capture_output=True, text=True, timeout=240,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    document = json.loads((tmp_path / "out.json").read_text())
    assert [case["schedule"] for case in document["cases"]] == ["gpipe", "1f1b"]
    assert document["passed"]
