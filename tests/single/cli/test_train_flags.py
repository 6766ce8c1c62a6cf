from __future__ import annotations

import json

import pytest
import typer
from typer.testing import CliRunner

import hpcomm.cli.layers
import hpcomm.launch
from hpcomm import choices
from hpcomm.cli.flags import Bind, numbers, words
from hpcomm.cli.layers import Question, is_worth_counting
from hpcomm.cli.train import app, choose_layout
from hpcomm.cli.train_options import TrainOptions, check
from hpcomm.cli.train_report import Report, show
from hpcomm.errors import InvalidArgumentError, ModelError
from hpcomm.hyparflow import arguments, schedule
from hpcomm.launch import cpus
from hpcomm.models.task import Recipe
from hpcomm.timeline import Summary


def options(**changes):
    values = {
        "model": "resnet20-v1",
        "framework": "keras",
        "dataset": "digits",
        "samples": 8,
        "strategy": "model",
        "partitions": 2,
        "replicas": 1,
        "micro_batches": 4,
        "schedule": "gpipe",
        "lpp": [],
        "batch_size": None,
        "epochs": None,
        "optimizer": "",
        "learning_rate": None,
        "decay": "",
        "image_size": None,
        "dtype": "float32",
        "seed": 0,
        "checkpoint": "",
        "resume": "",
        "save": "",
        "min_accuracy": None,
        "json_file": "",
        "plot": "",
        "trace": "",
        "verbose": True,
    }
    return TrainOptions(**(values | changes))


@pytest.mark.parametrize(
    ("flags", "want"),
    [
        ((None, None, None, None), ("model", 2, 1)),
        ((None, 3, None, None), ("model", 3, 1)),
        ((None, None, 3, None), ("data", 1, 3)),
        ((None, 1, 2, None), ("data", 1, 2)),
        ((None, 2, 2, None), ("hybrid", 2, 2)),
        ((None, None, None, 4), ("model", 4, 1)),
        (("data", None, None, None), ("data", 1, 2)),
        (("data", None, None, 5), ("data", 1, 5)),
        (("hybrid", None, None, None), ("hybrid", 2, 2)),
        (("hybrid", None, None, 6), ("hybrid", 3, 2)),
        (("hybrid", 3, None, 6), ("hybrid", 3, 2)),
        (("hybrid", None, 3, 6), ("hybrid", 2, 3)),
        (("model", 1, None, None), ("model", 1, 1)),
    ],
)
def test_layout_follows_the_flags(flags, want):
    assert choose_layout(*flags) == want


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (("model", None, 2, None), "strategy model has one replica, got 2"),
        (("data", 2, None, None), "strategy data has one partition, got 2"),
        (("model", 3, None, 4), "3 partitions × 1 replicas need 3 ranks, got 4"),
        (("hybrid", 2, 2, 5), "need 4 ranks, got 5"),
        (("hybrid", None, None, 5), "ranks, got 5"),
    ],
)
def test_layout_refuses_contradictions(flags, message):
    with pytest.raises(typer.BadParameter, match=message):
        choose_layout(*flags)


def test_lists_are_split_at_commas():
    assert words(" a, b ,,c") == ["a", "b", "c"]
    assert numbers("1, 20", "-x") == [1, 20]
    assert numbers("", "-x") == []
    for text in ("0", "1,-2", "a", "1.5"):
        with pytest.raises(typer.BadParameter, match="whole numbers from 1 on"):
            numbers(text, "-x")


def test_checks_accept_what_is_right(tmp_path):
    (tmp_path / "data.npz").write_bytes(b"")
    for good in (
        options(),
        options(lpp=[30, 41]),
        options(model="resnet56-v1", dataset="synthetic:32x32x3", optimizer="adamw"),
        options(model="mine:build", dataset=str(tmp_path / "data.npz")),
        options(resume=str(tmp_path), checkpoint=str(tmp_path)),
        options(plot=str(tmp_path / "a.png"), json_file="-", save=str(tmp_path / "a.keras")),
    ):
        check(good)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"model": "nope"}, "model 'nope' is not known"),
        ({"model": "resnet21-v1"}, "depth must be 6n\\+2"),
        ({"model": "tied", "image_size": 8}, "takes no image"),
        ({"optimizer": "lion"}, "--optimizer lion: known are sgd"),
        ({"model": "mine:build", "optimizer": "sgd"}, "--optimizer sgd: .* compiles its model"),
        ({"model": "mine:build", "decay": "cosine"}, "--decay cosine: .* compiles its model"),
        ({"lpp": [1, 2, 3]}, "--lpp 1,2,3: 3 numbers given for 2 partitions"),
        ({"dataset": "mnist"}, "--dataset mnist: use digits"),
        ({"dataset": "absent.npz"}, "--dataset absent.npz: there is no such file"),
        ({"resume": "absent"}, "--resume absent: there is no such folder"),
        ({"resume": "a", "checkpoint": "b"}, "--checkpoint names another folder"),
        ({"save": "model.h5"}, "must end in .keras"),
        ({"plot": "run.gif"}, "must end in one of .png"),
        ({"trace": "absent/trace.json"}, "--trace absent/trace.json: there is no such folder"),
        ({"json_file": "absent/x.json"}, "--json absent/x.json"),
    ],
)
def test_checks_refuse_what_is_wrong(changes, message):
    with pytest.raises(InvalidArgumentError, match=message):
        check(options(**changes))


def test_options_and_recipe_fill_each_others_gaps():
    recipe = Recipe(optimizer="adam", learning_rate=0.5, batch_size=64, epochs=7)
    full, mixed = options().with_recipe(recipe)
    assert (full.batch_size, full.epochs) == (64, 7)
    assert mixed == recipe
    full, mixed = options(optimizer="sgd", learning_rate=0.0, epochs=2).with_recipe(recipe)
    assert (full.batch_size, full.epochs) == (64, 2)
    assert (mixed.optimizer, mixed.learning_rate) == ("sgd", 0.0)
    assert options(partitions=3, replicas=2).world_size == 6


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--dtype", "int8"], "must be one of float32"),
        (["--dtype", "float64", "--mixed-precision"], "contradicts --dtype float64"),
        (["--decay", "step"], "must be cosine or constant"),
        (["--lpp", "1,x"], "whole numbers"),
        (["--partitions", "0"], "greater than or equal to 1"),
        (["--strategy", "spatial"], "spatial"),
        (["--nonsense"], "No such option"),
        (["--model", "nope"], "'nope' is not known"),
        (["--model", "tied", "--image-size", "8"], "takes no image"),
        (["--dataset", "absent.npz"], "there is no such file"),
        (["--resume", "absent"], "there is no such folder"),
        (["--optimizer", "lion"], "known are sgd"),
        (["--lpp", "1,2,3"], "3 numbers given for 2 partitions"),
        (["--plot", "run.gif"], "must end in one of .png"),
        (["-n", "3", "--partitions", "2"], "need 2 ranks, got 3"),
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


def test_list_shows_the_models():
    result = CliRunner().invoke(app, ["--list"])
    assert result.exit_code == 0
    assert "resnet1001-v2" in result.output
    assert "two-towers" in result.output


def _report(epochs):
    summary = Summary(5, 0.1, 0.12, 0.111, 0.115, 3.0, 0.5, 0.25, 0.4)
    return Report(options(), epochs, summary, [7 << 20, 9 << 20], [{"partition": 0}], 12.5, {})


def test_report_has_the_contracted_keys_and_no_others_values(capsys):
    report = _report([{"loss": 0.5, "accuracy": 0.8, "val_accuracy": 0.9, "seconds": 2.0}])
    document = json.loads(json.dumps(report.document()))
    assert document["epochs"][0]["val_accuracy"] == 0.9
    assert document["bubble_fraction"] == 0.12
    assert document["comm_seconds"] == 0.5
    assert document["exposed_comm_seconds"] == 0.25
    assert document["peak_rss_bytes"] == 9 << 20
    assert document["world_size"] == 2
    assert document["stages"] == [{"partition": 0}]
    show(report)
    shown = " ".join(capsys.readouterr().err.split())
    assert "measured 0.120; expected 0.115 = 0.111 (p-1)/(m+p-1) + 0.004 imbalance" in shown
    assert "by rank: 7, 9 MiB" in shown
    assert "validation accuracy 0.9000" in shown


def test_report_finds_accuracy_of_named_outputs():
    row = {"loss": 1.0, "classes_accuracy": 0.7, "val_classes_accuracy": 0.6}
    (found,) = _report([row]).epoch_rows()
    assert (found["accuracy"], found["val_accuracy"]) == (0.7, 0.6)
    (bare,) = _report([{"loss": 1.0, "val_loss": 2.0}]).epoch_rows()
    assert "accuracy" not in bare
    assert "val_accuracy" not in bare


@pytest.mark.parametrize(
    ("changes", "num_cpus", "want"),
    [
        ({"model": "mlp", "partitions": 8}, 64, False),
        ({"model": "mlp", "partitions": 9}, 64, True),
        ({"model": "mlp", "partitions": 4}, 2, False),
        ({"model": "mlp", "partitions": 5}, 2, True),
        ({"model": "mine:build", "partitions": 40}, 64, True),
        ({"model": "resnet110-v1", "partitions": 110}, 2, False),
        ({"model": "resnet110-v1", "partitions": 111}, 2, True),
    ],
)
def test_layers_are_counted_only_for_many_partitions(changes, num_cpus, want):
    assert is_worth_counting(Question(**changes), num_cpus) is want


def test_too_many_partitions_start_nothing(monkeypatch):
    def refuse(chosen):
        raise ModelError(f"{chosen.partitions} partitions were asked for")

    monkeypatch.setattr(hpcomm.cli.layers, "check_partitions", refuse)
    monkeypatch.setattr(hpcomm.launch, "relaunch_under", lambda *_, **__: pytest.fail("ran"))
    result = CliRunner().invoke(app, ["--model", "mlp", "--partitions", "40"])
    assert isinstance(result.exception, ModelError)


def test_names_that_users_choose_from_have_one_meaning():
    assert tuple(Bind) == cpus.POLICIES
    assert tuple(schedule.SCHEDULES) == choices.SCHEDULES
    assert arguments.STRATEGIES is choices.STRATEGIES
