"""Files that a command writes, checked before it starts, and standard output for its report."""

from __future__ import annotations

import importlib.util
import os
import sys
from pathlib import Path
from typing import TextIO

from hpcomm.errors import InvalidArgumentError

__all__ = ["check_output", "check_picture", "take_standard_output", "write_report"]

PICTURES = (".png", ".svg", ".pdf")


def check_output(flag: str, name: str, *, makes_folders: bool = False) -> None:
    """Refuse the name of a file that cannot be written.

    Args:
        flag: where it was given.
        name: of the file; empty for none.
        makes_folders: folders that are missing will be made.

    Raises:
        InvalidArgumentError: a folder has that name, its folder is missing, or this user may not
            write there.
    """
    if not name:
        return
    path = Path(name).absolute()
    if path.is_dir():
        _refuse(flag, name, "this is a folder; name a file")
    folder = path.parent
    while makes_folders and not folder.exists():
        folder = folder.parent
    if not folder.is_dir():
        _refuse(flag, name, "there is no such folder")
    if path.exists():
        if not os.access(path, os.W_OK):
            _refuse(flag, name, "this file may not be written")
    elif not os.access(folder, os.W_OK | os.X_OK):
        _refuse(flag, name, f"{folder} may not be written")


def check_picture(flag: str, name: str) -> None:
    """Refuse the name of a picture that cannot be drawn or written.

    Args:
        flag: where it was given.
        name: of the file; empty for none.

    Raises:
        InvalidArgumentError: as `check_output`, an unknown kind of picture, or there is no
            matplotlib.
    """
    if not name:
        return
    if Path(name).suffix not in PICTURES:
        _refuse(flag, name, f"the name must end in one of {', '.join(PICTURES)}")
    check_output(flag, name)
    if importlib.util.find_spec("matplotlib") is None:
        _refuse(flag, name, "needs matplotlib; install it (pip install 'hpcomm[plot]')")


def take_standard_output() -> TextIO:
    """Keep standard output for the report; whatever else this process says goes to standard error.

    That holds to its end, for the user's model as for libraries in other languages.

    Returns:
        The only way to standard output from now on.
    """
    sys.stdout.flush()
    report = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    sys.stdout = sys.stderr
    return report


def write_report(name: str, text: str, standard_output: TextIO | None = None) -> None:
    """Write a report as ``--json`` says.

    Args:
        name: of the file; "-" for standard output, empty for nowhere.
        text: without the end of its last line.
        standard_output: from `take_standard_output`; None where that was not called.
    """
    if name == "-":
        stream = standard_output or sys.stdout
        stream.write(text + "\n")
        stream.flush()
    elif name:
        Path(name).write_text(text + "\n", encoding="utf-8")


def _refuse(flag: str, name: str, why: str) -> None:
    raise InvalidArgumentError(f"{flag} {name}: {why}")
