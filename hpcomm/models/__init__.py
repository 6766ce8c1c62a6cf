"""Networks of the papers and for verification, by name."""

from __future__ import annotations

from hpcomm.models.registry import ModelEntry, get, names
from hpcomm.models.task import BuildOptions, InputSpec, OutputSpec, Recipe, Task

__all__ = [
    "BuildOptions",
    "InputSpec",
    "ModelEntry",
    "OutputSpec",
    "Recipe",
    "Task",
    "get",
    "names",
]
