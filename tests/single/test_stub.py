"""The stub of the compiled module says what the module has, no more and no less."""

from __future__ import annotations

import subprocess
import sys

import pytest

# What pybind11 does to classes, which no stub can say: a metaclass, and an __init__ that refuses.
ALLOWED = """
hpcomm\\._core\\.(Communicator|MpiBinding|Work)
hpcomm\\._core\\.(Communicator|Work)\\.__init__
"""


def test_stub_is_complete_and_right(tmp_path):
    pytest.importorskip("mypy")
    allowed = tmp_path / "allowed.txt"
    allowed.write_text(ALLOWED)
    command = [sys.executable, "-m", "mypy.stubtest", "hpcomm._core", "--ignore-disjoint-bases"]
    answer = subprocess.run(
        [*command, "--allowlist", str(allowed)],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert answer.returncode == 0, answer.stdout + answer.stderr
