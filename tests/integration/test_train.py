"""`hpcomm train` from the command line to its report."""

from __future__ import annotations

import json
import subprocess
import sys

import numpy as np
import pytest

pytestmark = pytest.mark.tensorflow

OWN_MODEL = """
import keras

def build(image_size=8):
    image = keras.Input((image_size, image_size, 3), name="image")
    x = keras.layers.Flatten()(image)
    print("said while building")
    for _ in range(3):
        x = keras.layers.Dense(16, activation="relu")(x)
    model = keras.Model(image, keras.layers.Dense(3)(x))
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile("sgd", loss, metrics=["accuracy"])
    return model

def counted():
    with open("builds", "a") as file:
        file.write("built\\n")
    print("said by the user's function")
    return build()

def uncompiled():
    image = keras.Input((8,))
    return keras.Model(image, keras.layers.Dense(3)(image))
"""


def train(*arguments, cwd, timeout=240):
    return subprocess.run(
        [sys.executable, "-m", "hpcomm", "train", *map(str, arguments)],
        cwd=cwd,
        capture_output=True,
        text=True,
        timeout=timeout,
    )


def test_train_writes_report_trace_and_picture(tmp_path):
    done = train(
        "--model", "mlp", "--image-size", 8, "--epochs", 3, "--partitions", 2, "--micro-batches", 4,
        "--json", "run.json", "--trace", "trace.json", "--plot", "run.png", "--save", "mlp.keras",
        "--min-accuracy", 0.85, cwd=tmp_path,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    report = json.loads((tmp_path / "run.json").read_text())
    assert report["framework"] == "keras"
    assert report["model"] == "mlp"
    assert (report["strategy"], report["world_size"]) == ("model", 2)
    assert len(report["epochs"]) == 3
    for epoch in report["epochs"]:
        assert set(epoch) >= {"loss", "accuracy", "val_accuracy", "seconds", "samples_per_s"}
    assert report["epochs"][-1]["val_accuracy"] >= 0.85
    assert 0 < report["bubble_fraction"] < 1
    assert report["ideal_bubble"] == pytest.approx(1 / 5)
    assert 0 <= report["exposed_comm_seconds"] <= report["comm_seconds"]
    assert report["peak_rss_bytes"] == max(report["peak_rss_bytes_by_rank"]) > 1 << 20
    assert len(report["peak_rss_bytes_by_rank"]) == 2
    assert report["environment"]["keras"]

    events = json.loads((tmp_path / "trace.json").read_text())["traceEvents"]
    assert {event["pid"] for event in events} == {0, 1}
    kinds = {event["cat"] for event in events if event["ph"] == "X"}
    assert kinds >= {"compute", "send", "receive", "idle", "update"}
    assert (tmp_path / "run.png").read_bytes().startswith(b"\x89PNG")
    assert "bubble: measured" in " ".join(done.stderr.split())
    assert "epoch 3/3" in done.stderr

    import keras

    from hpcomm import datasets
    from hpcomm.models import registry

    model = keras.models.load_model(tmp_path / "mlp.keras")
    entry = registry.get("mlp")
    data = datasets.digits(entry.task(entry.options(image_size=8)))
    inputs, targets = data.validation
    logits = model.predict(inputs["image"], verbose=0)
    accuracy = np.mean(np.argmax(logits, axis=1) == targets["classes"])
    assert accuracy == pytest.approx(report["epochs"][-1]["val_accuracy"], abs=1e-6)


def test_train_resumes_with_another_split(tmp_path):
    common = ["--model", "mlp", "--image-size", 8, "--batch-size", 64, "--decay", "constant"]
    first = train(
        *common, "--epochs", 1, "--strategy", "data", "--replicas", 2, "--checkpoint", "saved",
        cwd=tmp_path,
    )  # fmt: skip
    assert first.returncode == 0, first.stderr
    second = train(
        *common, "--epochs", 2, "--partitions", 2, "--resume", "saved", "--json", "-",
        cwd=tmp_path,
    )  # fmt: skip
    assert second.returncode == 0, second.stderr
    report = json.loads(second.stdout)
    assert report["strategy"] == "model"
    assert len(report["epochs"]) == 1
    whole = train(*common, "--epochs", 2, "--partitions", 2, "--json", "-", cwd=tmp_path)
    assert whole.returncode == 0, whole.stderr
    want = json.loads(whole.stdout)["epochs"][1]
    assert report["epochs"][0]["loss"] == pytest.approx(want["loss"], rel=1e-3)


def test_train_takes_the_users_model_and_data(tmp_path):
    (tmp_path / "mine.py").write_text(OWN_MODEL)
    rng = np.random.default_rng(0)
    x = rng.normal(size=(60, 8, 8, 3)).astype("float32")
    np.savez(tmp_path / "data.npz", x=x, y=np.argmax(x[:, 0, 0], axis=1))
    done = train(
        "--model", "mine:build", "--dataset", "data.npz", "--epochs", 2, "--lpp", "2,3",
        "--learning-rate", 0.1, "--mixed-precision", "--json", "-", "--quiet",
        cwd=tmp_path,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)  # alone there, whatever the user's function prints
    assert "said while building" in done.stderr
    assert report["dtype"] == "mixed_bfloat16"
    assert report["epochs"][1]["loss"] < report["epochs"][0]["loss"] * 1.5
    assert "epoch" not in done.stderr

    refused = train("--model", "mine:uncompiled", "--dataset", "synthetic", cwd=tmp_path)
    assert refused.returncode == 1
    assert "is not compiled" in refused.stderr


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["--model", "mlp", "--partitions", 7], 1, "7 partitions"),
        (["--model", "mlp", "--lpp", "1,1"], 1, "add up"),
        (["--model", "nope"], 2, "is not known"),
        (["--strategy", "data", "--partitions", 2], 2, "one partition"),
        (
            ["--model", "mlp", "--image-size", 8, "--epochs", 1, "--min-accuracy", 1.0],
            1,
            "asks for",
        ),
    ],
    ids=["partitions", "lpp", "model", "strategy", "accuracy"],
)
def test_train_fails_with_one_message(tmp_path, arguments, code, message):
    done = train(*arguments, cwd=tmp_path)
    assert done.returncode == code, done.stderr
    assert message in " ".join(done.stderr.split())
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("model", ["mlp", "mine:counted", "mine:missing"])
def test_more_partitions_than_layers_are_refused_before_ranks_start(tmp_path, model):
    (tmp_path / "mine.py").write_text(OWN_MODEL)
    done = train("--model", model, "--partitions", 40, "--json", "-", cwd=tmp_path)
    layers = {"mlp": 6, "mine:counted": 5}.get(model)
    why = (
        f"40 partitions were asked for, but the model has only {layers} layers (calls of layers, "
        "input layers not counted); use fewer partitions"
        if layers
        else "--model mine:missing: module 'mine' has no function 'missing'"
    )
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == f"hpcomm: ModelError: {why}\n"
    if model == "mine:counted":
        assert (tmp_path / "builds").read_text() == "built\n"
