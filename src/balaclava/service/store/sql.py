"""What every commit asks and writes, in SQL that both databases take, given to the driver as it is.

SQLAlchemy's care for a row takes several times as long as the database does. A `?` stands for a
value, and `(*)` for a list of them.
"""

from __future__ import annotations

import sqlite3
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from typing import Any

from sqlalchemy import Boolean, Connection, Table

from balaclava.service.store import schema

_AT_ONCE = 5_000  # values in one question

CHANGING = ("version", "state", "books", "policy_state", "next_due")  # of an experiment
CHANGE_EXPERIMENT = f"UPDATE experiments SET {' = ?, '.join(CHANGING)} = ? WHERE id = ?"
CHANGE_DECISION = "UPDATE decisions SET state = ?, kind = ?, value = ? WHERE id = ?"
COUNT_PERSON = (
    "INSERT INTO persons (experiment, digest, decisions) VALUES (?, ?, ?) "
    "ON CONFLICT (experiment, digest) DO UPDATE SET decisions = excluded.decisions"
)
IDS_OF_NAMES = "SELECT id FROM experiments WHERE name IN (*)"
VERSIONS = "SELECT id, version FROM experiments WHERE id IN (*) ORDER BY id"
PERSONS = "SELECT digest, decisions FROM persons WHERE experiment = ? AND digest IN (*)"
REQUESTS = "SELECT id, digest, body FROM requests WHERE experiment = ? AND digest IN (*)"


class TableRows:
    """Rows of a table as dicts: how they are added, and how they are read."""

    def __init__(self, table: Table) -> None:
        self._table = table
        self._names = [column.name for column in table.columns]
        self._read = f"SELECT {', '.join(self._names)} FROM {table.name} "
        self._add = cache(self._adding)

    def add(self, connection: Connection, rows: Iterable[Mapping[str, Any]]) -> None:
        """Add rows. What one does not name is NULL; a flag is 0 or 1."""
        alike: dict[tuple[str, ...], list[tuple[Any, ...]]] = defaultdict(list)
        for row in rows:
            alike[tuple(row)].append(tuple(row.values()))
        for names, values in alike.items():
            execute_many(connection, self._add(names), values)

    def _adding(self, names: tuple[str, ...]) -> str:
        flags = {name for name in names if isinstance(self._table.c[name].type, Boolean)}
        places = ", ".join("(? = 1)" if name in flags else "?" for name in names)
        return f"INSERT INTO {self._table.name} ({', '.join(names)}) VALUES ({places})"

    def read(
        self, connection: Connection, condition: str, values: Iterable[Any], *first: Any
    ) -> list[dict[str, Any]]:
        """Rows that fulfil a condition, as `fetch` takes it; all columns, flags as they come."""
        answer = fetch(connection, self._read + condition, values, *first)
        return [dict(zip(self._names, row, strict=True)) for row in answer]


DECISIONS = TableRows(schema.decisions)
REQUESTS_MADE = TableRows(schema.requests)
SNAPSHOTS = TableRows(schema.snapshots)


def execute_many(connection: Connection, statement: str, rows: Sequence[tuple[Any, ...]]) -> int:
    """Execute a statement with each of the rows; how many rows of the table it changed."""
    if not rows:
        return 0
    if connection.dialect.name == "sqlite":
        return _plain(connection).executemany(statement, rows).rowcount
    return connection.exec_driver_sql(statement.replace("?", "%s"), list(rows)).rowcount


def fetch(
    connection: Connection, question: str, values: Iterable[Any], *first: Any
) -> list[Sequence[Any]]:
    """The rows that answer a question about a list of values, so many at once; `first` are the
    values that stand before the list.
    """
    answer: list[Sequence[Any]] = []
    items = list(values)
    for start in range(0, len(items), _AT_ONCE):
        some = items[start : start + _AT_ONCE]
        text = question.replace("(*)", f"({', '.join('?' * len(some))})")
        if connection.dialect.name == "sqlite":
            answer += _plain(connection).execute(text, (*first, *some))
        else:
            answer += connection.exec_driver_sql(text.replace("?", "%s"), (*first, *some))
    return answer


def _plain(connection: Connection) -> sqlite3.Connection:
    """SQLite's own connection. PostgreSQL's are left to SQLAlchemy: those may break, and it sees
    to that.
    """
    plain: sqlite3.Connection = connection.connection.driver_connection  # type: ignore[assignment]
    return plain
