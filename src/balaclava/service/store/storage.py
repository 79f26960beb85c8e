"""The service's database: one interface for SQLite and PostgreSQL.

The contract of a storage; one test suite checks it on both databases:

1. When a `writing()` block ends, its transaction is on the disk. If the block raises, nothing of
   it remains.
2. `writing()` transactions that lock the same experiment are serialised. Each sees the commits
   of those before it.
3. `reading()` sees one snapshot of committed transactions, and never waits for a writer.
4. An SQLite file has one process; a second is refused while the first lives. PostgreSQL takes any
   number: a change locks the experiment's row, and the row's version invalidates cached copies.
5. An older schema is migrated before use. A newer one is refused.
6. The rows `commits...` of `meta` count the commits of each writing process, for the ledger.
7. A database whose file was deleted or replaced since it was opened refuses further commits.
8. A database written under another secret key is refused: its digests of persons would not
   match, and every participant's limit would start again.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import sqlite3
import threading
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, cast

import sqlalchemy as sa
from alembic import command
from alembic.config import Config
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy.exc import ArgumentError, DBAPIError, NoSuchModuleError, TimeoutError
from sqlalchemy.pool import QueuePool

from balaclava.service.credentials import Vault
from balaclava.service.problems import StartError
from balaclava.service.store.files_in_place import FilesInPlace
from balaclava.service.store.schema import meta
from balaclava.service.store.sql import (
    UPSERT_META,
    VERSIONS,
    begin_sqlite,
    execute_many,
    execute_pragma,
    fetch,
)
from balaclava.service.store.write_ahead_log import LONGEST_LOG, WalCheckpointer

_MIGRATIONS = Path(__file__).parent / "migrations"
_STORED_KEY = sa.select(meta.c.value).where(meta.c.name == "key")
_KEY_CHECK = "a database and its key belong together"  # stored as a digest: never change it
_LOCK_SECONDS = 30  # timeout of a lock, as long as a request may wait for its answer
_COMMITS = "commits"  # name in `meta`, and in the ledger: never change it
_RECORDED_COUNT = "recorded "  # in `meta`, before the name of a counter
_ADVISORY_LOCK = 0xBA1AC1A  # number of the advisory lock in PostgreSQL: never change it
_CACHE_KIB = 65_536  # of the connection that writes to SQLite; a million open decisions are 150 MB
DATABASE_ERRORS = (DBAPIError, TimeoutError, sqlite3.Error)  # a failure, or a refused statement


class Storage:
    """An open database. The module's docstring is its contract."""

    def __init__(self, engine: sa.Engine, lock: int | None = None) -> None:
        self.engine = engine
        self._lock = lock  # file descriptor of the lock file; None on PostgreSQL
        # SQLite only. One connection writes, and has a large cache of pages: SQLite drops a cache
        # once another connection has written.
        self._writing, self._writer = threading.Lock(), cast(sa.Connection | None, None)
        self._path = str(engine.url.database)
        self._checkpointer: WalCheckpointer | None = None
        self._files: FilesInPlace | None = None

    @classmethod
    def open(cls, url: str) -> Storage:
        """Connect, and migrate to the current schema."""
        engine = make_engine(url, LONGEST_LOG)
        lock = lock_file(engine.url.database) if engine.dialect.name == "sqlite" else None
        storage = cls(engine, lock)
        try:
            storage._migrate()
        except DBAPIError as error:
            storage.close()
            raise StartError(f"cannot use the database: {driver_message(error)}") from None
        if storage.one_process:
            storage._checkpointer = WalCheckpointer(storage._path)  # it keeps the log's file open
            advice = "put the files back or restore a backup, and start it with --restored"
            storage._files = FilesInPlace(storage._path, "database", advice)
        return storage

    @property
    def one_process(self) -> bool:
        """Whether only this process may use the database."""
        return self._lock is not None

    @contextlib.contextmanager
    def writing(self) -> Iterator[sa.Connection]:
        """A writing transaction, on the disk when the block ends."""
        if not self.one_process:
            with self.engine.begin() as connection:
                yield connection
            return
        with self._writing:
            connection, self._writer = self._writer or self._new_writer(), None
            try:
                with connection.begin():
                    yield connection
            except BaseException:
                connection.invalidate()
                connection.close()
                raise
            self._writer = connection

    def _new_writer(self) -> sa.Connection:
        connection = self.engine.connect()
        execute_pragma(connection, f"cache_size=-{_CACHE_KIB}")
        return connection

    @contextlib.contextmanager
    def reading(self) -> Iterator[sa.Connection]:
        """A reading transaction on one snapshot."""
        connection = self.engine.connect()
        if self.engine.dialect.name == "postgresql":
            connection = connection.execution_options(isolation_level="REPEATABLE READ")
        else:
            connection = connection.execution_options(balaclava_reads=True)
        with connection, connection.begin():
            yield connection

    def locked(self, connection: sa.Connection, ids: list[int]) -> list[Sequence[Any]]:
        """Lock experiments in the order of their ids; returns each id and version."""
        return fetch(
            connection, VERSIONS if self.one_process else f"{VERSIONS} FOR NO KEY UPDATE", ids
        )

    def has_key(self) -> bool:
        """Whether it was written under a secret key."""
        with self.reading() as connection:
            return connection.scalar(_STORED_KEY) is not None

    def require_key(self, vault: Vault) -> None:
        """Raise if the database was written under another secret key; store it if it is new."""
        with self.writing() as connection:
            advisory_lock(connection)
            if connection.scalar(_STORED_KEY) is None:
                check = vault.digest("check", _KEY_CHECK)
                connection.execute(sa.insert(meta).values(name="key", value=check))
        self.check_key(vault)

    def check_key(self, vault: Vault) -> None:
        """Raise if the database was written under another secret key."""
        with self.reading() as connection:
            stored = connection.scalar(_STORED_KEY)
        if stored != vault.digest("check", _KEY_CHECK):
            raise StartError(
                "the secret key does not match this database: participants would not be "
                "recognised, and their limits would start again; restore the key file from the "
                "backup"
            )

    def commit_counters(self, connection: sa.Connection) -> dict[str, int]:
        """The number of commits of each writing process, by its name in the ledger."""
        mine = meta.c.name.startswith(_COMMITS)
        rows = connection.execute(sa.select(meta.c.name, meta.c.value).where(mine)).all()
        return {row.name: int(row.value) for row in rows}

    def recorded_counters(self, connection: sa.Connection) -> dict[str, int]:
        """The counts that the ledger had when each process stopped in order."""
        mine = meta.c.name.startswith(_RECORDED_COUNT)
        rows = connection.execute(sa.select(meta.c.name, meta.c.value).where(mine)).all()
        return {row.name.removeprefix(_RECORDED_COUNT): int(row.value) for row in rows}

    def note_recorded(self, name: str) -> None:
        """Note that the ledger has all of a process's commits."""
        with self.writing() as connection:
            count = self.commit_counters(connection).get(name, 0)
            execute_many(connection, UPSERT_META, [(f"{_RECORDED_COUNT}{name}", str(count))])

    def set_commit_counters(self, connection: sa.Connection, counts: Mapping[str, int]) -> None:
        rows = [(name, str(count)) for name, count in sorted(counts.items())]
        execute_many(connection, UPSERT_META, rows)

    def new_commit_counter(self) -> str:
        """The name of this process's counter: processes that share a database do not share one."""
        name = _COMMITS if self.one_process else f"{_COMMITS} {secrets.token_hex(8)}"
        with self.writing() as connection:
            if name not in self.commit_counters(connection):
                self.set_commit_counters(connection, {name: 0})
        return name

    def require_in_place(self) -> None:
        """Raise if SQLite's files are not those that were opened: commits to them are lost."""
        if self._files is not None:
            self._files.require()

    def close(self) -> None:
        if self._checkpointer is not None:
            self._checkpointer.stop()
            self._checkpointer = None
        if self._writer is not None:
            self._writer.close()
            self._writer = None
        self.engine.dispose()
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def require_known_schema(self) -> None:
        """Raise if a newer version wrote the database."""
        with self.reading() as connection:
            _require_known(connection, _migrations())

    def schema_version(self) -> str | None:
        """The version of the database's schema."""
        with self.reading() as connection:
            return MigrationContext.configure(connection).get_current_revision()

    def _migrate(self) -> None:
        config = _migrations()
        with self.engine.begin() as connection:
            advisory_lock(connection)
            if _require_known(connection, config) != _script(config).get_current_head():
                config.attributes["connection"] = connection
                command.upgrade(config, "head")


def _migrations() -> Config:
    config = Config()
    config.set_main_option("script_location", str(_MIGRATIONS))
    return config


def _script(config: Config) -> ScriptDirectory:
    return ScriptDirectory.from_config(config)


def _require_known(connection: sa.Connection, config: Config) -> str | None:
    """The database's schema; raises if this version does not know it."""
    current = MigrationContext.configure(connection).get_current_revision()
    known = {revision.revision for revision in _script(config).walk_revisions()}
    if current is not None and current not in known:
        raise StartError(
            f"this version does not know the database's schema {current!r}; use the version of "
            "balaclava that wrote it, or a newer one"
        )
    return current


# Timeouts: a server or process that hangs must not block this one.
_POSTGRES_TIMEOUTS = {
    "connect_timeout": 10,
    "tcp_user_timeout": 1_000 * _LOCK_SECONDS,
    "options": f"-c lock_timeout={_LOCK_SECONDS}s "
    f"-c idle_in_transaction_session_timeout={2 * _LOCK_SECONDS}s",
}


def is_counter(uid: str) -> bool:
    """Whether a uid of the ledger is that of a process's commits."""
    return uid.startswith(_COMMITS)


def advisory_lock(connection: sa.Connection) -> None:
    """Serialise migrations and the creation of keys and experiments across processes."""
    if connection.dialect.name == "postgresql":
        connection.execute(sa.select(sa.func.pg_advisory_xact_lock(_ADVISORY_LOCK)))


def make_engine(url: str, pages: int = 1_000) -> sa.Engine:
    """Make an engine for a file path, sqlite:///path or postgresql://...

    SQLite checkpoints its write-ahead log within a commit once it exceeds `pages`.
    """
    try:
        address = sa.make_url(url if "://" in url else f"sqlite:///{url}")
        if address.get_backend_name() == "sqlite":
            return _sqlite_engine(address, pages)
        if address.get_backend_name() == "postgresql":
            return sa.create_engine(
                address.set(drivername="postgresql+psycopg"),
                pool_size=8,
                pool_pre_ping=True,
                isolation_level="READ COMMITTED",
                hide_parameters=True,  # errors with values would reach the log
                connect_args=_POSTGRES_TIMEOUTS,
            )
    except (ArgumentError, NoSuchModuleError, ModuleNotFoundError):
        pass
    raise StartError(
        "the database URL is not valid; give a file path or postgresql://user:password@host/name "
        "(needs the extra balaclava[postgres])"
    )


def _sqlite_engine(url: sa.URL, pages: int) -> sa.Engine:
    engine = sa.create_engine(
        url,
        poolclass=QueuePool,
        pool_size=8,
        max_overflow=8,
        pool_use_lifo=True,
        hide_parameters=True,
        connect_args={"timeout": _LOCK_SECONDS, "check_same_thread": False},
    )

    @sa.event.listens_for(engine, "connect")
    def _set_up(connection: Any, record: Any) -> None:
        connection.isolation_level = None  # _begin starts transactions
        for setting in (
            "auto_vacuum=INCREMENTAL",  # of new files: they give free pages back, see `cleanup`
            "secure_delete=ON",  # rewards and shares that were deleted are overwritten
            *("journal_mode=WAL", "synchronous=FULL", "foreign_keys=ON"),
            f"wal_autocheckpoint={pages}",
        ):
            connection.execute(f"PRAGMA {setting}").close()

    @sa.event.listens_for(engine, "begin")
    def _begin(connection: sa.Connection) -> None:
        reads = connection.get_execution_options().get("balaclava_reads")
        begin_sqlite(connection, "BEGIN" if reads else "BEGIN IMMEDIATE")

    return engine


def lock_file(database: str | None) -> int:
    """Lock the database file for this process; returns the lock file's descriptor."""
    try:
        import fcntl
    except ImportError:
        raise StartError(
            "an SQLite database needs file locks of a POSIX system (Linux, macOS, WSL); on Windows "
            "use WSL, or a PostgreSQL database"
        ) from None
    database = database_file(database)
    path = f"{os.path.realpath(database)}.lock"  # the same for every link to the file
    descriptor = _open_private(path)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        create_private_file(database)  # it will contain rewards
    except OSError:
        os.close(descriptor)
        raise StartError(
            f"{database} is in use by another process, and two would release the same rewards "
            "twice; stop the other process, or use PostgreSQL"
        ) from None
    except StartError:
        os.close(descriptor)
        raise
    return descriptor


def database_file(database: str | None) -> str:
    """The path of a database file; raises for a database in memory."""
    if not database or database == ":memory:" or database.startswith("file:"):
        raise StartError("a database in memory is lost with the process; give a file path")
    return database


def create_private_file(database: str) -> None:
    """Create a file, if it does not exist, that only its owner can read.

    SQLite gives its own files beside it the same mode.
    """
    os.close(_open_private(database))


def _open_private(path: str) -> int:
    try:
        return os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    except OSError as error:
        raise StartError(f"cannot write {path}: {error.strerror}") from None


def driver_message(error: DBAPIError | TimeoutError | sqlite3.Error) -> str:
    """The driver's message in one line, without the statement and its values."""
    origin = error if isinstance(error, sqlite3.Error) else getattr(error, "orig", None)
    if not origin:
        return "timeout while waiting for a free connection"
    return str(origin).strip().splitlines()[0]
