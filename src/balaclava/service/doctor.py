"""`balaclava doctor`: what is wrong with a service's files and settings, and what to do.

It only reads, also while the service runs.
"""

import os
import platform
import shutil
import stat
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import sqlalchemy as sa

import balaclava
from balaclava.errors import BalaclavaError
from balaclava.service.credentials import Vault
from balaclava.service.engine.writer import Clock
from balaclava.service.problems import StartError
from balaclava.service.start_checks import compare, set_clock
from balaclava.service.store.backup import key_path
from balaclava.service.store.ledger import Ledger
from balaclava.service.store.storage import Storage, driver_message, make_engine

_LEAST_FREE = 500_000_000  # bytes: a day of a million decisions, with a margin for the log


class _NotAdvisedError(BalaclavaError):
    """A service can run so, but should not for long."""


class Finding(NamedTuple):
    """A check: its subject, whether all is well (None: a warning), and the result or what to do."""

    subject: str
    well: bool | None
    text: str


def examine(database: str, ledger: str | None, secrets: str | None) -> Iterator[Finding]:
    """Examine a service's parts, given as to `balaclava serve`."""
    engine = make_engine(database)
    file = engine.url.database if engine.dialect.name == "sqlite" else None
    ledger = ledger or (f"{Path(file).with_suffix('')}.ledger" if file else "balaclava.ledger")
    key = key_path(file or "balaclava.db", secrets)
    if file is not None and not Path(file).exists():
        advice = f"{file} does not exist; give --database, or start the service first"
        yield Finding("database", False, advice)
        return
    storage = Storage(engine)  # without the lock, and without migrations
    checks: dict[str, Callable[[], str]] = {
        "versions": _versions,
        "database": lambda: _check_database(storage, file),
        "secret key": lambda: _check_key(storage, key),
        "ledger": lambda: _check_ledger(storage, ledger),
        "permissions": lambda: _check_permissions(file, ledger, key),
        "disk": lambda: _check_disk(file, ledger),
    }
    for subject, check in checks.items():
        try:
            yield Finding(subject, True, check())
        except _NotAdvisedError as warning:
            yield Finding(subject, None, str(warning))
        except BalaclavaError as error:
            yield Finding(subject, False, str(error))
        except sa.exc.DBAPIError as error:
            yield Finding(subject, False, driver_message(error))
    engine.dispose()


def _versions() -> str:
    return f"balaclava {balaclava.__version__}, Python {platform.python_version()}"


def _check_database(storage: Storage, file: str | None) -> str:
    storage.require_known_schema()
    with storage.reading() as connection:
        if file is not None:
            verdict = str(connection.exec_driver_sql("PRAGMA quick_check").scalar())
            if verdict != "ok":
                raise StartError(f"it is damaged: {' '.join(verdict.split())}; restore a backup")
            return "SQLite, not damaged"
        if connection.exec_driver_sql("SELECT pg_is_in_recovery()").scalar():
            raise StartError("it is a replica; give the address of the primary server")
        if connection.exec_driver_sql("SHOW synchronous_commit").scalar() == "off":
            raise StartError("synchronous_commit is off: acknowledged answers may be lost; set on")
        return "PostgreSQL, a primary server with synchronous commits"


def _check_key(storage: Storage, key: Path) -> str:
    storage.check_key(Vault.open(key, new=False))
    return f"{key} belongs to the database"


def _check_ledger(storage: Storage, url: str) -> str:
    if "://" not in url and not Path(url).exists():
        raise StartError(f"{url} does not exist; give --ledger, or restore the newest ledger")
    ledger = Ledger.open(url)
    try:
        comparison = compare(storage, ledger)
        set_clock(Clock(), comparison.last)
        ledger.require_intact()
        overspent = [name for name, budget in ledger.budgets().items() if budget.overspent]
    finally:
        ledger.close()
    if comparison.behind:
        raise StartError(
            "the database is behind it: restored from a backup, or a replica that lagged; start "
            "the service once with --restored"
        )
    if overspent:
        raise StartError(
            f"populations {', '.join(map(repr, overspent))} have spent more than their totals and "
            "do not learn; raise the totals, or finish their experiments"
        )
    return "it agrees with the database, and so does the clock"


def _check_permissions(file: str | None, ledger: str, key: Path) -> str:
    files = [Path(path) for path in (file, ledger, str(key)) if path and "://" not in path]
    for path in (path for path in files if path.exists()):
        if stat.S_IMODE(path.stat().st_mode) & 0o077:
            raise StartError(f"others can read {path}; run chmod 600 {path}")
        if not os.access(path, os.R_OK | os.W_OK):
            raise StartError(f"this user cannot write {path}; run as the service's user")
    return "only their owner can read the files"


def _check_disk(file: str | None, ledger: str) -> str:
    files = [Path(path).resolve() for path in (file, ledger) if path and "://" not in path]
    folders = [path.parent for path in files if path.parent.exists()]
    for folder in folders:
        free = shutil.disk_usage(folder).free
        if free < _LEAST_FREE:
            raise StartError(f"{folder} has {free / 1e6:,.0f} MB left; make room")
    if len(files) == 2 and len({folder.stat().st_dev for folder in folders}) == 1:
        raise _NotAdvisedError(
            "the ledger is on the database's disk: a snapshot restores both, which goes unnoticed; "
            "give --ledger on another one"
        )
    return "there is room"
