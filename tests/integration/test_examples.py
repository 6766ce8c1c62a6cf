"""Each example runs by the command that its docstring names on the line after ``Run:``."""

from __future__ import annotations

import ast
import shlex
import subprocess
from pathlib import Path

import pytest
from support.repository import ROOT, reader_environment

EXAMPLES = sorted((ROOT / "examples").glob("*.py"))


def command_of(example: Path) -> list[str]:
    """Return the command that the example's docstring tells the reader to use."""
    docstring = ast.get_docstring(ast.parse(example.read_text())) or ""
    lines = [line.strip() for line in docstring.splitlines()]
    commands = [line.removeprefix("Run:").strip() for line in lines if line.startswith("Run:")]
    assert len(commands) == 1, f"{example.name}: one line `Run: COMMAND` belongs into its docstring"
    return shlex.split(commands[0])


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.stem)
def test_example_runs(example: Path, tmp_path: Path) -> None:
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    result = subprocess.run(
        command_of(example),
        cwd=tmp_path,
        env=reader_environment(),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert result.returncode == 0, f"{result.stdout}\n{result.stderr}"
    assert result.stdout.strip(), "an example shows something"


def test_there_are_examples() -> None:
    assert EXAMPLES
