"""Files that appear whole or not at all, and whether a place can be written to."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from balaclava.errors import ResultsFileError


@contextmanager
def atomically(path: str | os.PathLike[str]) -> Iterator[Path]:
    """A path to write to; what was written appears under `path` whole, or not at all."""
    target = Path(path)
    temporary = target.with_name(f".{target.stem}.{os.getpid()}.tmp{target.suffix}")
    try:
        yield temporary
        with open(temporary, "rb+") as file:
            os.fsync(file.fileno())
        os.replace(temporary, target)
        _sync_folder(target.parent)
    except OSError as error:
        raise _unwritable(target, error) from error
    finally:
        temporary.unlink(missing_ok=True)


def require_place(path: str | os.PathLike[str]) -> None:
    """Refuse a file that could not be written in the end, before there is work to lose."""
    target = Path(path)
    if target.is_dir():
        raise ResultsFileError(f"{target} is a folder; give the name of a file")
    try:
        with tempfile.TemporaryFile(dir=target.parent):
            pass
    except OSError as error:
        raise _unwritable(target, error) from error


def require_folder(path: str | os.PathLike[str]) -> None:
    """Make a folder, and refuse one that may not be written to, before there is work to lose."""
    folder = Path(path)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise ResultsFileError(
            f"out = {str(folder)!r} cannot be made or written to: {error.strerror}; choose another "
            "folder"
        ) from error


def _unwritable(target: Path, error: OSError) -> ResultsFileError:
    reason = error.strerror or type(error).__name__
    return ResultsFileError(
        f"{target} cannot be written: {reason}; choose a folder that exists, may be written to and "
        "has room"
    )


def _sync_folder(folder: Path) -> None:
    """So that a new name survives a power cut, too."""
    if hasattr(os, "O_DIRECTORY"):
        handle = os.open(folder, os.O_DIRECTORY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
