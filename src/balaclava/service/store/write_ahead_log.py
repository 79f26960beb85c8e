"""Moves what was committed from SQLite's log into its file, beside the writer.

By itself SQLite does it within a commit, once the log is long, and whoever waits for that commit
waits for two more flushes and a thousand pages. Nothing that was promised depends on when it is
done: what is in the log is on the disk.
"""

from __future__ import annotations

import logging
import sqlite3
import threading

log = logging.getLogger("balaclava.service")

PAGES_LEFT_TO_COMMITS = 50_000  # a log of 200 MB is too long: a commit moves it after all
_SECONDS = 1.0
_LONG = 1_000  # pages, after which the log is begun again
_BUSY_SECONDS = 0.1  # that the writer may be held up for


class WalCheckpointer:
    """A thread with a connection of its own."""

    def __init__(self, database: str) -> None:
        self._connection = sqlite3.connect(
            database, timeout=_BUSY_SECONDS, isolation_level=None, check_same_thread=False
        )
        self._connection.execute("PRAGMA synchronous=FULL")
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="balaclava-log", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Finish what was begun, and disconnect."""
        self._stopping.set()
        self._thread.join()
        self._connection.close()

    def _run(self) -> None:
        while not self._stopping.wait(_SECONDS):
            try:
                self.move()
            except sqlite3.Error as error:  # the disk is full: commits say so too
                log.warning("the database's log was not moved: %s", error)

    def move(self) -> int:
        """Move what there is while the writer goes on; of a long log the rest too, so that it is
        begun again. Its length, in pages.
        """
        pages = self._checkpoint("PASSIVE")
        return self._checkpoint("FULL") if pages > _LONG else pages

    def _checkpoint(self, mode: str) -> int:
        (_, pages, _) = self._connection.execute(f"PRAGMA wal_checkpoint({mode})").fetchone()
        return int(pages)
