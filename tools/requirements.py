"""Print the requirements that pyproject.toml names, so that they can be installed before the build.

pip has no way to install a project's dependencies without building the project; the Makefile
installs them while the compiler runs.

Usage: python tools/requirements.py --build | [--core] [EXTRA …]
"""

from __future__ import annotations

import argparse
import tomllib
from pathlib import Path


def requirements(build: bool, core: bool, extras: list[str]) -> list[str]:
    """Collect requirement lines from pyproject.toml.

    Args:
        build: only what ``[build-system]`` requires.
        core: what ``[project] dependencies`` requires.
        extras: names out of ``[project.optional-dependencies]``.

    Returns:
        Requirement specifiers in the order of the file.
    """
    path = Path(__file__).resolve().parent.parent / "pyproject.toml"
    table = tomllib.loads(path.read_text())
    lines: list[str] = []
    if build:
        lines += table["build-system"]["requires"]
    if core:
        lines += table["project"]["dependencies"]
    for extra in extras:
        lines += table["project"]["optional-dependencies"][extra]
    return lines


def main() -> None:
    """Parse the command line and print one requirement per line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--build", action="store_true")
    parser.add_argument("--core", action="store_true")
    parser.add_argument("extras", nargs="*")
    arguments = parser.parse_args()
    lines = requirements(arguments.build, arguments.core, arguments.extras)
    print("\n".join(lines))  # noqa: T201


if __name__ == "__main__":
    main()
