"""What lies outside the database: what was charged to whom, and how far each experiment was.

A database that is put back from a backup forgets. What it has forgotten was seen by people all the
same: releases that will be drawn anew, decisions that will learn a second time. So an experiment's
version is written here, and flushed, before each commit of it. At the start a database that is
behind was put back, and the service goes on only when told so, after charging once more what was
unfinished.

Entries are only added: triggers refuse anything else.
"""

from __future__ import annotations

import contextlib
import math
import sqlite3
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from sqlalchemy import (
    BigInteger,
    Column,
    Connection,
    Float,
    MetaData,
    String,
    Table,
    Text,
    func,
    insert,
    inspect,
    select,
    update,
)
from sqlalchemy.engine import Engine

from balaclava._core.number_format import rounded_up
from balaclava.service.problems import Problem, StartError
from balaclava.service.store.schema import Serial
from balaclava.service.store.sql import execute_many
from balaclava.service.store.storage import (
    advisory_lock,
    create_private_file,
    database_file,
    make_engine,
)

_metadata = MetaData()
POPULATION, CHARGE, RESTORED = "population", "charge", "restored"
_ROUNDING = 1e-12  # of a total: three thirds fit

entries = Table(
    "entries",
    _metadata,
    Column("id", Serial, primary_key=True),
    Column("at", Float, nullable=False),
    Column("event", String(16), nullable=False),
    Column("population", String(200)),
    Column("experiment", String(200)),
    Column("uid", String(64)),
    Column("epsilon", Float, nullable=False),
    Column("delta", Float, nullable=False),
    Column("note", Text, nullable=False),
)

commit_counters = Table(
    "counters",
    _metadata,
    Column("uid", String(64), primary_key=True),
    Column("intended", BigInteger, nullable=False),  # the version of a commit that was begun
    Column("done", BigInteger, nullable=False),  # that of the last one known to be on the disk
)

_INTEND = (  # nothing is noted of a database that is behind: see `CommitCount.least`
    "INSERT INTO counters (uid, intended, done) VALUES (?, ?, ?) "
    "ON CONFLICT (uid) DO UPDATE SET intended = excluded.intended, done = excluded.done "
    "WHERE counters.done <= excluded.done AND counters.intended - 1 <= excluded.done"
)
_DONE = "UPDATE counters SET done = ? WHERE uid = ? AND done < ?"

_ONLY_ADDED = {
    "sqlite": [
        f"CREATE TRIGGER IF NOT EXISTS entries_no_{verb} BEFORE {verb} ON entries "
        "BEGIN SELECT RAISE(ABORT, 'the ledger is only added to'); END"
        for verb in ("UPDATE", "DELETE")
    ],
    "postgresql": [
        "CREATE OR REPLACE FUNCTION ledger_is_only_added_to() RETURNS trigger AS $$ "
        "BEGIN RAISE EXCEPTION 'the ledger is only added to'; END $$ LANGUAGE plpgsql",
        "CREATE OR REPLACE TRIGGER entries_no_change BEFORE UPDATE OR DELETE ON entries "
        "FOR EACH ROW EXECUTE FUNCTION ledger_is_only_added_to()",
    ],
}


class CommitCount(NamedTuple):
    """Versions of an experiment: of a commit that was begun, and of the last that was noted."""

    intended: int
    done: int

    @property
    def least(self) -> int:
        """What must be in the database. A commit that was begun and is not there was cut off by
        a crash, and nobody saw it.
        """
        return max(self.done, self.intended - 1)


class Budget(NamedTuple):
    """A population's total, and what is left of it."""

    name: str
    epsilon: float
    delta: float
    spent_epsilon: float
    spent_delta: float

    def document(self) -> dict[str, Any]:
        """As it is shown."""
        left = {
            "left_epsilon": max(self.epsilon - self.spent_epsilon, 0.0),
            "left_delta": max(self.delta - self.spent_delta, 0.0),
        }
        return {**self._asdict(), **left}


class Ledger:
    """A second database, or a second file: see the module."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        # Of a file, a connection for the notes before and after each commit: it saves their time.
        self._notes = engine.raw_connection() if engine.dialect.name == "sqlite" else None

    @classmethod
    def open(cls, url: str) -> Ledger:
        """Connect, and make the tables if there are none."""
        engine = make_engine(url)
        if engine.dialect.name == "sqlite":
            create_private_file(database_file(engine.url.database))
        with engine.begin() as connection:
            advisory_lock(connection)
            if inspect(connection).has_table("experiments"):
                raise StartError("the ledger must lie outside the database; give another address")
            _metadata.create_all(connection)
            for statement in _ONLY_ADDED[engine.dialect.name]:
                connection.exec_driver_sql(statement)
        return cls(engine)

    def close(self) -> None:
        """Disconnect."""
        if self._notes is not None:
            self._notes.close()
        self._engine.dispose()

    @contextlib.contextmanager
    def _exclusive(self) -> Iterator[Connection]:
        """A transaction beside which no other adds entries."""
        with self._engine.begin() as connection:
            if self._engine.dialect.name == "postgresql":
                connection.exec_driver_sql("LOCK TABLE entries IN EXCLUSIVE MODE")
            yield connection

    # Commits

    def prepare_commits(self, versions: Mapping[str, int]) -> None:
        """Note, on the disk, that commits of these versions are about to be made.

        Refused where the database is behind: it was put back while the service ran, or the server
        is now a replica that lagged.
        """
        rows = [(uid, version, max(version - 1, 0)) for uid, version in sorted(versions.items())]
        if self._note(_INTEND, rows) < len(rows):
            raise Problem(
                503,
                "the database is behind its ledger: it was put back from a backup, or is a replica "
                "that lagged; stop every process and start with --restored",
            )

    def confirm_commits(self, versions: Mapping[str, int]) -> None:
        """Note that the commits of these versions are on the disk."""
        rows = [(version, uid, version) for uid, version in sorted(versions.items())]
        self._note(_DONE, rows)

    def _note(self, statement: str, rows: Sequence[tuple[Any, ...]]) -> int:
        """On the disk when it returns how many rows it changed. The writer alone does this."""
        if self._notes is None:
            with self._engine.begin() as connection:
                return execute_many(connection, statement, rows)
        notes: sqlite3.Connection = self._notes.driver_connection  # type: ignore[assignment]
        with notes:  # commits, or takes back
            notes.execute("BEGIN IMMEDIATE")
            return notes.executemany(statement, rows).rowcount

    def commit_counts(self) -> dict[str, CommitCount]:
        """How far each experiment was, by uid."""
        with self._engine.begin() as connection:
            rows = connection.execute(select(commit_counters)).all()
        return {row.uid: CommitCount(row.intended, row.done) for row in rows}

    def reset_commit_counts(self, versions: Mapping[str, int]) -> None:
        """Go on counting from there: the database was put back."""
        with self._engine.begin() as connection:
            for uid, version in sorted(versions.items()):
                connection.execute(
                    update(commit_counters)
                    .where(commit_counters.c.uid == uid)
                    .values(intended=version, done=version)
                )

    # Budgets

    def set_population(self, name: str, epsilon: float, delta: float) -> Budget:
        """A population and its total; the total of one that is there may be raised."""
        with self._exclusive() as connection:
            budget = _budgets(connection).get(name)
            if budget is not None and (epsilon < budget.epsilon or delta < budget.delta):
                raise Problem(
                    409,
                    f"population {name!r} has a total of {_pair(budget.epsilon, budget.delta)}; "
                    "a total can be raised, never lowered",
                )
            if budget is None or (epsilon, delta) != (budget.epsilon, budget.delta):
                _add(connection, POPULATION, name, None, None, epsilon, delta, "total")
            return _budgets(connection)[name]

    def charge(self, population: str, name: str, uid: str, epsilon: float, delta: float) -> None:
        """Charge an experiment, once; refuse what does not fit, at no cost."""
        with self._exclusive() as connection:
            budget = _budgets(connection).get(population)
            if budget is None:
                raise Problem(
                    404,
                    f"there is no population {population!r}; make it with PUT "
                    "/v1/populations/{name} and a total (epsilon, delta)",
                )
            if _last_event(connection, uid) == CHARGE:
                return  # charged when it was asked for before, and cut off
            fits = budget.spent_epsilon + epsilon <= budget.epsilon * (1 + _ROUNDING)
            if not fits or budget.spent_delta + delta > budget.delta * (1 + _ROUNDING):
                raise Problem(
                    409,
                    f"population {population!r} has {_pair(budget.epsilon, budget.delta)} in "
                    f"all, of which {_pair(budget.spent_epsilon, budget.spent_delta)} is spent; "
                    f"the experiment asks for {_pair(epsilon, delta)}, which does not fit",
                )
            _add(connection, CHARGE, population, name, uid, epsilon, delta, "created")

    def charge_restore(
        self, population: str | None, name: str, uid: str, epsilon: float, delta: float
    ) -> None:
        """The database was put back: what was unfinished may be released a second time."""
        with self._exclusive() as connection:
            note = "put back from a backup; what was unfinished counts once more"
            _add(connection, RESTORED, population, name, uid, epsilon, delta, note)

    def note_lost(self, uid: str) -> None:
        """A database was put back from before an experiment: made again, it is charged again."""
        with self._exclusive() as connection:
            wanted = select(entries).where(entries.c.uid == uid).order_by(entries.c.id.desc())
            last = connection.execute(wanted.limit(1)).first()
            population, name = (last.population, last.experiment) if last else (None, None)
            note = "not in the database that was put back; made again, it is charged again"
            _add(connection, RESTORED, population, name, uid, 0.0, 0.0, note)

    def budgets(self) -> dict[str, Budget]:
        """Every population."""
        with self._engine.begin() as connection:
            return _budgets(connection)

    def charged(self, uid: str) -> tuple[float, float, int]:
        """Epsilon and delta that an experiment was charged in all, and how often it was restored.

        An experiment without a population is not charged; its restores are noted all the same.
        """
        wanted = select(entries).where(entries.c.uid == uid).order_by(entries.c.id)
        with self._engine.begin() as connection:
            rows = connection.execute(wanted).all()
        charged = [row for row in rows if row.population is not None]
        return (
            math.fsum(row.epsilon for row in charged),
            math.fsum(row.delta for row in charged),
            sum(row.event == RESTORED for row in rows),
        )

    def restores(self) -> dict[str, int]:
        """How often each experiment was restored, by uid; those that never were are left out."""
        wanted = select(entries.c.uid, func.count()).where(entries.c.event == RESTORED)
        with self._engine.begin() as connection:
            rows = connection.execute(wanted.group_by(entries.c.uid)).all()
        return {uid: count for uid, count in rows}

    def entries(self) -> list[dict[str, Any]]:
        """Everything that was ever written, oldest first."""
        shown = ("at", "event", "population", "experiment", "epsilon", "delta", "note")
        wanted = select(*(entries.c[name] for name in shown)).order_by(entries.c.id)
        with self._engine.begin() as connection:
            return [dict(row._mapping) for row in connection.execute(wanted)]


def _last_event(connection: Connection, uid: str) -> str | None:
    wanted = select(entries.c.event).where(entries.c.uid == uid)
    return connection.scalar(wanted.order_by(entries.c.id.desc()).limit(1))


def _add(
    connection: Connection,
    event: str,
    population: str | None,
    experiment: str | None,
    uid: str | None,
    epsilon: float,
    delta: float,
    note: str,
) -> None:
    connection.execute(
        insert(entries).values(
            at=time.time(),
            event=event,
            population=population,
            experiment=experiment,
            uid=uid,
            epsilon=epsilon,
            delta=delta,
            note=note,
        )
    )


def _pair(epsilon: float, delta: float) -> str:
    return f"({rounded_up(epsilon)}, {rounded_up(delta)})"


def _budgets(connection: Connection) -> dict[str, Budget]:
    budgets: dict[str, Budget] = {}
    wanted = select(entries).where(entries.c.population.is_not(None)).order_by(entries.c.id)
    for row in connection.execute(wanted):
        old = budgets.get(row.population, Budget(row.population, 0.0, 0.0, 0.0, 0.0))
        if row.event == POPULATION:
            new = old._replace(epsilon=row.epsilon, delta=row.delta)
        else:
            new = old._replace(
                spent_epsilon=old.spent_epsilon + row.epsilon,
                spent_delta=old.spent_delta + row.delta,
            )
        budgets[row.population] = new
    return budgets
