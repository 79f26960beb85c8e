"""Notices that SQLite's files were deleted or replaced while they are open.

SQLite writes to a deleted file as before, and that is lost when the process ends.
"""

import os

from balaclava.service.problems import Problem


class FilesInPlace:
    """The files of an open database, and what to do when they are gone."""

    def __init__(self, path: str, name: str, advice: str) -> None:
        self._path, self._name, self._advice = path, name, advice
        self._opened = self._numbers()

    def require(self) -> None:
        """Raise a `Problem` unless the files are those that were opened. Call it after a commit."""
        if self._opened != self._numbers():
            raise Problem(
                503,
                f"the {self._name}'s files were deleted or replaced while the service ran; stop "
                f"it, {self._advice}",
            )

    def _numbers(self) -> list[tuple[int, int] | None]:
        """Device and inode of each file."""
        numbers: list[tuple[int, int] | None] = []
        for path in (self._path, f"{self._path}-wal"):
            try:
                status = os.stat(path)
            except OSError:
                numbers.append(None)
            else:
                numbers.append((status.st_dev, status.st_ino))
        return numbers
