"""Backups of an SQLite database and its secret key, readable by their owner only.

The ledger is not part of a backup: restored with the database, it could not notice the restore.
"""

import contextlib
import os
import shutil
import sqlite3
import time
from pathlib import Path

from balaclava.service.credentials import Vault
from balaclava.service.problems import StartError
from balaclava.service.store.storage import (
    Storage,
    create_private_file,
    database_file,
    lock_file,
    make_engine,
)

_DATABASE, _KEY = "database.db", "secret.key"  # names in a backup
_LOG_ENDS = ("-wal", "-shm")  # of the files beside an SQLite database


def key_path(database: str, secrets: str | None) -> Path:
    """Where the secret key lies, as `balaclava serve` looks for it."""
    return Path(secrets) if secrets else Path(database).with_suffix(".key")


def sqlite_path(url: str) -> str:
    """The file of an SQLite database; raises for PostgreSQL, which has its own tools."""
    engine = make_engine(url)
    if engine.dialect.name != "sqlite":
        raise StartError(
            "a PostgreSQL database is backed up with pg_dump and restored with pg_restore; see "
            "docs/operate.md, and copy the secret key too"
        )
    return database_file(engine.url.database)


def back_up(url: str, secrets: str | None, folder: Path) -> Path:
    """Copy the database, also while the service runs, and its secret key; returns the copy.

    Each backup is a new folder, named after its time. It is complete, or it does not exist.
    """
    database = sqlite_path(url)
    name = time.strftime("%Y-%m-%dT%H-%M-%SZ", time.gmtime())
    part, target = folder / f"{name}.part", folder / name
    try:
        if not Path(database).exists():
            raise StartError(f"{database} does not exist; give --database")
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        part.mkdir(mode=0o700)
        create_private_file(str(part / _DATABASE))
        with contextlib.closing(sqlite3.connect(database, timeout=30.0)) as connection:
            connection.execute("VACUUM INTO ?", (str(part / _DATABASE),))
        _copy(key_path(database, secrets), part / _KEY)
        _flush(part / _DATABASE)
        part.rename(target)
    except (OSError, sqlite3.Error) as error:
        raise StartError(f"the backup failed: {error}") from None
    finally:
        shutil.rmtree(part, ignore_errors=True)
    return target


def restore(folder: Path, url: str, secrets: str | None) -> list[Path]:
    """Put a backup in place of the database; returns the files that were set aside.

    The service must not run. A secret key that is in place stays; it must be that of the backup.
    """
    database = sqlite_path(url)
    key = key_path(database, secrets)
    for name in (_DATABASE, _KEY):
        if not (folder / name).is_file():
            raise StartError(f"{folder} is not a backup: it has no {name}")
    if key.exists() and key.read_bytes() != (folder / _KEY).read_bytes():
        raise StartError(
            f"{key} is not the secret key of the backup; move it away to use the backup's"
        )
    new = Path(f"{database}.restored")
    lock = lock_file(database)
    try:
        _copy(folder / _DATABASE, new)
        with contextlib.closing(sqlite3.connect(new)) as connection:
            (verdict,) = connection.execute("PRAGMA integrity_check").fetchone()
        if verdict != "ok":
            fault = " ".join(verdict.split())
            raise StartError(f"the backup's database is damaged: {fault}; use another backup")
        aside = _set_aside(database)
        os.replace(new, database)
        if not key.exists():
            _copy(folder / _KEY, key)
    except (OSError, sqlite3.Error) as error:
        raise StartError(f"the restore failed: {error}") from None
    finally:
        new.unlink(missing_ok=True)
        os.close(lock)
    storage = Storage.open(url)
    try:
        storage.require_key(Vault.open(key, new=False))
    finally:
        storage.close()
    return aside


def _set_aside(database: str) -> list[Path]:
    """Rename the database and its log, which may hold commits that the backup lacks."""
    suffix = time.strftime("before-%Y-%m-%dT%H-%M-%SZ", time.gmtime())
    aside = []
    for end in ("", *_LOG_ENDS):
        path = Path(f"{database}{end}")
        if path.exists() and (end or path.stat().st_size):
            aside.append(path.rename(f"{database}.{suffix}{end}"))
    return aside


def _copy(source: Path, target: Path) -> None:
    """Copy a file to one that only its owner can read, on the disk when this returns."""
    target.unlink(missing_ok=True)
    create_private_file(str(target))
    shutil.copyfile(source, target)
    _flush(target)


def _flush(path: Path) -> None:
    with path.open("rb") as file:
        os.fsync(file.fileno())
