"""Checkpoints of SQLite's write-ahead log, in a thread beside the writer.

SQLite would checkpoint within a commit, which then waits for two more flushes and a thousand
pages. Durability does not depend on checkpoints: the log itself is on the disk.
"""

import logging
import sqlite3
import threading

log = logging.getLogger("balaclava.service")

LONGEST_LOG = 50_000  # pages (200 MB); beyond, a commit itself checkpoints
_CHECKPOINT_SECONDS = 1.0  # between two checkpoints
_RESTART_PAGES = 1_000  # SQLite's own default: a longer log starts over from its beginning
_BUSY_TIMEOUT = 0.1  # seconds for which a full checkpoint may block the writer


class WalCheckpointer:
    """A thread that checkpoints on its own connection."""

    def __init__(self, database: str) -> None:
        self._connection = sqlite3.connect(
            database, timeout=_BUSY_TIMEOUT, isolation_level=None, check_same_thread=False
        )
        self._connection.execute("PRAGMA synchronous=FULL")
        self._connection.execute("SELECT count(*) FROM sqlite_master").fetchone()  # opens the log
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="balaclava-log", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Finish the current checkpoint, and disconnect."""
        self._stopping.set()
        self._thread.join()
        self._connection.close()

    def _run(self) -> None:
        while not self._stopping.wait(_CHECKPOINT_SECONDS):
            try:
                self.checkpoint()
            except sqlite3.Error as error:  # such as a full disk: commits report it too
                log.warning("a checkpoint of the database failed: %s", error)

    def checkpoint(self) -> int:
        """Checkpoint beside the writer; in full if the log is long. Returns its pages."""
        pages = self._checkpoint("PASSIVE")
        return self._checkpoint("FULL") if pages > _RESTART_PAGES else pages

    def _checkpoint(self, mode: str) -> int:
        (_, pages, _) = self._connection.execute(f"PRAGMA wal_checkpoint({mode})").fetchone()
        return int(pages)
