"""What every commit asks and writes, in SQL that both databases take, given to the driver as it is.

SQLAlchemy's care for a row takes several times as long as the database does. A `?` stands for a
value, and `(*)` for a list of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from operator import itemgetter
from typing import Any

from sqlalchemy import Boolean, Connection, Table

from balaclava.service import schema

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


class Rows:
    """Rows of a table as dicts: how they are added, and how they are read."""

    def __init__(self, table: Table, *without: str) -> None:
        self._names = [column.name for column in table.columns if column.name not in without]
        self._flags = [column.name for column in table.columns if isinstance(column.type, Boolean)]
        names, places = ", ".join(self._names), ", ".join("?" * len(self._names))
        self._add = f"INSERT INTO {table.name} ({names}) VALUES ({places})"
        self._read = f"SELECT {names} FROM {table.name} "
        self._values: Callable[[Mapping[str, Any]], tuple[Any, ...]] = itemgetter(*self._names)

    def add(self, connection: Connection, rows: Iterable[Mapping[str, Any]]) -> None:
        """Add rows."""
        change(connection, self._add, list(map(self._values, rows)))

    def read(
        self, connection: Connection, condition: str, values: Iterable[Any], *first: Any
    ) -> list[dict[str, Any]]:
        """Rows that fulfil a condition, as `ask` takes it."""
        answer = ask(connection, self._read + condition, values, *first)
        rows = [dict(zip(self._names, row, strict=True)) for row in answer]
        for name in self._flags:  # SQLite has numbers alone
            for row in rows:
                row[name] = bool(row[name])
        return rows


DECISIONS = Rows(schema.decisions)
REQUESTS_MADE = Rows(schema.requests)
SNAPSHOTS = Rows(schema.snapshots, "id")


def change(connection: Connection, statement: str, rows: Sequence[tuple[Any, ...]]) -> None:
    """Execute a statement with each of the rows."""
    if rows:
        connection.exec_driver_sql(_marked(connection, statement), list(rows))


def ask(
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
        rows = connection.exec_driver_sql(_marked(connection, text), (*first, *some))
        answer += rows.fetchall()
    return answer


def _marked(connection: Connection, statement: str) -> str:
    return statement if connection.dialect.name == "sqlite" else statement.replace("?", "%s")
