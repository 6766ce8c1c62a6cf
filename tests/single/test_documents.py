"""Documents that repeat what code says must say the same."""

from __future__ import annotations

import ast
import re
import subprocess

import pytest
from support.repository import DOCUMENTS, ROOT, script

from hpcomm import errors
from hpcomm.config import VARIABLES, Variable


def table_rows(page: str) -> list[list[str]]:
    """Return the cells of every table row of a page."""
    lines = (ROOT / page).read_text().splitlines()
    return [
        [cell.strip() for cell in line.strip("|").split(" | ")] for line in lines if "|" in line
    ]


@pytest.mark.parametrize("variable", VARIABLES, ids=lambda variable: variable.name)
def test_every_variable_is_documented_as_it_is(variable: Variable) -> None:
    rows = [
        row for row in table_rows("docs/environment-variables.md") if row[0] == f"`{variable.name}`"
    ]
    default = f"`{variable.default}`" if variable.default else "empty"
    middle = [] if variable.internal else [default]
    assert rows == [[f"`{variable.name}`", *middle, variable.summary]]


def test_no_other_variable_is_documented() -> None:
    known = {f"`{variable.name}`" for variable in VARIABLES}
    documented = {row[0] for row in table_rows("docs/environment-variables.md")}
    assert {name for name in documented if name.startswith("`HPCOMM_")} <= known


def test_every_error_class_of_the_layer_is_documented() -> None:
    text = "".join(
        (ROOT / "docs" / page).read_text()
        for page in ("collectives.md", "launch.md", "hyparflow.md")
    )
    missing = [name for name in errors.__all__ if f"`{name}`" not in text and name != "HpcommError"]
    assert not missing


def test_every_make_target_that_is_named_exists() -> None:
    makefile = (ROOT / "Makefile").read_text()
    targets = set(re.findall(r"^([a-z-]+):", makefile, re.MULTILINE))
    for document in DOCUMENTS:
        commands = re.findall(
            r"(?:`|^)make ((?:[a-z-]+ ?)+)(?:`|$)", document.read_text(), re.MULTILINE
        )
        named = {target for command in commands for target in command.split()}
        assert named <= targets, f"{document.name}: {sorted(named - targets)}"


def test_every_command_of_the_readme_exists() -> None:
    named = set(re.findall(r"`hpcomm ([a-z]+)", (ROOT / "README.md").read_text()))
    assert {"run", "train", "verify", "info"} <= named
    for command in sorted(named):
        ask = [script("hpcomm"), command, "--help"]
        result = subprocess.run(ask, capture_output=True, text=True, check=False, timeout=60)
        assert result.returncode == 0, result.stderr


def test_every_refusal_is_documented_with_its_reason() -> None:
    tree = ast.parse((ROOT / "hpcomm/tensorflow/refusals.py").read_text())
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call)]
    rows = [
        [ast.literal_eval(argument) for argument in call.args]
        for call in calls
        if isinstance(call.func, ast.Name) and call.func.id == "Refusal"
    ]
    assert rows
    documented = table_rows("docs/hyparflow.md")
    assert not [row for row in rows if row not in documented]
