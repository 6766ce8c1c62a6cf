from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from hpcomm.hyparflow.files import Replacement, replacing


def test_replacing_keeps_the_suffix_and_leaves_only_the_target(tmp_path: Path) -> None:
    target = tmp_path / "new" / "m.weights.h5"
    with replacing(target) as path:
        assert path.name.endswith("-m.weights.h5")
        path.write_text("one")
        assert not target.exists()
    assert target.read_text() == "one"
    with replacing(target) as path:
        path.write_text("two")
    assert [entry.name for entry in target.parent.iterdir()] == ["m.weights.h5"]
    assert target.read_text() == "two"


def test_a_failure_leaves_the_old_content(tmp_path: Path) -> None:
    target = tmp_path / "m.keras"
    target.write_text("old")

    def write() -> None:
        with replacing(target) as path:
            path.write_text("half")
            raise OSError(28, "No space left on device")

    with pytest.raises(OSError, match="No space left"):
        write()
    assert target.read_text() == "old"
    assert list(tmp_path.iterdir()) == [target]


def test_a_writer_that_wrote_nothing_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError), replacing(tmp_path / "m.keras"):
        pass
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("swap", [True, False])
def test_folders_are_replaced_as_a_whole(
    tmp_path: Path, swap: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not swap:
        monkeypatch.setattr("hpcomm.hyparflow.files.ctypes.CDLL", lambda *_, **__: object())
    target = tmp_path / "shards"
    for content in ("one", "two"):
        replacement = Replacement(target)
        replacement.temporary.mkdir()
        (replacement.temporary / content).write_text(content)
        replacement.commit()
    assert [entry.name for entry in target.iterdir()] == ["two"]
    assert list(tmp_path.iterdir()) == [target]
    discarded = Replacement(target)
    discarded.temporary.mkdir()
    discarded.discard()
    assert list(tmp_path.iterdir()) == [target]


def test_leftovers_of_dead_processes_are_removed_and_others_stay(tmp_path: Path) -> None:
    script = (
        "import os, sys\n"
        "from hpcomm.hyparflow.files import replacing\n"
        "with replacing(sys.argv[1]) as path:\n"
        "    path.write_text('half')\n"
        "    os._exit(0)\n"
    )
    target = tmp_path / "m.keras"
    subprocess.run([sys.executable, "-c", script, str(target)], check=True, env=os.environ.copy())
    assert len(list(tmp_path.iterdir())) == 1
    mine = Replacement(tmp_path / "other.keras")
    mine.temporary.write_text("being written")
    with replacing(target) as path:
        path.write_text("whole")
    assert sorted(tmp_path.iterdir()) == sorted([target, mine.temporary])
