from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from typer.testing import CliRunner

import hpcomm.launch
from hpcomm.cli.verify import app
from hpcomm.cli.verify_job import STATE_VARIABLE, VerifyOptions, control
from hpcomm.verify.case import make_cases
from hpcomm.verify.result import make_result
from hpcomm.verify.state import StateFile, state_key

NEAR = dict.fromkeys(("loss", "outputs", "gradients", "weights_after_steps"), 1e-13)
FAR = NEAR | {"gradients": 0.5}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--dtype", "int8"], "must be one of float64, float32"),
        (["--inject", "typo"], "must be one of scale, skip, order"),
        (["--schedule", "zigzag"], "must be some of gpipe, 1f1b"),
        (["--micro-batches", "0"], "whole numbers from 1 on"),
        (["--partitions", "two"], "whole numbers from 1 on"),
        (["--strategy", "pipeline"], "--strategy pipeline: not known"),
        (["--strategy", "data", "--replicas", "1"], "nothing to verify"),
        (["--batch-size", "3"], "larger --batch-size"),
        (["--model", "nope"], "'nope' is not known"),
        (["-n", "2"], "the largest case needs 4 ranks"),
    ],
)
def test_wrong_usage_ends_with_two_before_anything_starts(arguments, message, monkeypatch):
    monkeypatch.setattr(hpcomm.launch, "relaunch_under", lambda *_, **__: pytest.fail("ran"))
    result = CliRunner().invoke(app, arguments)
    assert result.exit_code == 2
    shown = " ".join(result.output.replace("│", " ").split())
    assert message in shown


def test_list_shows_models_and_cases_and_runs_nothing(monkeypatch):
    monkeypatch.setattr(hpcomm.launch, "relaunch_under", lambda *_, **__: pytest.fail("ran"))
    result = CliRunner().invoke(app, ["--list", "--schedule", "gpipe,1f1b"])
    assert result.exit_code == 0
    assert "180 cases:" in result.output
    result = CliRunner().invoke(app, ["--list", "--pairwise", "--model", "tied,mlp"])
    assert "15 cases:" in result.output
    assert "tied, hybrid, 2 partitions × 2 replicas" in result.output


@pytest.fixture
def job(monkeypatch, tmp_path):
    """Stands for the ranks: ``job.script`` says per start which cases finish and how it ends."""

    class Job:
        def __init__(self):
            self.cases = make_cases(["tied"], [(2, 1)], [1, 3, 4], ["gpipe"])
            self.script = []
            self.starts = []
            self.json = tmp_path / "out.json"

        def relaunch(self, num_ranks, arguments, **options):

            self.starts.append((num_ranks, list(arguments), options))
            state = StateFile(Path(os.environ[STATE_VARIABLE]))
            state.open({"mpi": "x"})
            done = state.results()
            left = [case for case in self.cases if state_key(case.key, None) not in done]
            distances, ends = self.script.pop(0)
            for case, distance in zip(left, distances, strict=False):
                state.begin(state_key(case.key, None))
                if distance is not None:
                    result = make_result(case, 1e-9, 0.1, distances=distance, where={})
                    state.finish(state_key(case.key, None), result)
            return ends

        def control(self, **changes):
            values = {
                "cases": self.cases,
                "tolerance": 1e-9,
                "inject": None,
                "state": "",
                "json_file": str(self.json),
                "verbose": True,
            }
            return control(VerifyOptions(**(values | changes)), ["verify"], num_ranks=None, bind="")

    made = Job()
    monkeypatch.setattr(hpcomm.launch, "relaunch_under", made.relaunch)
    monkeypatch.delenv(STATE_VARIABLE, raising=False)
    yield made
    os.environ.pop(STATE_VARIABLE, None)


def test_all_cases_pass_in_one_job(job):
    job.script = [([NEAR, NEAR, NEAR], 0)]
    assert job.control()
    document = json.loads(job.json.read_text())
    assert document["passed"]
    assert [case["micro_batches"] for case in document["cases"]] == [1, 3, 4]
    assert document["environment"] == {"mpi": "x"}
    assert [start[0] for start in job.starts] == [2]


def test_one_difference_fails_the_whole(job, capsys):
    job.script = [([NEAR, FAR, NEAR], 0)]
    assert not job.control()
    document = json.loads(job.json.read_text())
    assert [case["passed"] for case in document["cases"]] == [True, False, True]
    assert "1 of 3 cases FAILED" in " ".join(capsys.readouterr().err.split())


def test_a_job_that_dies_costs_one_case_and_the_rest_goes_on(job):
    job.script = [([NEAR, None], 134), ([NEAR], 0)]
    assert not job.control()
    first, second, third = json.loads(job.json.read_text())["cases"]
    assert (first["passed"], second["passed"], third["passed"]) == (True, False, True)
    assert "exit code 134" in second["error"]
    assert len(job.starts) == 2


def test_a_job_that_never_begins_ends_the_command(job):
    job.script = [([], 1)]
    with pytest.raises(SystemExit) as caught:
        job.control()
    assert caught.value.code == 1
    assert not job.json.exists()


def test_interruption_is_not_a_failed_case(job, tmp_path):
    job.script = [([NEAR, None], 130)]
    state = tmp_path / "state.jsonl"
    with pytest.raises(SystemExit) as caught:
        job.control(state=str(state))
    assert caught.value.code == 130
    assert len(StateFile(state).results()) == 1
    job.script = [([NEAR, NEAR], 0)]
    assert job.control(state=str(state))
    assert job.control(state=str(state))  # all there: nothing is started
    assert len(job.starts) == 2


def test_single_case_is_a_flat_document_on_standard_output(job, capsys):
    job.cases = job.cases[:1]
    job.script = [([NEAR], 0)]
    assert job.control(json_file="-", verbose=False)
    document = json.loads(capsys.readouterr().out)
    assert document["passed"]
    assert document["max_rel_error"] == NEAR
    assert set(document) >= {"model", "framework", "strategy", "partitions", "replicas"}
    assert set(document) >= {"micro_batches", "spatial", "schedule"}
