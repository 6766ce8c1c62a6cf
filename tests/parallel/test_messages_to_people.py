"""What is written for people when ranks start."""

from __future__ import annotations

import pytest
from support.jobs import hpcomm_run, program, run


@pytest.mark.parametrize("options", [(), ("--no-mpi",)], ids=["mpi", "no-mpi"])
def test_log_level_decides_how_much_is_said(tmp_path, options):
    path = program(tmp_path, "hpcomm.init().dup().barrier()\n")
    line = hpcomm_run(2, path, options=options)
    quiet = run(tmp_path, line).errors
    assert "hpcomm[" not in quiet
    told = run(tmp_path, line, {"HPCOMM_LOG": "info"}).errors
    for rank in range(2):
        assert f"hpcomm[{rank}] INFO: rank {rank} of 2, found by" in told
    assert "DEBUG" not in told
    everything = run(tmp_path, line, {"HPCOMM_LOG": "debug"}).errors
    assert "algorithms chosen" in everything
    assert "world ranks (0, 1)" in everything


def test_arrangements_of_the_program_are_kept(tmp_path):
    path = program(
        tmp_path,
        "import logging\nlogging.basicConfig(format='mine %(message)s', level='INFO')\n"
        "hpcomm.init()\n",
    )
    result = run(tmp_path, hpcomm_run(1, path, options=("--no-mpi",)), {"HPCOMM_LOG": "info"})
    assert "mine rank 0 of 1" in result.errors
    assert "hpcomm[" not in result.errors


def test_wrong_settings_are_one_clear_message(tmp_path):
    path = program(tmp_path, "hpcomm.init()\n")
    result = run(tmp_path, hpcomm_run(2, path, options=("--no-mpi",)), {"HPCOMM_TIMEOUT": "soon"})
    assert result.code == 1
    assert "HPCOMM_TIMEOUT must be a number of seconds" in result.errors


def test_wrong_override_of_the_selection_names_the_place(tmp_path):
    path = program(tmp_path, "hpcomm.init()\n")
    for text in ("allreduce", "allreduce:0-1k:fastest"):
        result = run(tmp_path, hpcomm_run(2, path, options=("--no-mpi",)), {"HPCOMM_TUNE": text})
        assert result.code == 1
        assert "InvalidArgumentError" in result.errors
        assert "allreduce" in result.errors
