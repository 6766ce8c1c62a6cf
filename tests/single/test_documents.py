"""Documents that repeat what code says must say the same."""

from __future__ import annotations

import pytest
from support.repository import ROOT

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
