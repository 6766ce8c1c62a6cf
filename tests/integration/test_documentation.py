"""Every command and every Python block of the documents runs and prints what the document says.

How a block is marked (words after the language):
    ```python             run by this Python
    ```python ranks=2     run as `hpcomm run -n 2 -- python FILE`
    ```bash               run by bash, `hpcomm` being the script of this environment
    ```bash norun         shown only: it needs another machine, or is what CI itself does
    ```text output        each line is printed by the block before it; … stands for anything
"""

from __future__ import annotations

import fnmatch
import itertools
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.repository import DOCUMENTS, ROOT, CodeBlock, code_blocks, reader_environment, script

TIMEOUT_S = 240


def runnable_blocks() -> Iterator[tuple[CodeBlock, str]]:
    """Yield each block to run with the output that the document promises for it."""
    for document in DOCUMENTS:
        blocks = list(code_blocks(document))
        for block, following in itertools.zip_longest(blocks, blocks[1:]):
            if block.language in {"python", "bash"} and "norun" not in block.words:
                promised = following is not None and "output" in following.words
                yield block, following.text if following is not None and promised else ""


def command_of(block: CodeBlock, folder: Path) -> list[str]:
    """Write the block into ``folder`` and return the command that runs it."""
    if block.language == "bash":
        return ["bash", "-euo", "pipefail", "-c", block.text]
    file = folder / "block.py"
    file.write_text(block.text)
    python = [sys.executable, str(file)]
    ranks = block.option("ranks", "")
    return [script("hpcomm"), "run", "-n", ranks, "--", *python] if ranks else python


CASES = [pytest.param(block, output, id=block.label) for block, output in runnable_blocks()]


@pytest.mark.parametrize(("block", "output"), CASES)
def test_block_runs(block: CodeBlock, output: str, tmp_path: Path) -> None:
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    result = subprocess.run(
        command_of(block, tmp_path),
        cwd=tmp_path,
        env=reader_environment(),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )
    assert result.returncode == 0, f"{result.stdout}\n{result.stderr}"
    printed = [line.strip() for line in result.stdout.splitlines()]
    for line in filter(None, map(str.strip, output.splitlines())):
        pattern = line.replace("[", "[[]").replace("…", "*")
        assert fnmatch.filter(printed, pattern), f"{line!r} was not printed:\n{result.stdout}"


def test_documents_have_blocks_that_run() -> None:
    assert len(CASES) >= 5
