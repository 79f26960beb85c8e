"""The database behind the service: one interface, SQLite and PostgreSQL.

What a storage promises to the rest of the service (a test suite holds both databases to it):

1. A transaction of `writing()` is on the disk when the block is left without an error, and has
   left no trace when it is left with one.
2. Transactions of `writing()` that lock the same experiment come one after the other; each sees
   what those before it have committed.
3. `reading()` sees committed transactions only, all of one moment, and never waits for a writer.
4. One database has one kind of owner. Of an SQLite file that is one process, and a second one is
   refused while the first lives. On PostgreSQL there may be any number; an experiment's row is
   locked while it is changed, and its version says whether a copy in memory is still true.
5. A database of an older version is brought up to date before it is used, and one of a newer
   version is refused.
6. A database that was written under another secret key is refused: digests of persons would not
   fit, and every cap would start again.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import sqlite3
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from alembic import command
from alembic.config import Config
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import (
    URL,
    Connection,
    Engine,
    create_engine,
    event,
    func,
    insert,
    make_url,
    select,
)
from sqlalchemy.exc import ArgumentError, DBAPIError, NoSuchModuleError, TimeoutError
from sqlalchemy.pool import QueuePool

from balaclava.service.credentials import Vault
from balaclava.service.problems import StartError
from balaclava.service.store.schema import meta
from balaclava.service.store.sql import VERSIONS, fetch
from balaclava.service.store.write_ahead_log import PAGES_LEFT_TO_COMMITS, WalCheckpointer

_MIGRATIONS = Path(__file__).parent / "migrations"
_CHECK = "a database and its key belong together"
_WAIT_SECONDS = 30
_ALONE = 0xBA1AC1A  # the number of a lock that PostgreSQL keeps for us
DATABASE_ERRORS = (
    DBAPIError,
    TimeoutError,
    sqlite3.Error,
)  # of a database that does not take what it is asked


class Storage:
    """A database, open. The module says what it promises."""

    def __init__(self, engine: Engine, lock: int | None = None) -> None:
        self.engine = engine
        self._lock = lock  # descriptor of the file that keeps a second process out
        self._checkpoints: WalCheckpointer | None = None  # of an SQLite file

    @classmethod
    def open(cls, url: str) -> Storage:
        """Connect, and bring the tables up to date."""
        engine = make_engine(url, PAGES_LEFT_TO_COMMITS)
        lock = _lock_file(engine.url.database) if engine.dialect.name == "sqlite" else None
        storage = cls(engine, lock)
        try:
            storage._migrate()
        except DBAPIError as error:
            storage.close()
            raise StartError(f"the database cannot be used: {driver_message(error)}") from None
        if storage.one_process:
            storage._checkpoints = WalCheckpointer(database_file(engine.url.database))
        return storage

    @property
    def one_process(self) -> bool:
        """Whether this process is the only one on the database."""
        return self._lock is not None

    @contextlib.contextmanager
    def writing(self) -> Iterator[Connection]:
        """A transaction that is on the disk when the block ends without an error."""
        with self.engine.begin() as connection:
            yield connection

    @contextlib.contextmanager
    def reading(self) -> Iterator[Connection]:
        """What is committed, as of one moment."""
        connection = self.engine.connect()
        if self.engine.dialect.name == "postgresql":
            connection = connection.execution_options(isolation_level="REPEATABLE READ")
        else:
            connection = connection.execution_options(balaclava_reads=True)
        with connection, connection.begin():
            yield connection

    def locked(self, connection: Connection, ids: list[int]) -> list[Sequence[Any]]:
        """Id and version of experiments, locked, in the order of their ids."""
        return fetch(connection, VERSIONS if self.one_process else f"{VERSIONS} FOR UPDATE", ids)

    def has_key(self) -> bool:
        """Whether it was written under a key."""
        with self.reading() as connection:
            return connection.scalar(select(meta.c.value).where(meta.c.name == "key")) is not None

    def require_key(self, vault: Vault) -> None:
        """Refuse a database that was written under another key."""
        check = vault.digest("check", _CHECK)
        with self.writing() as connection:
            advisory_lock(connection)
            stored = connection.scalar(select(meta.c.value).where(meta.c.name == "key"))
            if stored is None:
                connection.execute(insert(meta).values(name="key", value=check))
            elif stored != check:
                raise StartError(
                    "the secret key is not the one that this database was written under: persons "
                    "would not be recognised, and every cap would start again; put back the key "
                    "from the backup"
                )

    def close(self) -> None:
        """Disconnect, and let another process have the file."""
        if self._checkpoints is not None:
            self._checkpoints.stop()
            self._checkpoints = None
        self.engine.dispose()
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def _migrate(self) -> None:
        config = Config()
        config.set_main_option("script_location", str(_MIGRATIONS))
        script = ScriptDirectory.from_config(config)
        with self.engine.begin() as connection:
            advisory_lock(connection)
            current = MigrationContext.configure(connection).get_current_revision()
            if current is not None and current not in {
                revision.revision for revision in script.walk_revisions()
            }:
                raise StartError(
                    f"the database has schema {current}, which this version does not know; use "
                    "the version that wrote it, or a newer one"
                )
            if current != script.get_current_head():
                config.attributes["connection"] = connection
                command.upgrade(config, "head")


# A server, or another process of ours, that stands still must not hold this one for ever.
_PATIENCE = {
    "connect_timeout": 10,
    "tcp_user_timeout": 1_000 * _WAIT_SECONDS,
    "options": f"-c lock_timeout={_WAIT_SECONDS}s "
    f"-c idle_in_transaction_session_timeout={2 * _WAIT_SECONDS}s",
}


def advisory_lock(connection: Connection) -> None:
    """Let no other process do at the same time what is done once: tables, keys, experiments."""
    if connection.dialect.name == "postgresql":
        connection.execute(select(func.pg_advisory_xact_lock(_ALONE)))


def make_engine(url: str, pages: int = 1_000) -> Engine:
    """An engine for an address: a path of a file, sqlite:///path or postgresql://...

    A commit that leaves more than so many `pages` in SQLite's log moves them into its file.
    """
    try:
        address = make_url(url if "://" in url else f"sqlite:///{url}")
        if address.get_backend_name() == "sqlite":
            return _sqlite_engine(address, pages)
        if address.get_backend_name() == "postgresql":
            return create_engine(
                address.set(drivername="postgresql+psycopg"),
                pool_size=8,
                pool_pre_ping=True,
                isolation_level="READ COMMITTED",
                hide_parameters=True,  # of errors: they would be in the log
                connect_args=_PATIENCE,
            )
    except (ArgumentError, NoSuchModuleError, ModuleNotFoundError):
        pass
    raise StartError(
        "the database's address is not understood; give a path of a file or "
        "postgresql://user:password@host/name (extra balaclava[postgres])"
    )


def _sqlite_engine(url: URL, pages: int) -> Engine:
    engine = create_engine(
        url,
        poolclass=QueuePool,
        pool_size=8,
        max_overflow=8,
        hide_parameters=True,
        connect_args={"timeout": _WAIT_SECONDS, "check_same_thread": False},
    )

    @event.listens_for(engine, "connect")
    def _set_up(connection: Any, record: Any) -> None:
        connection.isolation_level = None  # transactions begin where we say
        cursor = connection.cursor()
        cursor.execute("PRAGMA journal_mode=WAL")
        cursor.execute("PRAGMA synchronous=FULL")
        cursor.execute("PRAGMA foreign_keys=ON")
        cursor.execute("PRAGMA cache_size=-65536")
        cursor.execute(f"PRAGMA wal_autocheckpoint={pages}")
        cursor.close()

    @event.listens_for(engine, "begin")
    def _begin(connection: Connection) -> None:
        reads = connection.get_execution_options().get("balaclava_reads")
        connection.exec_driver_sql("BEGIN" if reads else "BEGIN IMMEDIATE")

    return engine


def _lock_file(database: str | None) -> int:
    """Keep every other process off the file, for as long as this one lives."""
    database = database_file(database)
    path = Path(f"{os.path.realpath(database)}.lock")  # one file, however it is called
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    except OSError as error:
        raise StartError(f"{path} cannot be written: {error.strerror}") from None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(descriptor)
        raise StartError(
            f"{database} is in use by another process: two would each release the same rewards; "
            "stop the other one, or use PostgreSQL for several"
        ) from None
    try:
        create_private_file(database)  # rewards are in it
    except StartError:
        os.close(descriptor)
        raise
    return descriptor


def database_file(database: str | None) -> str:
    """The path of a file, and nothing else."""
    if not database or database == ":memory:" or database.startswith("file:"):
        raise StartError("a database in memory is lost with the process; give a path of a file")
    return database


def create_private_file(database: str) -> None:
    """Make the file, if there is none, so that nobody but its owner reads it.

    SQLite gives the files that it makes beside it the same mode.
    """
    try:
        os.close(os.open(database, os.O_RDWR | os.O_CREAT, 0o600))
    except OSError as error:
        raise StartError(f"{database} cannot be written: {error.strerror}") from None


def driver_message(error: DBAPIError | TimeoutError | sqlite3.Error) -> str:
    """What the driver said, in one line, without the statement and its values."""
    origin = error if isinstance(error, sqlite3.Error) else getattr(error, "orig", None)
    return str(origin).strip().splitlines()[0] if origin else "no connection was free in time"
