"""Bad input ends a job with one clear message on every rank, soon, and leaves nothing behind."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import keras
import pytest
from support.jobs import Result, hpcomm_run, program, run

pytestmark = pytest.mark.tensorflow

# Every rank reports the error it got, and how long after the imports.
PROGRAM = """
import os, signal, sys, time
import keras
import hpcomm.hyparflow as hf

comm = hpcomm.init()
x = np.random.default_rng(0).normal(size=(32, 4)).astype("float32")
y = x.sum(1, keepdims=True)


def model(units=3, compiled=True, learning_rate=0.01):
    keras.utils.set_random_seed(0)
    hidden = [keras.layers.Dense(units, "tanh") for _ in range(3)]
    net = keras.Sequential([keras.Input((4,)), *hidden, keras.layers.Dense(1)])
    if compiled:
        net.compile(keras.optimizers.SGD(learning_rate), "mse")
    return net


def fit(net, **options):
    options = {"epochs": 3, "batch_size": 8, "verbose": 0, "strategy": "model"} | options
    return hf.fit(net, x, y, **options)


begin = time.monotonic()
try:
    CASE
except Exception as error:
    seconds = time.monotonic() - begin
    text = " ".join(str(error).split())
    line = f"RANK {comm.rank} {seconds:.2f} {type(error).__name__}: {text}\\n"
    os.write(1, line.encode())
    raise
"""

ONE_LAYER = """
    net = keras.Sequential([keras.Input((4,)), keras.layers.Dense(1)])
    net.compile("sgd", "mse")
    fit(net)
"""

SUBCLASSED = """
    class Net(keras.Model):
        def __init__(self):
            super().__init__()
            self.top = keras.layers.Dense(1)
        def call(self, inputs):
            return self.top(inputs)
    net = Net()
    net.compile("sgd", "mse")
    fit(net)
"""

KILLED = """
    if comm.rank == 1:
        from hpcomm.tensorflow.stage import KerasStage
        forward, calls = KerasStage.forward, []
        def dying(self, *arguments):
            calls.append(self)
            if len(calls) == 6:  # the second of four micro-batches of the second step
                os.kill(os.getpid(), signal.SIGKILL)
            return forward(self, *arguments)
        KerasStage.forward = dying
    fit(model(), micro_batches=4)
"""

FULL_DISK = """
    class Fill(keras.callbacks.Callback):
        def on_epoch_begin(self, epoch, logs=None):
            if epoch == 1:
                FILL
    callbacks = [Fill(), keras.callbacks.ModelCheckpoint(sys.argv[1] + "/m.keras")]
    fit(model(64), callbacks=callbacks)
"""

SHARDS_ON_FULL_DISK = """
    class Fill(keras.callbacks.Callback):
        def on_epoch_begin(self, epoch, logs=None):
            if epoch == 1:
                FILL
    policy = hf.CheckpointPolicy(sys.argv[1] + "/shards", sharded=True)
    fit(model(64), callbacks=[Fill()], checkpoint=policy)
"""

# name: (ranks, what the ranks do, class of the error, what its message says)
CASES = {
    "more partitions than layers": (
        2,
        ONE_LAYER,
        "ModelError|InvalidArgumentError",
        r"2 partitions.*1 layer",
    ),
    "layers per partition do not add up": (
        2,
        "fit(model(), lpp=[1, 7])",
        "ModelError|InvalidArgumentError",
        r"lpp.*8.*4",
    ),
    "ranks are not partitions times replicas": (
        2,
        "fit(model(), strategy='hybrid', num_partitions=3, num_replicas=1)",
        "InvalidArgumentError",
        r"3 partitions x 1 replicas need 3 ranks, but 2 were started",
    ),
    "subclassed model": (
        2,
        SUBCLASSED,
        "ModelError",
        r"subclassed .*Net.* cannot be "
        "split",
    ),
    "uncompiled model": (2, "fit(model(compiled=False))", "ModelError", r"is not compiled; call"),
    "batch smaller than micro-batches": (
        2,
        "fit(model(), batch_size=3, micro_batches=4)",
        "InvalidArgumentError",
        r"batch_size 3 .* for 4 micro-batches; use a batch_size of at least 4",
    ),
    "ranks pass different models": (
        2,
        "fit(model(units=3 + comm.rank))",
        "MismatchError",
        r"model",
    ),
    "loss is not a number": (
        2,
        "fit(model(learning_rate=1e30))",
        "NonFiniteLossError",
        r"the loss is (nan|inf) in epoch 1, step \d",
    ),
    # A survivor that does not wait for the dead rank itself hears of its death from the other.
    "a rank is killed in a step": (3, KILLED, "PeerDiedError", r"rank 1 of .* died"),
}


def run_case(case: str, ranks: int, tmp_path: Path, *arguments: str) -> Result:
    path = program(tmp_path / "bad", PROGRAM.replace("CASE", case.strip()))
    environment = {
        "PYTHONPATH": str(Path(__file__).resolve().parents[3]),
        "TF_CPP_MIN_LOG_LEVEL": "3",
    }
    return run(tmp_path, hpcomm_run(ranks, path, *arguments), environment, timeout_s=180)


def check_job(job: Result, ranks: set[int], kind: str, message: str) -> None:
    assert job.code != 0, job.output
    found = re.findall(r"^.*?RANK (\d+) ([\d.]+) (\w+): (.*)$", job.output, re.MULTILINE)
    assert {int(rank) for rank, *_ in found} == ranks, f"{job.output}\n{job.errors}"
    assert len(found) == len(ranks), f"a message twice\n{job.output}"
    for rank, seconds, name, text in found:
        assert re.fullmatch(kind, name), f"rank {rank}: {name}: {text}"
        assert re.search(message, text), f"rank {rank}: {name}: {text}"
        assert float(seconds) < 10, f"rank {rank} took {seconds} s"
    if "PeerDiedError" not in kind:
        assert len({text for *_, text in found}) == 1, found
    job.assert_nothing_is_left()


@pytest.mark.parametrize("name", CASES)
def test_bad_input_is_one_clear_message_on_every_rank(name: str, tmp_path: Path) -> None:
    ranks, case, kind, message = CASES[name]
    job = run_case(case, ranks, tmp_path)
    survivors = {0, 2} if "killed" in name else set(range(ranks))
    check_job(job, survivors, kind, message)


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of one megabyte; needs the right to mount."""
    folder = tmp_path / "disk"
    folder.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(folder)]
    if os.geteuid() != 0 or subprocess.run(command, check=False, capture_output=True).returncode:
        pytest.skip("mounting a small file system is not allowed here")
    yield folder
    subprocess.run(["umount", str(folder)], check=True)


FILL_DISK = "open(sys.argv[1] + '/ballast', 'wb', 0).write(bytes(1 << 20))"
LIMIT_FILES = (
    "import resource; resource.setrlimit(resource.RLIMIT_FSIZE, (1000, resource.RLIM_INFINITY))"
)


def check_full_disk(source: str, folder: Path, tmp_path: Path, name: str, error: str) -> None:
    job = run_case(source, 2, tmp_path, str(folder))
    check_job(job, {0, 1}, "CallbackError|HpcommError", error)
    saved = folder / name
    if saved.is_dir():
        checkpoints = sorted(entry.name for entry in saved.iterdir())
        assert checkpoints == ["checkpoint-00000004"]
    else:
        assert keras.models.load_model(saved).count_params() > 0
    left = {entry.name for entry in folder.iterdir()} - {"ballast"}
    assert left == {name}


def test_a_full_disk_leaves_the_old_checkpoint(small_disk: Path, tmp_path: Path) -> None:
    check_full_disk(
        FULL_DISK.replace("FILL", FILL_DISK),
        small_disk,
        tmp_path,
        "m.keras",
        r"callback ModelCheckpoint.on_epoch_end failed on rank 0: OSError: .*No space left",
    )


def test_a_full_disk_leaves_the_old_shards(small_disk: Path, tmp_path: Path) -> None:
    check_full_disk(
        SHARDS_ON_FULL_DISK.replace("FILL", FILL_DISK),
        small_disk,
        tmp_path,
        "shards",
        r"writing .* failed: .*[Nn]o space left.*an older checkpoint",
    )


def test_a_file_that_grows_too_large_leaves_the_old_checkpoint(tmp_path: Path) -> None:
    folder = tmp_path / "disk"
    folder.mkdir()
    check_full_disk(
        FULL_DISK.replace("FILL", LIMIT_FILES),
        folder,
        tmp_path,
        "m.keras",
        r"callback ModelCheckpoint.on_epoch_end failed on rank 0: OSError: .*File too large",
    )
