"""Files that are either there as a whole or as they were before."""

from __future__ import annotations

import contextlib
import ctypes
import os
import shutil
import socket
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["Replacement", "replacing", "sync_tree"]

_PREFIX = ".hpcomm-saving-"
_AT_FDCWD = -100
_RENAME_EXCHANGE = 2


class Replacement:
    """New content for a path, written under another name until it is complete.

    The temporary stands in the same folder and its name ends as the target's does, so that writers
    that look at the suffix are content.

    Attributes:
        target: path that is to hold the new content.
        temporary: where to write it; a file or a folder, made by whoever writes.
    """

    def __init__(self, target: str | os.PathLike[str]) -> None:
        """Choose the name; the target's folder is made if missing.

        Args:
            target: path that is to hold the new content.
        """
        self.target = Path(target)
        self.target.parent.mkdir(parents=True, exist_ok=True)
        prefix = f"{_PREFIX}{socket.gethostname()}-"
        self._remove_leftovers(prefix)
        self.temporary = self.target.with_name(f"{prefix}{os.getpid()}-{self.target.name}")

    def commit(self) -> None:
        """Give the new content the target's name, once it is on the disk.

        Raises:
            OSError: that failed; call `discard`.
        """
        sync_tree(self.temporary)
        if self.target.is_dir() and self.temporary.is_dir():
            _exchange(self.temporary, self.target)
            _remove(self.temporary)
        else:
            self.temporary.replace(self.target)
        _sync_folder(self.target.parent)

    def discard(self) -> None:
        """Remove what was written; the target is as it was."""
        _remove(self.temporary)

    def _remove_leftovers(self, prefix: str) -> None:
        # Of attempts by processes of this machine that are gone.
        for path in self.target.parent.glob(f"{prefix}*-{self.target.name}"):
            owner = path.name[len(prefix) :].partition("-")[0]
            if owner.isdigit() and not _lives(int(owner)):
                _remove(path)


@contextlib.contextmanager
def replacing(target: str | os.PathLike[str]) -> Iterator[Path]:
    """Write under another name; at the end of the block the target has the new content.

    Args:
        target: path that is to hold it.

    Yields:
        The path to write to.

    Raises:
        OSError: the disk is full, the folder cannot be written …; the target is untouched.
    """
    replacement = Replacement(target)
    try:
        yield replacement.temporary
        replacement.commit()
    except BaseException:
        replacement.discard()
        raise


def sync_tree(path: Path) -> None:
    """Return once ``path``, a file or a folder with files, is on the disk."""
    if path.is_dir():
        for entry in path.iterdir():
            sync_tree(entry)
        _sync_folder(path)
        return
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _sync_folder(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        with contextlib.suppress(OSError):  # some network file systems cannot
            os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _exchange(first: Path, second: Path) -> None:
    """Swap two folders at once; rename() alone replaces no folder that holds something."""
    libc = ctypes.CDLL(None, use_errno=True)
    swap = getattr(libc, "renameat2", None)
    names = (os.fsencode(first), os.fsencode(second))
    if swap and swap(_AT_FDCWD, names[0], _AT_FDCWD, names[1], _RENAME_EXCHANGE) == 0:
        return
    aside = second.with_name(f"{first.name}.old")  # a file system that cannot swap
    second.rename(aside)
    try:
        first.rename(second)
    except BaseException:
        aside.rename(second)
        raise
    aside.rename(first)


def _lives(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    else:
        with contextlib.suppress(OSError):
            path.unlink(missing_ok=True)
