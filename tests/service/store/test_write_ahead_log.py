"""SQLite's log is moved beside the writer, and nothing is lost by it."""

from __future__ import annotations

from pathlib import Path

from sqlalchemy import func, insert, select

from balaclava.service.store.schema import meta
from balaclava.service.store.storage import Storage
from balaclava.service.store.write_ahead_log import WalCheckpointer

LONG = "x" * 4_000  # a page each


def by_hand(storage: Storage) -> WalCheckpointer:
    """Those of the storage, which do nothing any more by themselves."""
    checkpointer = storage._checkpointer
    assert checkpointer is not None
    checkpointer._stopping.set()
    checkpointer._thread.join()
    return checkpointer


def add(storage: Storage, first: int, count: int) -> None:
    rows = [{"name": str(first + n), "value": LONG} for n in range(count)]
    with storage.writing() as connection:
        connection.execute(insert(meta), rows)


def test_a_long_log_is_moved_and_begun_again(tmp_path: Path) -> None:
    storage = Storage.open(str(tmp_path / "service.db"))
    checkpointer = by_hand(storage)
    add(storage, 0, 1_500)
    assert checkpointer.checkpoint() > 1_000
    add(storage, 1_500, 1)
    assert checkpointer.checkpoint() < 100
    with storage.reading() as connection:
        assert connection.scalar(select(func.count()).select_from(meta)) == 1_501
    storage.close()


def test_a_log_in_use_does_not_block_the_writer(tmp_path: Path) -> None:
    storage = Storage.open(str(tmp_path / "service.db"))
    checkpointer = by_hand(storage)
    add(storage, 0, 1_500)
    with storage.writing() as connection:
        connection.execute(insert(meta).values(name="last", value="kept"))
        assert checkpointer.checkpoint() > 1_000  # what was committed; the writer goes on
    with storage.reading() as connection:
        assert connection.scalar(select(meta.c.value).where(meta.c.name == "last")) == "kept"
    storage.close()
