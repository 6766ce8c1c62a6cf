from __future__ import annotations

import importlib.util
import os
import subprocess
import sys

import pytest
from typer.testing import CliRunner

import hpcomm.cli.info
import hpcomm.cli.train
import hpcomm.cli.verify
import hpcomm.cli.verify_job
import hpcomm.launch
from hpcomm.cli.outputs import check_output, check_picture
from hpcomm.errors import InvalidArgumentError


def test_files_that_can_be_written_pass(tmp_path):
    (tmp_path / "old.json").touch()
    for name in ("", str(tmp_path / "new.json"), str(tmp_path / "old.json")):
        check_output("--json", name)
    check_output("--state", str(tmp_path / "a" / "b" / "state.jsonl"), makes_folders=True)
    check_picture("--plot", "")
    assert [path.name for path in tmp_path.iterdir()] == ["old.json"]


def test_folders_and_names_below_files_are_refused(tmp_path):
    (tmp_path / "file").touch()
    for name, why in (
        ("", "this is a folder; name a file"),
        ("absent/x", "there is no such folder"),
        ("file/x", "there is no such folder"),
    ):
        path = str(tmp_path / name)
        with pytest.raises(InvalidArgumentError, match=f"--json {path}: {why}"):
            check_output("--json", path)
    with pytest.raises(InvalidArgumentError, match="there is no such folder"):
        check_output("--state", str(tmp_path / "file" / "a" / "x"), makes_folders=True)


def test_what_this_user_may_not_write_is_refused(monkeypatch, tmp_path):
    (tmp_path / "old.json").touch()
    monkeypatch.setattr(os, "access", lambda *_: False)  # root may write everything
    with pytest.raises(InvalidArgumentError, match="this file may not be written"):
        check_output("--json", str(tmp_path / "old.json"))
    with pytest.raises(InvalidArgumentError, match=f"{tmp_path} may not be written"):
        check_output("--json", str(tmp_path / "new.json"))
    with pytest.raises(InvalidArgumentError, match=f"{tmp_path} may not be written"):
        check_output("--state", str(tmp_path / "a" / "new"), makes_folders=True)


def test_pictures_need_matplotlib_before_the_training(monkeypatch, tmp_path):
    real = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name: None if name == "matplotlib" else real(name)
    )
    with pytest.raises(InvalidArgumentError, match="needs matplotlib; install it"):
        check_picture("--plot", str(tmp_path / "a.png"))


def test_the_report_of_a_verification_may_go_to_the_folder_that_the_state_makes(
    monkeypatch, tmp_path
):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(hpcomm.cli.verify_job, "control", lambda *_, **__: True)
    arguments = ["--state", "runs/state.jsonl", "--json", "runs/out.json"]
    result = CliRunner().invoke(hpcomm.cli.verify.app, arguments)
    assert result.exit_code == 0, result.output


def test_the_report_is_alone_on_standard_output():
    program = """
import os, subprocess, sys
from hpcomm.cli.outputs import take_standard_output, write_report
report = take_standard_output()
print("print")
os.write(1, b"write\\n")
subprocess.run(["echo", "child"])
print("original", file=sys.__stdout__)
write_report("-", "{}", report)
import atexit
atexit.register(print, "exit")
"""
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stdout == "{}\n"
    assert sorted(done.stderr.split()) == ["child", "exit", "original", "print", "write"]


@pytest.mark.parametrize(
    ("command", "flag", "ending"),
    [
        (hpcomm.cli.train, "--json", ""),
        (hpcomm.cli.train, "--trace", ""),
        (hpcomm.cli.train, "--plot", ".png"),
        (hpcomm.cli.train, "--save", ".keras"),
        (hpcomm.cli.verify, "--json", ""),
        (hpcomm.cli.verify, "--state", ""),
        (hpcomm.cli.info, "--json", ""),
    ],
    ids=lambda value: getattr(value, "__name__", value),
)
def test_commands_refuse_a_folder_before_anything_starts(
    monkeypatch, tmp_path, command, flag, ending
):
    monkeypatch.setattr(hpcomm.launch, "relaunch_under", lambda *_, **__: pytest.fail("ran"))
    monkeypatch.setattr(hpcomm.cli.info, "gather", lambda: pytest.fail("ran"))
    folder = tmp_path / f"out{ending}"
    folder.mkdir()
    result = CliRunner().invoke(command.app, [flag, str(folder)])
    assert result.exit_code == 2
    assert "this is a folder; name a file" in " ".join(result.output.replace("│", " ").split())
