"""The SQL of commits, for both databases. The driver executes it directly.

Per row, SQLAlchemy takes several times as long as the database. `?` stands for a value, and `(*)`
for a list of values.
"""

import sqlite3
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache
from typing import Any

from sqlalchemy import Boolean, Connection, Table
from sqlalchemy.exc import DBAPIError, IntegrityError

from balaclava.service.store import schema

_LEAST_COPIED = 8  # rows; below it, COPY and INSERT cost the same
_VALUES_PER_QUERY = 5_000  # below the limits of SQLite (32,766) and PostgreSQL (65,535)

# Columns that change
EXPERIMENT_COLUMNS = (
    "version",
    "state",
    "books",
    "policy_state",
    "next_due",
    "next_cleanup",
    "guardrails",
    "settings",
)
UPDATE_EXPERIMENT = f"UPDATE experiments SET {' = ?, '.join(EXPERIMENT_COLUMNS)} = ? WHERE id = ?"
UPDATE_DECISION = (
    "UPDATE decisions SET state = ?, kind = ?, value = ?, metrics = ?, exposed = ? WHERE id = ?"
)
ERASE_DECISION = (
    "UPDATE decisions SET kind = ?, value = NULL, person = NULL, request = NULL, position = NULL, "
    "propensity = NULL, level = NULL, features = NULL, "
    "metrics = NULL WHERE id = ?"
)
DELETE_DECISIONS = "DELETE FROM decisions WHERE id IN (*)"
DELETE_REQUESTS = "DELETE FROM requests WHERE id IN (*)"
HELD_BATCH = (  # the next batch with held rewards
    "SELECT arm, phase FROM decisions WHERE experiment = ? AND value IS NOT NULL AND state <> 0 "
    "AND (arm, phase) > (?, ?) ORDER BY arm, phase LIMIT 1"
)
DROP_HELD = (
    "UPDATE decisions SET kind = NULL, value = NULL WHERE id IN (SELECT id FROM decisions WHERE "
    "experiment = ? AND arm = ? AND phase = ? AND value IS NOT NULL AND state <> 0 LIMIT ?)"
)
DROP_METRICS = (
    "UPDATE decisions SET metrics = NULL WHERE experiment = ? AND arm = ? AND metrics IS NOT NULL "
    "AND round < ? AND state <> 0"
)
OLD_DECISIONS = (
    "SELECT id, round, arm, phase, made, state, request FROM decisions "
    "WHERE experiment = ? AND made < ? ORDER BY made LIMIT ?"
)
SINCE = "SELECT count(*) FROM decisions WHERE experiment = ? AND made >= ?"
OLDEST_DECISION = "SELECT min(made) FROM decisions WHERE experiment = ?"
UPSERT_PERSON = (
    "INSERT INTO persons (experiment, digest, decisions, arm, decision) VALUES (?, ?, ?, ?, ?) "
    "ON CONFLICT (experiment, digest) DO UPDATE SET decisions = excluded.decisions, "
    "arm = excluded.arm, decision = excluded.decision"
)
ADD_PERSON = (
    "INSERT INTO persons (experiment, digest, decisions) VALUES (?, ?, 0) ON CONFLICT DO NOTHING"
)
SEGMENTS = "SELECT segment FROM members WHERE population = ? AND digest IN (*)"
JOIN_SEGMENT = (
    "INSERT INTO members (population, digest, segment) VALUES (?, ?, ?) ON CONFLICT DO NOTHING"
)
UPSERT_META = (
    "INSERT INTO meta (name, value) VALUES (?, ?) "
    "ON CONFLICT (name) DO UPDATE SET value = excluded.value"
)
END_SESSION = "INSERT INTO ended_sessions (digest, expires) VALUES (?, ?) ON CONFLICT DO NOTHING"
QUEUE_DELIVERY = (
    "INSERT INTO deliveries (webhook, event, body, attempts, due) VALUES (?, ?, ?, 0, ?) "
    "ON CONFLICT (webhook, event) DO NOTHING"
)
COUNT_COMMIT = (
    "UPDATE meta SET value = CAST(CAST(value AS BIGINT) + 1 AS TEXT) WHERE name IN (*) "
    "RETURNING value"
)
EXPERIMENT_IDS = "SELECT id FROM experiments WHERE name IN (*)"
VERSIONS = "SELECT id, version FROM experiments WHERE id IN (*) ORDER BY id"
PERSONS = (
    "SELECT digest, decisions, arm, decision FROM persons WHERE experiment = ? AND digest IN (*)"
)
REQUESTS = "SELECT id, digest, body FROM requests WHERE experiment = ? AND digest IN (*)"


class TableRows:
    """Inserts and reads the rows of a table as dicts."""

    def __init__(self, table: Table) -> None:
        self._table = table
        self._names = [column.name for column in table.columns]
        self._read = f"SELECT {', '.join(self._names)} FROM {table.name} "
        self._insert = cache(self._insert_statement)

    def insert(self, connection: Connection, rows: Iterable[Mapping[str, Any]]) -> None:
        """Insert rows. A missing column is NULL; a flag is 0 or 1."""
        alike: dict[tuple[str, ...], list[tuple[Any, ...]]] = defaultdict(list)
        for row in rows:
            alike[tuple(row)].append(tuple(row.values()))
        copies = connection.dialect.name == "postgresql"
        for names, values in alike.items():
            if copies and len(values) >= _LEAST_COPIED:
                _copy(
                    connection, f"COPY {self._table.name} ({', '.join(names)}) FROM STDIN", values
                )
            else:
                execute_many(connection, self._insert(names), values)

    def _insert_statement(self, names: tuple[str, ...]) -> str:
        flags = {name for name in names if isinstance(self._table.c[name].type, Boolean)}
        places = ", ".join("(? = 1)" if name in flags else "?" for name in names)
        return f"INSERT INTO {self._table.name} ({', '.join(names)}) VALUES ({places})"

    def read(
        self, connection: Connection, condition: str, values: Iterable[Any], *first: Any
    ) -> list[dict[str, Any]]:
        """Read the rows that meet a condition, written as for `fetch`."""
        rows = fetch(connection, self._read + condition, values, *first)
        return [dict(zip(self._names, row, strict=True)) for row in rows]


DECISIONS = TableRows(schema.decisions)
REQUEST_ROWS = TableRows(schema.requests)
SNAPSHOTS = TableRows(schema.snapshots)


def execute_many(connection: Connection, statement: str, rows: Sequence[tuple[Any, ...]]) -> int:
    """Execute a statement for each row of values; returns the number of changed rows."""
    if not rows:
        return 0
    if connection.dialect.name == "sqlite":
        return _sqlite(connection).executemany(statement, rows).rowcount
    return connection.exec_driver_sql(statement.replace("?", "%s"), list(rows)).rowcount


def _copy(connection: Connection, statement: str, rows: Iterable[tuple[Any, ...]]) -> None:
    """Insert rows by COPY, which takes PostgreSQL a third of the time of as many INSERTs."""
    import psycopg

    plain: psycopg.Connection[Any] = connection.connection.driver_connection  # type: ignore[assignment]
    try:
        with plain.cursor() as cursor, cursor.copy(statement) as copy:
            for row in rows:
                copy.write_row(row)
    except psycopg.Error as error:
        kind = IntegrityError if isinstance(error, psycopg.IntegrityError) else DBAPIError
        raise kind(statement, None, error) from None


def execute(
    connection: Connection, statement: str, *values: Any
) -> tuple[list[Sequence[Any]], int]:
    """Execute a statement; returns its rows, and the number of rows that it changed."""
    if connection.dialect.name == "sqlite":
        cursor = _sqlite(connection).execute(statement, values)
        return cursor.fetchall(), cursor.rowcount
    result = connection.exec_driver_sql(statement.replace("?", "%s"), values)
    return (list(result) if result.returns_rows else []), result.rowcount


def fetch(
    connection: Connection, query: str, values: Iterable[Any], *first: Any
) -> list[Sequence[Any]]:
    """Run a query for a list of values, in chunks; `first` are the values before the list."""
    chunks = _in_chunks(connection, query, values, first)
    return [row for result in chunks for row in result]


def execute_for(connection: Connection, statement: str, values: Iterable[Any]) -> None:
    """Execute a statement without rows for a list of values, in chunks."""
    for _ in _in_chunks(connection, statement, values, ()):
        pass


def _in_chunks(
    connection: Connection, statement: str, values: Iterable[Any], first: tuple[Any, ...]
) -> Iterator[Any]:
    items = list(values)
    for start in range(0, len(items), _VALUES_PER_QUERY):
        some = items[start : start + _VALUES_PER_QUERY]
        text = statement.replace("(*)", f"({', '.join('?' * len(some))})")
        if connection.dialect.name == "sqlite":
            yield _sqlite(connection).execute(text, (*first, *some))
        else:
            yield connection.exec_driver_sql(text.replace("?", "%s"), (*first, *some))


def begin_sqlite(connection: Connection, statement: str) -> None:
    """Begin a transaction. SQLAlchemy takes longer than SQLite for that, too."""
    try:
        _sqlite(connection).execute(statement)
    except sqlite3.Error as error:
        raise DBAPIError(statement, None, error) from None


def execute_pragma(connection: Connection, setting: str) -> None:
    """Change a setting of an SQLite connection, outside a transaction."""
    _sqlite(connection).execute(f"PRAGMA {setting}").close()


def _sqlite(connection: Connection) -> sqlite3.Connection:
    """SQLite's own connection. PostgreSQL stays with SQLAlchemy, which replaces broken ones."""
    plain: sqlite3.Connection = connection.connection.driver_connection  # type: ignore[assignment]
    return plain
