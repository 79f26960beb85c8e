"""Write files atomically, and check early that a path can be written."""

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from balaclava.errors import ResultsFileError


@contextmanager
def atomically(path: str | os.PathLike[str]) -> Iterator[Path]:
    """Yield a temporary path; on success the file there replaces `path` atomically.

    Raises:
        ResultsFileError: if the file cannot be written.
    """
    target = Path(path)
    temporary = target.with_name(f".{target.stem}.{os.getpid()}.tmp{target.suffix}")
    try:
        yield temporary
        with open(temporary, "rb+") as file:
            os.fsync(file.fileno())
        os.replace(temporary, target)
        sync_folder(target.parent)
    except OSError as error:
        raise _unwritable(target, error) from error
    finally:
        temporary.unlink(missing_ok=True)


def require_writable_file(path: str | os.PathLike[str]) -> None:
    """Refuse a file that cannot be written, before work is lost."""
    target = Path(path)
    if target.is_dir():
        raise ResultsFileError(f"{target} is a folder; give the path of a file")
    try:
        with tempfile.TemporaryFile(dir=target.parent):
            pass
    except OSError as error:
        raise _unwritable(target, error) from error


def require_writable_folder(path: str | os.PathLike[str]) -> None:
    """Create a folder, and refuse one that cannot be written, before work is lost."""
    folder = Path(path)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise ResultsFileError(
            f"out = {str(folder)!r} cannot be created or written: {error.strerror}; choose another "
            "folder"
        ) from error


def _unwritable(target: Path, error: OSError) -> ResultsFileError:
    reason = error.strerror or type(error).__name__
    return ResultsFileError(
        f"{target} cannot be written: {reason}; choose an existing, writable folder with free space"
    )


def sync_folder(folder: Path) -> None:
    """Make a new file name survive a power cut."""
    if hasattr(os, "O_DIRECTORY"):
        handle = os.open(folder, os.O_DIRECTORY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
