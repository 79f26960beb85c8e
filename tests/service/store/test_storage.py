"""What a storage promises, tried on SQLite and on PostgreSQL alike."""

from __future__ import annotations

import multiprocessing
import os
import sqlite3
import sys
import threading
from pathlib import Path

import pytest
from alembic.autogenerate import compare_metadata
from alembic.runtime.migration import MigrationContext
from sqlalchemy import Connection, insert, select, text, update
from sqlalchemy.exc import IntegrityError

from balaclava.errors import BalaclavaError
from balaclava.service.credentials import Vault
from balaclava.service.problems import StartError
from balaclava.service.store.ledger import Ledger
from balaclava.service.store.schema import experiments, meta, metadata
from balaclava.service.store.sql import DECISIONS
from balaclava.service.store.storage import Storage


@pytest.fixture
def storage(database: str):
    """An empty database, open."""
    opened = Storage.open(database)
    yield opened
    opened.close()


def add_experiment(storage: Storage, name: str) -> int:
    with storage.writing() as connection:
        result = connection.execute(
            insert(experiments).values(
                uid=name,
                name=name,
                definition="{}",
                state="running",
                created=0.0,
                version=1,
                books="{}",
                policy_state=b"",
            )
        )
        return int(result.inserted_primary_key[0])


def values(storage: Storage) -> list[str]:
    with storage.reading() as connection:
        return list(connection.scalars(select(meta.c.value).order_by(meta.c.name)))


def test_many_rows_are_inserted_as_few_are(storage: Storage) -> None:
    """PostgreSQL takes many by COPY: the same values, and the same errors."""
    experiment = add_experiment(storage, "a")
    rows = [
        {
            "id": f"{number:022d}",
            "experiment": experiment,
            "arm": number,
            "phase": 2**40,
            "learns": number % 2,
            "propensity": None if number % 3 else 1 / 3,
            "made": 1.8e9 + number / 7,
            "closes": 2.0e9,
            "state": 0,
            "features": 'a\tb\\N "\u00e4"\n',
        }
        for number in range(40)
    ]
    with storage.writing() as connection:
        DECISIONS.insert(connection, rows[:20])
        for row in rows[20:]:
            DECISIONS.insert(connection, [row])
    with storage.reading() as connection:
        read = DECISIONS.read(connection, "WHERE experiment IN (*) ORDER BY id", [experiment])
    assert [{name: each[name] for name in rows[0]} for each in read] == rows
    for again in (rows[:20], rows[:1]):
        with (
            pytest.raises((IntegrityError, sqlite3.IntegrityError)),
            storage.writing() as connection,
        ):
            DECISIONS.insert(connection, again)
    with storage.writing() as connection:
        assert len(storage.locked(connection, [experiment])) == 1


def test_what_is_written_is_there_for_whoever_opens_it_next(database: str) -> None:
    first = Storage.open(database)
    with first.writing() as connection:
        connection.execute(insert(meta).values(name="a", value="1"))
    first.close()
    second = Storage.open(database)
    assert values(second) == ["1"]
    second.close()


def test_an_error_leaves_no_trace(storage: Storage) -> None:
    def write_half() -> None:
        with storage.writing() as connection:
            connection.execute(insert(meta).values(name="a", value="1"))
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        write_half()
    assert values(storage) == []


def test_a_reader_sees_one_moment_and_never_what_is_not_committed(storage: Storage) -> None:
    with storage.writing() as connection:
        connection.execute(insert(meta).values(name="a", value="old"))
    with storage.reading() as reader:
        assert reader.scalar(select(meta.c.value)) == "old"
        with storage.writing() as writer:
            writer.execute(update(meta).values(value="new"))
            assert reader.scalar(select(meta.c.value)) == "old"
        assert reader.scalar(select(meta.c.value)) == "old"
    assert values(storage) == ["new"]


def test_transactions_on_one_experiment_come_one_after_the_other(storage: Storage) -> None:
    """Each adds 1 to what it read; none of the 80 is lost."""
    id = add_experiment(storage, "counted")

    def add_some() -> None:
        for _ in range(20):
            with storage.writing() as connection:
                ((_, version),) = storage.locked(connection, [id])
                change = update(experiments).where(experiments.c.id == id)
                connection.execute(change.values(version=version + 1))

    threads = [threading.Thread(target=add_some) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    with storage.reading() as connection:
        assert connection.scalar(select(experiments.c.version)) == 81


def _open_and_say(database: str, answers: multiprocessing.Queue) -> None:
    try:
        Storage.open(database).close()
    except StartError as error:
        answers.put(str(error))
    else:
        answers.put("opened")


def test_one_connection_writes_to_a_file_and_has_the_only_large_cache(tmp_path: Path) -> None:
    """Each pooled connection had a cache of 64 MB, and lost it as soon as another one wrote."""
    storage = Storage.open(str(tmp_path / "a.db"))

    def cache(connection: Connection) -> int:
        return int(connection.exec_driver_sql("PRAGMA cache_size").scalar_one())

    writers, readers = [], []
    for number in range(3):
        with storage.reading() as reader, storage.reading() as other:
            with storage.writing() as connection:
                connection.execute(insert(meta).values(name=f"{number}", value="x"))
                writers.append((connection.connection.driver_connection, cache(connection)))
            readers += [cache(reader), cache(other)]
    assert set(writers) == {(writers[0][0], -65_536)}
    assert set(readers) == {-2_000}  # SQLite's default: 2 MB
    with pytest.raises(IntegrityError), storage.writing() as connection:
        connection.execute(insert(meta).values(name="1", value="y"))
    with storage.writing() as connection:  # after a failure, another one
        assert connection.connection.driver_connection is not writers[0][0]
        assert cache(connection) == -65_536
    assert values(storage) == ["x"] * 3
    storage.close()


def test_a_file_has_one_process_a_server_any_number(database: str) -> None:
    storage = Storage.open(database)
    context = multiprocessing.get_context("spawn")
    answers = context.Queue()
    other = context.Process(target=_open_and_say, args=(database, answers))
    other.start()
    answer = answers.get(timeout=60)
    other.join()
    if storage.one_process:
        assert "in use by another process" in answer
        storage.close()
        Storage.open(database).close()  # now it is free
    else:
        assert answer == "opened"
        storage.close()


def test_migrations_make_what_the_schema_says(storage: Storage) -> None:
    with storage.engine.connect() as connection:
        assert compare_metadata(MigrationContext.configure(connection), metadata) == []


def test_a_schema_of_the_future_is_refused(database: str) -> None:
    storage = Storage.open(database)
    with storage.writing() as connection:
        connection.execute(text("UPDATE alembic_version SET version_num = '9999'"))
    storage.close()
    with pytest.raises(StartError, match="does not know"):
        Storage.open(database)


def test_a_database_keeps_its_key(storage: Storage) -> None:
    storage.require_key(Vault(b"1" * 32))
    storage.require_key(Vault(b"1" * 32))
    with pytest.raises(StartError, match="secret key"):
        storage.require_key(Vault(b"2" * 32))


@pytest.mark.parametrize(
    ("address", "reason"),
    [
        (":memory:", "lost with the process"),
        ("mysql://here/there", "is not valid"),
        ("://", "is not valid"),
        ("/nowhere/at/all/service.db", "cannot write"),
    ],
)
def test_an_address_that_cannot_be_used_says_why(address: str, reason: str) -> None:
    with pytest.raises(StartError, match=reason):
        Storage.open(address)


def test_a_damaged_file_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "service.db"
    path.write_bytes(b"this is no database" * 100)
    with pytest.raises(StartError, match="cannot use the database"):
        Storage.open(str(path))


def test_only_its_owner_can_read_a_file(tmp_path: Path) -> None:
    before = os.umask(0o022)
    try:
        storage = Storage.open(str(tmp_path / "database"))
        ledger = Ledger.open(str(tmp_path / "ledger"))
        modes = {path.name: path.stat().st_mode & 0o777 for path in tmp_path.iterdir()}
    finally:
        os.umask(before)
    ledger.close()
    storage.close()
    assert {"database", "database.lock", "ledger"} <= modes.keys()
    assert set(modes.values()) == {0o600}


def test_without_posix_locks_a_file_says_what_it_needs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As on Windows, where the standard library has no fcntl."""
    monkeypatch.setitem(sys.modules, "fcntl", None)
    with pytest.raises(BalaclavaError, match="use WSL, or a PostgreSQL database"):
        Storage.open(str(tmp_path / "service.db"))
