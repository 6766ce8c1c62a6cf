from __future__ import annotations

import json
import os
import signal
from pathlib import Path
from typing import ClassVar

import pytest
from typer.testing import CliRunner

import hpcomm.cli.layers
import hpcomm.launch
import hpcomm.launch.job
import hpcomm.verify.state
from hpcomm.cli.verify import app
from hpcomm.cli.verify_job import STATE_VARIABLE, VerifyOptions, control
from hpcomm.environment import sources
from hpcomm.errors import HpcommError
from hpcomm.verify.case import make_cases
from hpcomm.verify.result import make_result
from hpcomm.verify.state import StateFile, state_key

NEAR = dict.fromkeys(("loss", "outputs", "gradients", "weights_after_steps"), 1e-13)
FAR = NEAR | {"gradients": 0.5}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--dtype", "int8"], "must be some of float64, float32"),
        (["--dtype", "float64,int8"], "must be some of float64, float32"),
        (["--seed", "-1"], "whole numbers from 0 on"),
        (["--batch-size", "10,x"], "whole numbers from 1 on"),
        (["--steps", "0"], "whole numbers from 1 on"),
        (["--image-size", ","], "whole numbers from 1 on"),
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


def test_another_number_of_ranks_than_the_launchers_is_refused(monkeypatch):
    monkeypatch.setenv("HPCOMM_RANK", "0")
    monkeypatch.setenv("HPCOMM_SIZE", "2")
    result = CliRunner().invoke(app, ["--model", "mlp", "-n", "4"])
    assert result.exit_code == 2
    shown = " ".join(result.output.replace("│", " ").split())
    assert "one of 2 ranks that a launcher has started, got 4; leave -n out" in shown


@pytest.mark.parametrize("name", ["nope", "mine:build"])
def test_models_of_the_users_are_not_offered(name):
    result = CliRunner().invoke(app, ["--model", name])
    assert result.exit_code == 2
    shown = " ".join(result.output.replace("│", " ").split())
    assert "package.module:function" not in shown
    assert ("only models of the registry can be verified" in shown) == (":" in name)


def test_list_shows_models_and_cases_and_runs_nothing(monkeypatch):
    monkeypatch.setattr(hpcomm.launch, "relaunch_under", lambda *_, **__: pytest.fail("ran"))
    result = CliRunner().invoke(app, ["--list", "--schedule", "gpipe,1f1b"])
    assert result.exit_code == 0
    assert "180 cases:" in result.output
    result = CliRunner().invoke(app, ["--list", "--pairwise", "--model", "tied,mlp"])
    assert "15 cases:" in result.output
    assert "tied, hybrid, 2 partitions × 2 replicas" in result.output


def test_every_flag_that_describes_a_case_takes_a_list():
    two_of_each = [
        "--model", "vgg16,mlp", "--strategy", "model,hybrid", "--partitions", "2,3",
        "--replicas", "2,3", "--micro-batches", "1,2", "--schedule", "gpipe,1f1b",
        "--dtype", "float64,float32", "--batch-size", "10,12", "--steps", "1,2",
        "--image-size", "8,16", "--seed", "0,1",
    ]  # fmt: skip
    result = CliRunner().invoke(app, ["--list", *two_of_each])
    assert result.exit_code == 0, result.output
    grids = 2 + 2 * 2
    assert f"{2 * grids * 2**7} cases:" in result.output
    settings = "dtype float32, image size 16, batch size 12, steps 1, seed 1"
    assert settings in " ".join(result.output.split())


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
    assert document["environment"] == {"mpi": "x", "sources": sources()}
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


def test_a_start_that_fails_does_not_blame_the_case_of_an_interrupted_run(job, tmp_path):
    state = tmp_path / "state.jsonl"
    job.script = [([NEAR, None], 130), ([], 1)]
    for code in (130, 1):
        with pytest.raises(SystemExit) as caught:
            job.control(state=str(state))
        assert caught.value.code == code
    assert len(StateFile(state).results()) == 1


class Ranks:
    """Stands for a job that begins a case and ends with a code, told to by a signal or not."""

    asked = 0
    code = 0
    cases: ClassVar[list] = []

    def __init__(self, options):
        del options

    def run(self):
        state = StateFile(Path(os.environ[STATE_VARIABLE]))
        state.open({"mpi": "x"})
        done = state.results()
        keys = [state_key(case.key, None) for case in self.cases]
        state.begin(next(key for key in keys if key not in done))
        return self.code


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
@pytest.mark.parametrize("to", ["launcher", "rank"])
def test_signals_to_the_launcher_interrupt_and_those_to_a_rank_fail_its_case(
    monkeypatch, tmp_path, number, to
):
    cases = make_cases(["tied"], [(2, 1)], [1, 3], ["gpipe"])
    state = StateFile(tmp_path / "state.jsonl")
    for name, value in {
        "code": 128 + number, "asked": number if to == "launcher" else 0, "cases": cases
    }.items():  # fmt: skip
        monkeypatch.setattr(Ranks, name, value)
    monkeypatch.setattr(hpcomm.launch.job, "Job", Ranks)
    monkeypatch.setattr(hpcomm.launch, "under_launcher", lambda: False)
    monkeypatch.setenv(STATE_VARIABLE, "")
    options = VerifyOptions(cases, None, None, str(state.path), "", verbose=False)
    if to == "launcher" or number == signal.SIGINT:
        with pytest.raises(SystemExit) as caught:
            control(options, ["verify"], num_ranks=None, bind="")
        assert caught.value.code == 128 + number
        assert state.results() == {}
    else:
        assert not control(options, ["verify"], num_ranks=None, bind="")
        assert len(state.results()) == 2


def test_partitions_that_a_model_has_no_layers_for_start_nothing(job, monkeypatch):
    asked = []
    monkeypatch.setattr(hpcomm.cli.layers, "check_partitions", lambda *all_: asked.extend(all_))
    job.cases = make_cases(["tied", "mlp"], [(2, 1), (7, 1), (3, 2)], [1, 3], ["gpipe"])
    job.script = [([NEAR] * len(job.cases), 0)]
    assert job.control()
    assert [(one.model, one.partitions, one.dropout) for one in asked] == [
        ("tied", 7, 0.0),
        ("mlp", 7, 0.0),
    ]


def test_single_case_is_a_flat_document_on_standard_output(job, capsys):
    job.cases = job.cases[:1]
    job.script = [([NEAR], 0)]
    assert job.control(json_file="-", verbose=False)
    document = json.loads(capsys.readouterr().out)
    assert document["passed"]
    assert document["max_rel_error"] == NEAR
    assert set(document) >= {"model", "framework", "strategy", "partitions", "replicas"}
    assert set(document) >= {"micro_batches", "spatial", "schedule"}


def test_rows_and_table_tell_cases_of_different_settings_apart(job, capsys):
    job.cases = make_cases(
        ["vgg16"], [(2, 1)], [1], ["gpipe"], dtypes=["float64", "float32"], seeds=[0, 1]
    )
    nearly = dict.fromkeys(NEAR, 1e-5)
    job.script = [([NEAR, nearly, nearly, NEAR], 0)]
    assert not job.control(tolerance=None)
    rows = json.loads(job.json.read_text())["cases"]
    assert [(row["dtype"], row["seed"], row["tolerance"], row["passed"]) for row in rows] == [
        ("float64", 0, 1e-9, True),
        ("float64", 1, 1e-9, False),
        ("float32", 0, 1e-3, True),
        ("float32", 1, 1e-3, True),
    ]
    assert {(row["image_size"], row["batch_size"], row["steps"]) for row in rows} == {(8, 10, 2)}
    header = capsys.readouterr().err.split("verdict")[0]
    assert "dtype" in header
    assert "seed" in header
    assert "steps" not in header


def test_results_of_other_sources_are_computed_anew(job, tmp_path, monkeypatch, capsys):
    state = tmp_path / "state.jsonl"
    job.script = [([FAR, None], 130), ([NEAR, NEAR, NEAR], 0), ([NEAR, NEAR], 0)]
    with pytest.raises(SystemExit):
        job.control(state=str(state), verbose=False)
    assert capsys.readouterr().err == ""
    monkeypatch.setattr(hpcomm.verify.state, "sources", lambda: "mended")
    assert job.control(state=str(state), verbose=False)
    said = f"verify: {state} has results of other sources of hpcomm for 1 of the cases"
    assert capsys.readouterr().err == f"{said}, which run again\n"
    assert json.loads(job.json.read_text())["environment"]["sources"] == "mended"
    assert job.control(state=str(state), verbose=False)  # resumed under the same sources
    assert len(job.starts) == 2
    monkeypatch.undo()


def test_sources_that_change_under_way_end_the_command(job):
    job.script = [([], 0)]
    with pytest.raises(HpcommError, match="sources of hpcomm changed"):
        job.control()


def test_a_record_with_fewer_fields_is_used_and_judged_anew(job, tmp_path):
    state = StateFile(tmp_path / "state.jsonl")
    state.open({"mpi": "x"})
    (case,) = job.cases = make_cases(["vgg16"], [(2, 1)], [3], ["gpipe"])
    assert case.key == (
        "model=vgg16/partitions=2/replicas=1/micro_batches=3/framework=keras/schedule=gpipe/"
        "dtype=float64/batch_size=10/steps=2/image_size=8/seed=0"
    )
    old = make_result(case, 1.0, 0.1, distances=FAR, where={})
    del old["seed"], old["image_size"]
    state.finish(state_key(case.key, None), old)
    assert old["passed"]
    assert not job.control(state=str(state.path))
    assert job.starts == []
    row = json.loads(job.json.read_text())
    assert (row["seed"], row["image_size"], row["tolerance"]) == (0, 8, 1e-9)
    assert job.control(state=str(state.path), tolerance=1.0)
