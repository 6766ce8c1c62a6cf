"""What the tests of the repository itself share: its files, its documents and what those name."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
TOP_FOLDERS = (
    ".ci",
    "bench",
    "bindings",
    "csrc",
    "docs",
    "examples",
    "hpcomm",
    "tests",
    "tools",
)
DOCUMENTS = sorted(
    [
        ROOT / "ARCHITECTURE.md",
        ROOT / "CONTRIBUTING.md",
        ROOT / "README.md",
        *(ROOT / "docs").glob("*.md"),
    ]
)
FENCE = re.compile(r"^```(?P<info>[^\n`]*)\n(?P<body>.*?)^```$", re.MULTILINE | re.DOTALL)


@dataclass(frozen=True)
class CodeBlock:
    """A fenced block of a document: its language, the words after it and its text."""

    document: Path
    line: int
    language: str
    words: tuple[str, ...]
    text: str

    @property
    def label(self) -> str:
        return f"{self.document.relative_to(ROOT)}:{self.line}"

    def option(self, name: str, default: str) -> str:
        """Return VALUE of ``name=VALUE`` among the words."""
        for word in self.words:
            if word.startswith(f"{name}="):
                return word.removeprefix(f"{name}=")
        return default


def code_blocks(document: Path) -> Iterator[CodeBlock]:
    """Yield the fenced blocks of a document from top to bottom."""
    text = document.read_text()
    for match in FENCE.finditer(text):
        language, *words = match["info"].split() or [""]
        line = text.count("\n", 0, match.start()) + 1
        yield CodeBlock(document, line, language, tuple(words), match["body"])


def project_files() -> list[Path]:
    """Return every file of the project, without what builds and tools leave behind."""
    files = [path for path in ROOT.iterdir() if path.is_file()]
    for folder in TOP_FOLDERS:
        files += [path for path in (ROOT / folder).rglob("*") if path.is_file()]
    return sorted(path for path in files if "__pycache__" not in path.parts)


def reader_environment() -> dict[str, str]:
    """Return the environment of a reader who activated the environment that runs the tests.

    Ranks write their lines whole: with unbuffered output they would mix.
    """
    environment = {**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    environment.pop("PYTHONUNBUFFERED", None)
    return environment


def script(name: str) -> str:
    """Return the path of a console script of the environment that runs the tests."""
    return str(Path(sys.executable).parent / name)
