from __future__ import annotations

import json
import zipfile
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from support.thread_ranks import ThreadCommunicator, run_ranks

from hpcomm.errors import HpcommError, InvalidArgumentError
from hpcomm.hyparflow.checkpoint import (
    CheckpointPolicy,
    add_state,
    find_checkpoint,
    list_checkpoints,
    read_state,
)
from hpcomm.hyparflow.sharded import INDEX_NAME, load_shards, read_index, save_shards
from hpcomm.hyparflow.training_state import TrainingState

SUFFIXES = (".keras", ".weights.h5")


def state() -> TrainingState:
    third = np.float64(1) / 3
    return TrainingState(
        epoch=3,
        in_epoch=True,
        seed=7,
        cursor={"passes": 1, "position": 2, "taken": 2},
        extra={"seed": 5, "step": 9},
        metrics=[np.asarray(third), np.asarray([1, 2], "int64"), np.asarray([[third]], "float32")],
    )


def test_a_training_state_survives_json_exactly() -> None:
    again = TrainingState.from_json(json.loads(json.dumps(state().to_json())))
    assert again.metrics is not None
    for left, right in zip(again.metrics, state().metrics or [], strict=True):
        assert left.dtype == right.dtype
        assert left.shape == right.shape
        np.testing.assert_array_equal(left, right)
    again.metrics = None
    expected = state()
    expected.metrics = None
    assert again == expected


def test_a_newer_training_state_is_refused() -> None:
    with pytest.raises(InvalidArgumentError, match=r"format 99.*update hpcomm"):
        TrainingState.from_json({"version": 99})


def test_the_state_travels_inside_of_a_model_file(tmp_path: Path) -> None:
    path = tmp_path / "m.keras"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("config.json", "{}")
    assert read_state(path) is None
    add_state(path, state())
    loaded = read_state(path)
    assert loaded is not None
    assert loaded.epoch == 3
    with zipfile.ZipFile(path) as archive:
        assert archive.read("config.json") == b"{}"
    (tmp_path / "m.weights.h5").write_bytes(b"no archive")
    assert read_state(tmp_path / "m.weights.h5") is None


def test_policy_says_when_where_and_how_many(tmp_path: Path) -> None:
    assert CheckpointPolicy.of(None) is None
    policy = CheckpointPolicy.of(tmp_path)
    assert policy is not None
    assert policy.due(5, end_of_epoch=True)
    assert not policy.due(5, end_of_epoch=False)
    steps = CheckpointPolicy(tmp_path, every=4, keep=2)
    assert [s for s in range(1, 9) if steps.due(s, end_of_epoch=False)] == [4, 8]
    assert not steps.due(4, end_of_epoch=True)
    for step in (10, 2, 100_000_000, 30):
        steps.path(step, ".keras").write_text("")
    (tmp_path / "checkpoint-00000040").mkdir()  # no index: never completed
    (tmp_path / "mine.keras").write_text("")
    assert [p.name for p in list_checkpoints(tmp_path)] == [
        "checkpoint-00000002.keras",
        "checkpoint-00000010.keras",
        "checkpoint-00000030.keras",
        "checkpoint-100000000.keras",
    ]
    steps.prune()
    assert [p.name for p in list_checkpoints(tmp_path)] == [
        "checkpoint-00000030.keras",
        "checkpoint-100000000.keras",
    ]
    assert (tmp_path / "mine.keras").exists()
    assert find_checkpoint(tmp_path, SUFFIXES) == tmp_path / "checkpoint-100000000.keras"


@pytest.mark.parametrize("bad", [{"every": 0}, {"every": "batch"}, {"keep": 0}])
def test_a_wrong_policy_is_refused(bad: dict[str, Any]) -> None:
    with pytest.raises(InvalidArgumentError, match=r"checkpoint\.(every|keep) must be"):
        CheckpointPolicy.of(CheckpointPolicy("x", **bad))
    with pytest.raises(InvalidArgumentError, match="must be a folder or a CheckpointPolicy"):
        CheckpointPolicy.of(3)


def test_find_checkpoint_says_what_is_wrong(tmp_path: Path) -> None:
    assert find_checkpoint(tmp_path / "none", SUFFIXES) is None
    with pytest.raises(InvalidArgumentError, match="there is no file"):
        find_checkpoint(tmp_path / "m.keras", SUFFIXES)
    (tmp_path / "text").write_text("")
    with pytest.raises(InvalidArgumentError, match="is no checkpoint"):
        find_checkpoint(tmp_path / "text", SUFFIXES)


def tensors(part: int) -> dict[str, Any]:
    base = np.arange(6.0).reshape(2, 3) + part
    return {
        f"layer{part}/kernel": base.T,  # not contiguous
        f"layer{part}/half": base.astype(ml_dtypes.bfloat16),
        f"layer{part}/count": np.asarray(part, "int64"),
        f"layer{part}/flag": np.asarray([True, False]),
        f"layer{part}/none": np.zeros((0, 2), "float16"),
    }


def save(comm: ThreadCommunicator, path: Path, **changed: Any) -> Any:
    """Ranks 0 and 1 write two stages; rank 2 stands for another replica."""
    own = tensors(comm.rank) if comm.rank < 2 else None
    if own is not None and changed:
        own.update(changed)
    save_shards(comm, path, own, part=comm.rank, state={"epoch": 1} if comm.rank == 0 else {})
    return "saved"


def test_shards_are_read_under_any_other_split(tmp_path: Path) -> None:
    path = tmp_path / "shards"
    assert run_ranks(3, lambda comm: save(comm, path)) == ["saved"] * 3
    assert sorted(p.name for p in path.iterdir()) == [
        INDEX_NAME,
        "stage-00000.safetensors",
        "stage-00001.safetensors",
    ]
    assert read_index(path)["training_state"] == {"epoch": 1}
    expected = tensors(0) | tensors(1)
    mixed = ["layer1/kernel", "layer0/half", "layer0/count", "layer1/flag", "layer0/none"]
    for keys in (list(expected), mixed):
        loaded = load_shards(path, keys)
        assert sorted(loaded) == sorted(keys)
        for key in keys:
            assert loaded[key].dtype == expected[key].dtype, key
            assert loaded[key].shape == expected[key].shape, key
            np.testing.assert_array_equal(loaded[key], expected[key])
    with pytest.raises(InvalidArgumentError, match=r"has no values for 'other'"):
        load_shards(path, ["other"])


def test_a_stage_that_cannot_write_leaves_the_old_checkpoint(tmp_path: Path) -> None:
    path = tmp_path / "shards"
    run_ranks(3, lambda comm: save(comm, path))
    before = read_index(path)

    def broken(comm: ThreadCommunicator) -> Any:
        # An object array cannot be written; it stands for any failure in the middle of a file.
        extra = {"bad": np.asarray([object()])} if comm.rank == 1 else {}
        return save(comm, path, **extra)

    errors = run_ranks(3, broken)
    assert all(isinstance(error, HpcommError) for error in errors), errors
    assert len({str(error) for error in errors}) == 1
    assert "an older checkpoint of that name is untouched" in str(errors[0])
    assert read_index(path) == before
    assert list(tmp_path.iterdir()) == [path]


def test_an_index_of_another_kind_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidArgumentError, match="no complete sharded checkpoint"):
        read_index(tmp_path)
    (tmp_path / INDEX_NAME).write_text(json.dumps({"format": "hpcomm-sharded", "version": 9}))
    with pytest.raises(InvalidArgumentError, match="version 9; this hpcomm reads"):
        read_index(tmp_path)
