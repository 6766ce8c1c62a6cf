from __future__ import annotations

import json
import subprocess
import sys

import pytest
import typer

import hpcomm
from hpcomm.cli import info, main


def command(*arguments, **options):
    return subprocess.run(
        [sys.executable, "-m", "hpcomm", *arguments],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        **options,
    )


def test_help_names_all_commands_and_loads_no_framework():
    answer = command("--help")
    assert answer.returncode == 0
    for name in main.COMMANDS:
        assert f" {name} " in answer.stdout
    loaded = subprocess.run(
        [sys.executable, "-X", "importtime", "-m", "hpcomm", "--help"],
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    ).stderr
    for heavy in ("tensorflow", "keras", "torch", "mpi4py", "matplotlib"):
        assert f" {heavy}\n" not in loaded


def test_version_and_wrong_usage():
    assert command("--version").stdout == f"hpcomm {hpcomm.__version__}\n"
    for wrong in (["frobnicate"], ["info", "--frobnicate"], ["run"]):
        assert command(*wrong).returncode == 2


def ended_with(capsys, *arguments):
    with pytest.raises(SystemExit) as caught:
        main.main(arguments)
    return caught.value.code, capsys.readouterr().err


def test_errors_of_the_library_are_one_message_and_exit_code_1(monkeypatch, capsys):
    failing = typer.Typer()

    @failing.command()
    def fail():
        raise hpcomm.ModelError("too few layers")

    monkeypatch.setattr(info, "app", failing)
    code, text = ended_with(capsys, "info")
    assert code == 1
    assert text == "hpcomm: ModelError: too few layers\n"


def test_other_exceptions_keep_their_traceback(monkeypatch):
    failing = typer.Typer()

    @failing.command()
    def fail():
        raise ZeroDivisionError

    monkeypatch.setattr(info, "app", failing)
    with pytest.raises(ZeroDivisionError):
        main.main(["info"])


def test_info_as_json_alone_on_standard_output():
    report = json.loads(command("info", "--json", "-").stdout)
    assert report["packages"]["hpcomm"] == hpcomm.__version__
    assert report["job"] is None
    assert report["cpus"]["allowed"]
    ways = {row["name"]: row for row in report["transports"]}
    assert list(ways) == ["loopback", "shm", "mpi"]
    assert ways["shm"]["usable"]
    assert ways["mpi"]["usable"] == report["mpi"]["found"]
    assert {row["in_use"] for row in ways.values()} == {None}
    assert {row["collective"] for row in report["algorithms"]} == {
        "allreduce",
        "allgather",
        "barrier",
        "broadcast",
        "reduce_scatter",
    }
    within, between = report["selection"].split("between nodes")
    assert [line.split()[:4] for line in within.splitlines() if "default" in line] == [
        [name, "0-max", "any", "shared"]
        for name in ("barrier", "broadcast", "allreduce", "allgather", "reduce_scatter")
    ]
    assert "shared" not in between
    chosen = {row["name"] for row in report["algorithms"]}
    assert {line.split()[3] for line in between.splitlines() if "default" in line} < chosen


def test_info_for_people_and_as_a_file(tmp_path):
    answer = command("info", "--json", str(tmp_path / "info.json"))
    assert answer.returncode == 0
    for word in ("MPI", "allreduce", "HPCOMM_TIMEOUT", "CPUs", "within a node", "between nodes"):
        assert word in answer.stdout
    for word in (
        "transports",
        "loopback (",
        "shm (ranks that share memory: usable)",
        "mpi (ranks of",
    ):
        assert word in answer.stdout
    assert json.loads((tmp_path / "info.json").read_text())["variables"]


def test_info_says_why_a_transport_cannot_be_used(monkeypatch):
    def refuse(name):
        raise OSError(38, "Function not implemented")

    monkeypatch.setattr(info.os, "memfd_create", refuse)
    monkeypatch.setattr(info.os, "access", lambda *_: False)
    job = {"ranks": [{"transports": {"1": "mpi"}}, {"transports": {"0": "mpi"}}]}
    loopback, shm, mpi = info._transports({"found": True}, job)
    assert shm["problem"] == "memory files: Function not implemented"
    assert (shm["usable"], shm["in_use"]) == (False, False)
    assert (mpi["usable"], mpi["in_use"]) == (True, True)
    assert info._transports({"found": False}, None)[2]["problem"] == "no MPI was found"
    assert loopback["usable"]
