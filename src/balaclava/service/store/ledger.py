"""The privacy ledger: charges, budgets, revoked keys, and commit counters.

It lies outside the database. Restoring the database from a backup loses releases that observers
have already seen: their noise would be drawn again, and decisions would learn twice. It also loses
rewards that were acknowledged, and revives revoked keys. So each experiment has a version, each
writing process counts its commits, and both are flushed here after each commit, before anything
of it leaves: an answer waits for that, and a reader does it for what it is about to display. A
database behind these counters must have been restored from a backup. The service then starts only
with `--restored`, which charges unfinished batches again.

Proof that a database that is behind is always noticed.
    Let the database have lost a commit after an answer of it left. Before that left, the
    commit's versions were flushed here. The lost version of an experiment is never reached again:
    a commit compares the versions that it read with the ledger's, under the experiment's lock, and
    fails if one is behind; so does a process with its own count. So the database stays behind
    until `--restored` raises its versions above the ledger's, and every start compares all.

A crash between a commit and its flush leaves the ledger one commit behind, per process: nothing of
that commit was seen. A ledger that is further behind was itself restored from a backup, or if it is
behind a service that was stopped in order, which notes that in the database.

Segments of a population share no participants: a person learns in the experiments of one segment
only. A person's loss is at most that of the experiments without a segment and of the segment with
the largest loss, so only that one is spent.

Proof. A person joins a segment with the first decision in one that could learn. Which one follows
    from requests: for the same releases it is the same in two runs that differ in the person's
    rewards only. In other segments no decision of the person learns. So the two runs differ in the
    inputs of the experiments of one segment, and of those without a segment; their losses add, by
    adaptive composition. A restore forgets who joined which segment since the backup. So after it
    the charges before it add, of all segments: they cover every segment that a person was or is in.
    An experiment that may use rewards twice is charged again, and this charge adds too.

The ledger is append-only: triggers refuse updates and deletions of entries.
"""

from __future__ import annotations

import contextlib
import hashlib
import math
import sqlite3
import threading
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import sqlalchemy as sa

from balaclava._core.number_format import rounded_up
from balaclava.service.problems import DATABASE_UNAVAILABLE, Problem, StartError
from balaclava.service.store import storage
from balaclava.service.store.audit_trail import AuditTrail
from balaclava.service.store.files_in_place import FilesInPlace
from balaclava.service.store.schema import Serial
from balaclava.service.store.sql import execute_many, fetch

_metadata = sa.MetaData()
POPULATION, CHARGE, RESTORED, VOID = "population", "charge", "restored", "void"
KEY_MADE, KEY_REVOKED = "key made", "key revoked"
RELEASED_ELSEWHERE = "release"
CREATED, EDITED, ERASED, EXPORTED = "created", "edited", "erased", "exported"
_CHARGES = (CHARGE, RESTORED, VOID)
_BUDGET_SECONDS = 1.0  # age of cached budgets: another process may raise a total
_BUDGET_ROUNDING = 1e-12  # relative, above the rounding of floats: three thirds fit a whole

entries = sa.Table(
    "entries",
    _metadata,
    sa.Column("id", Serial, primary_key=True),
    sa.Column("at", sa.Float, nullable=False),
    sa.Column("event", sa.String(16), nullable=False),
    sa.Column("population", sa.String(200)),
    sa.Column("experiment", sa.String(200)),
    sa.Column("uid", sa.String(64)),
    sa.Column("epsilon", sa.Float, nullable=False),
    sa.Column("delta", sa.Float, nullable=False),
    sa.Column("note", sa.Text, nullable=False),
)

audit_trail = AuditTrail(_metadata, entries)

erasures = sa.Table(  # replayed after a restore of the database
    "erasures",
    _metadata,
    sa.Column("id", Serial, primary_key=True),
    sa.Column("at", sa.Float, nullable=False),
    sa.Column("uid", sa.String(64), nullable=False),
    sa.Column("digest", sa.String(64), nullable=False),  # keyed, of a person in the experiment
)

segments = sa.Table(  # of experiments that are charged within one
    "segments",
    _metadata,
    sa.Column("uid", sa.String(64), primary_key=True),
    sa.Column("segment", sa.String(200), nullable=False),
)

commit_counters = sa.Table(
    "counters",
    _metadata,
    sa.Column("uid", sa.String(64), primary_key=True),
    # `intended` is above `done` before the first commit, and in ledgers of older versions.
    sa.Column("intended", sa.BigInteger, nullable=False),  # version of the last commit prepared
    sa.Column("done", sa.BigInteger, nullable=False),  # version of the last commit recorded
)

_PREPARE = "INSERT INTO counters (uid, intended, done) VALUES (?, 1, 0) ON CONFLICT DO NOTHING"
_RECORD_COMMIT = (
    "INSERT INTO counters (uid, intended, done) VALUES (?, ?, ?) "
    "ON CONFLICT (uid) DO UPDATE SET intended = excluded.intended, done = excluded.done "
    "WHERE counters.done < excluded.done"
)
_SET_SEGMENT = "INSERT INTO segments (uid, segment) VALUES (?, ?) ON CONFLICT DO NOTHING"
_COUNTS = "SELECT uid, intended, done FROM counters WHERE uid IN (*)"

_UNCHANGED = ("entries", "links", "erasures", "segments")
_APPEND_ONLY = {
    "sqlite": [
        f"CREATE TRIGGER IF NOT EXISTS {table}_no_{verb} BEFORE {verb} ON {table} "
        "BEGIN SELECT RAISE(ABORT, 'the ledger is append-only'); END"
        for table in _UNCHANGED
        for verb in ("UPDATE", "DELETE")
    ],
    "postgresql": [
        "CREATE OR REPLACE FUNCTION ledger_is_append_only() RETURNS trigger AS $$ "
        "BEGIN RAISE EXCEPTION 'the ledger is append-only'; END $$ LANGUAGE plpgsql",
        *(
            f"CREATE OR REPLACE TRIGGER {table}_no_change BEFORE UPDATE OR DELETE ON {table} "
            "FOR EACH ROW EXECUTE FUNCTION ledger_is_append_only()"
            for table in _UNCHANGED
        ),
    ],
}


class CommitCount(NamedTuple):
    """A counter's last commit prepared, and the last recorded."""

    intended: int
    done: int

    @property
    def required(self) -> int:
        """The least version that the database must have.

        It may lack the commit prepared last: after a crash, that one was never answered.
        """
        return max(self.done, self.intended - 1)


class Budget(NamedTuple):
    """The privacy budget of a population: totals, and what is spent."""

    name: str
    epsilon: float
    delta: float
    spent_epsilon: float
    spent_delta: float
    segments: Mapping[str, float] = {}  # epsilon by segment: the largest is in what is spent

    @property
    def overspent(self) -> bool:
        """Whether more is spent than the total, as after a restore."""
        slack = 1 + _BUDGET_ROUNDING
        return self.spent_epsilon > self.epsilon * slack or self.spent_delta > self.delta * slack

    def document(self) -> dict[str, Any]:
        return {
            **self._asdict(),
            "overspent": self.overspent,
            "left_epsilon": max(self.epsilon - self.spent_epsilon, 0.0),
            "left_delta": max(self.delta - self.spent_delta, 0.0),
        }


class Ledger:
    """The ledger, in a file or database separate from the service's."""

    def __init__(self, engine: sa.Engine) -> None:
        self._engine = engine
        # SQLite: one connection for the counters, since opening one takes longer than a commit.
        self._counting = engine.raw_connection() if engine.dialect.name == "sqlite" else None
        self._counting_lock = threading.Lock()
        self._files: FilesInPlace | None = None
        if self._counting is not None:
            advice = "put the files back, and start it"
            self._files = FilesInPlace(str(engine.url.database), "ledger", advice)
        self._overspent: tuple[float, set[str]] = (-math.inf, set())  # when it was read

    @classmethod
    def open(cls, url: str) -> Ledger:
        """Connect, and create the tables if they do not exist."""
        engine = storage.make_engine(url)
        if engine.dialect.name == "sqlite":
            storage.create_private_file(storage.database_file(engine.url.database))
        with engine.begin() as connection:
            storage.advisory_lock(connection)
            if sa.inspect(connection).has_table("experiments"):
                raise StartError("the ledger must not share the database; give another path or URL")
            _metadata.create_all(connection)
            for statement in _APPEND_ONLY[engine.dialect.name]:
                connection.exec_driver_sql(statement)
            audit_trail.link(connection)  # entries of earlier versions
        return cls(engine)

    def close(self) -> None:
        if self._counting is not None:
            self._counting.close()
        self._engine.dispose()

    @contextlib.contextmanager
    def _exclusive(self) -> Iterator[sa.Connection]:
        """A transaction that locks the entries against other writers."""
        with self._engine.begin() as connection:
            if self._engine.dialect.name == "postgresql":
                connection.exec_driver_sql("LOCK TABLE entries IN EXCLUSIVE MODE")
            yield connection
        self._require_in_place()

    @contextlib.contextmanager
    def _reading(self) -> Iterator[sa.Connection]:
        """A transaction that only reads, and does not wait for writers."""
        connection = self._engine.connect().execution_options(balaclava_reads=True)
        with connection, connection.begin():
            yield connection

    # Commits

    def prepare_creation(self, uids: Iterable[str]) -> None:
        """Flush the counters of experiments that are about to be created."""
        self._count(_PREPARE, [(uid,) for uid in sorted(uids)])

    def check_commits(self, versions: Mapping[str, int]) -> dict[str, int]:
        """Compare versions in the database with the ledger's.

        Returns those that are not recorded. Raises if the database is behind: it was restored while
        the service ran, or the server is now a replica that lagged.
        """
        counts = {uid: CommitCount(*row) for uid, *row in self._fetch_counts(versions)}
        if any(versions[uid] < count.required for uid, count in counts.items()):
            raise Problem(
                503,
                "the database is behind its ledger: it was restored from a backup, or is a replica "
                "that lagged; stop every process, then start with --restored",
            )
        new = CommitCount(0, 0)
        return {uid: each for uid, each in versions.items() if each > counts.get(uid, new).done}

    def record_commits(self, versions: Mapping[str, int]) -> None:
        """Flush the versions of commits that are on the disk, before anything of them leaves."""
        self._count(_RECORD_COMMIT, [(uid, each, each) for uid, each in sorted(versions.items())])

    def observe(self, uid: str, version: int) -> None:
        """Record an experiment's version that is about to be displayed, if it is new."""
        try:
            if not any(done >= version for _, _, done in self._fetch_counts([uid])):
                self.record_commits({uid: version})
        except storage.DATABASE_ERRORS:
            raise DATABASE_UNAVAILABLE from None

    def _fetch_counts(self, uids: Iterable[str]) -> list[Sequence[Any]]:
        if self._counting is None:
            with self._reading() as shared:
                return fetch(shared, _COUNTS, uids)
        names = list(uids)
        query = _COUNTS.replace("(*)", f"({', '.join('?' * len(names))})")
        with self._counting_lock:
            return self._counting.driver_connection.execute(query, names).fetchall()  # type: ignore[union-attr]

    def _count(self, statement: str, rows: Sequence[tuple[Any, ...]]) -> None:
        """Execute and flush."""
        if not rows:
            return
        if self._counting is None:
            with self._engine.begin() as shared:
                execute_many(shared, statement, rows)
            return
        connection: sqlite3.Connection = self._counting.driver_connection  # type: ignore[assignment]
        with self._counting_lock, connection:  # commits, or rolls back
            connection.execute("BEGIN IMMEDIATE")
            connection.executemany(statement, rows)
        self._require_in_place()

    def _require_in_place(self) -> None:
        """Raise if SQLite's files are not those that were opened: what was flushed is lost."""
        if self._files is not None:
            self._files.require()

    def commit_counts(self) -> dict[str, CommitCount]:
        """All counters, by uid."""
        with self._reading() as connection:
            rows = connection.execute(sa.select(commit_counters)).all()
        return {row.uid: CommitCount(row.intended, row.done) for row in rows}

    def reset_commit_counts(self, versions: Mapping[str, int]) -> None:
        """Set the counters after a restore of the database."""
        with self._engine.begin() as connection:
            for uid, version in sorted(versions.items()):
                connection.execute(
                    sa.update(commit_counters)
                    .where(commit_counters.c.uid == uid)
                    .values(intended=version, done=version)
                )

    # Entries of operations

    def note(
        self, event: str, experiment: str | None, uid: str | None, note: str, actor: str = ""
    ) -> None:
        """Append an entry that costs nothing: who did what."""
        with self._exclusive() as connection:
            _append(connection, event, None, experiment, uid, 0.0, 0.0, note, actor=actor)

    def trail(self, after: int, limit: int) -> list[dict[str, Any]]:
        """Entries of the audit trail after an id, oldest first."""
        with self._reading() as connection:
            return audit_trail.read(connection, after, limit)

    def require_intact(self) -> int:
        """Raise if the audit trail was changed; returns its length."""
        with self._reading() as connection:
            return audit_trail.require_intact(connection)

    def record_erasure(self, at: float, digests: Mapping[str, str]) -> int:
        """Record the digest of an erased person by experiment, before the erasure; its number."""
        rows = [{"at": at, "uid": uid, "digest": digest} for uid, digest in digests.items()]
        with self._exclusive() as connection:
            if rows:
                connection.execute(sa.insert(erasures), rows)
            return int(connection.scalar(sa.select(sa.func.max(erasures.c.id))) or 0)

    def erasures_after(self, number: int) -> list[Any]:
        """Erasures with a higher number: id, at, uid of the experiment, digest of the person."""
        wanted = sa.select(erasures).where(erasures.c.id > number).order_by(erasures.c.id)
        with self._reading() as connection:
            return list(connection.execute(wanted))

    def revoked_keys(self) -> set[str]:
        """Ids of revoked API keys: a restored database does not know them all."""
        wanted = sa.select(entries.c.uid).where(entries.c.event == KEY_REVOKED)
        with self._reading() as connection:
            return set(connection.scalars(wanted))

    # Budgets

    def set_population(self, name: str, epsilon: float, delta: float, actor: str = "") -> Budget:
        """Create a population with a total, or raise its total."""
        with self._exclusive() as connection:
            budget = _budgets(connection).get(name)
            if budget is not None and (epsilon < budget.epsilon or delta < budget.delta):
                raise Problem(
                    409,
                    f"population {name!r} has a total of {_pair(budget.epsilon, budget.delta)}; "
                    "a total can only be raised",
                )
            if budget is None or (epsilon, delta) != (budget.epsilon, budget.delta):
                terms = epsilon, delta, "total"
                _append(connection, POPULATION, name, None, None, *terms, actor=actor)
            return _budgets(connection)[name]

    def charge(
        self,
        population: str,
        name: str,
        uid: str,
        epsilon: float,
        delta: float,
        actor: str = "",
        segment: str | None = None,
    ) -> None:
        """Charge an experiment once. Raises, without a charge, if it does not fit."""
        with self._exclusive() as connection:
            spending = _spending(connection, population)
            last = _last_entry(connection, uid)
            if last is not None and last.event == CHARGE:
                return  # charged before a crash prevented its creation
            spending.charge(population, segment, epsilon, delta)
            note = "created" if segment is None else f"created in segment {segment!r}"
            _append(connection, CHARGE, population, name, uid, epsilon, delta, note, actor=actor)
            if segment is not None:
                execute_many(connection, _SET_SEGMENT, [(uid, segment)])

    def charge_release(
        self,
        population: str,
        request_id: str,
        terms: tuple[float, float, str],
        actor: str = "",
    ) -> Budget:
        """Charge a release that the service does not make: epsilon, delta, and what it is.

        The same `request_id` is charged once. Raises, without a charge, if it does not fit.
        """
        uid = hashlib.sha256(f"release {request_id}".encode("utf-8", "surrogatepass")).hexdigest()
        mine = (entries.c.uid == uid) & (entries.c.event == RELEASED_ELSEWHERE)
        known = sa.select(entries).where(mine)
        with self._exclusive() as connection:
            spending, row = _spending(connection, population), connection.execute(known).first()
            if row is None:
                spending.charge(population, None, *terms[:2])
                _append(connection, RELEASED_ELSEWHERE, population, None, uid, *terms, actor=actor)
            elif (row.population, row.epsilon, row.delta, row.note) != (population, *terms):
                raise Problem(409, "this request_id charged another release; give a new one")
            return spending.budget(population)

    def uncommitted_charges(self, population: str) -> dict[str, tuple[str, float, float]]:
        """Charges of experiments that no commit has created: name, epsilon and delta, by uid."""
        wanted = sa.select(entries).where(entries.c.population == population)
        with self._reading() as connection:
            last = {row.uid: row for row in connection.execute(wanted.order_by(entries.c.id))}
        counts = self.commit_counts()
        return {
            uid: (row.experiment, row.epsilon, row.delta)
            for uid, row in last.items()
            if row.event == CHARGE and (uid not in counts or counts[uid].required == 0)
        }

    def void_charge(
        self, population: str, name: str, uid: str, epsilon: float, delta: float
    ) -> None:
        """Cancel the charge of an experiment that was never created: it released nothing."""
        with self._exclusive() as connection:
            note = "never created: its commit failed"
            _append(connection, VOID, population, name, uid, -epsilon, -delta, note)

    def charge_restore(
        self, population: str | None, name: str, uid: str, epsilon: float, delta: float
    ) -> None:
        """Charge a restored experiment again: it may release unfinished batches twice."""
        with self._exclusive() as connection:
            note = "restored from a backup; unfinished batches are charged again"
            _append(connection, RESTORED, population, name, uid, epsilon, delta, note)

    def note_restore(self) -> None:
        """Record a restore that lost no release, but perhaps rewards, keys or charges."""
        self.note(RESTORED, None, None, "restored from a backup; no experiment was behind")

    def note_lost(self, uid: str) -> None:
        """Record an experiment that a backup lacks; creating it again charges it again."""
        with self._exclusive() as connection:
            last = _last_entry(connection, uid)
            population, name = (last.population, last.experiment) if last else (None, None)
            note = "missing in the restored database; creating it again charges it again"
            _append(connection, RESTORED, population, name, uid, 0.0, 0.0, note)

    def budgets(self) -> dict[str, Budget]:
        with self._reading() as connection:
            return _budgets(connection)

    def overspent(self, population: str) -> bool:
        """Whether a population has spent more than its total; known a second late."""
        read, names = self._overspent
        if time.monotonic() - read > _BUDGET_SECONDS:
            names = {name for name, budget in self.budgets().items() if budget.overspent}
            self._overspent = time.monotonic(), names
        return population in names

    def charged(self, uid: str) -> tuple[float, float, int]:
        """The total charge (epsilon, delta) of an experiment, and its number of restores.

        Without a population an experiment is not charged, but its restores are counted.
        """
        wanted = sa.select(entries).where(entries.c.uid == uid).order_by(entries.c.id)
        with self._reading() as connection:
            rows = connection.execute(wanted).all()
        charged = [row for row in rows if row.population is not None]
        return (
            math.fsum(row.epsilon for row in charged),
            math.fsum(row.delta for row in charged),
            sum(row.event == RESTORED for row in rows),
        )

    def restores(self) -> dict[str, int]:
        """The number of restores by uid, for experiments that have any."""
        mine = (entries.c.event == RESTORED) & entries.c.uid.is_not(None)
        wanted = sa.select(entries.c.uid, sa.func.count()).where(mine)
        with self._reading() as connection:
            rows = connection.execute(wanted.group_by(entries.c.uid)).all()
        return {uid: count for uid, count in rows}

    def entries(self) -> list[dict[str, Any]]:
        """All entries, oldest first."""
        columns = ("at", "event", "population", "experiment", "epsilon", "delta", "note")
        wanted = sa.select(*(entries.c[name] for name in columns)).order_by(entries.c.id)
        with self._reading() as connection:
            return [dict(row._mapping) for row in connection.execute(wanted)]


def _last_entry(connection: sa.Connection, uid: str) -> Any:
    mine = (entries.c.uid == uid) & entries.c.event.in_(_CHARGES)
    wanted = sa.select(entries).where(mine).order_by(entries.c.id.desc())
    return connection.execute(wanted.limit(1)).first()


def _append(connection: sa.Connection, *values: str | float | None, actor: str = "") -> None:
    """Append an entry: event, population, experiment, uid, epsilon, delta, note; and its link."""
    names = [column.name for column in entries.columns][2:]
    row = dict(zip(names, values, strict=True))
    connection.execute(sa.insert(entries).values(at=time.time(), **row))
    audit_trail.link(connection, actor)


def _pair(epsilon: float, delta: float) -> str:
    return f"({rounded_up(epsilon)}, {rounded_up(delta)})"


class _Spending:
    """The total of a population, and what is spent of it, by segment."""

    def __init__(self) -> None:
        self.total = 0.0, 0.0
        self._all = [0.0, 0.0]  # without a segment, or before a restore
        self._segments: dict[str, list[float]] = {}

    def add(self, segment: str | None, epsilon: float, delta: float) -> None:
        mine = self._all if segment is None else self._segments.setdefault(segment, [0.0, 0.0])
        mine[0] += epsilon
        mine[1] += delta

    def charge(self, name: str, segment: str | None, epsilon: float, delta: float) -> None:
        """Add, or raise a `Problem` if so much does not fit into the total."""
        before = self.budget(name)
        self.add(segment, epsilon, delta)
        if self.budget(name).overspent:
            raise Problem(
                409,
                f"the budget of population {name!r} is too small: total "
                f"{_pair(before.epsilon, before.delta)}, spent "
                f"{_pair(before.spent_epsilon, before.spent_delta)}, needed "
                f"{_pair(epsilon, delta)}",
            )

    def dissolve_segments(self) -> None:
        """Let what was spent so far add: after a restore, persons may join other segments."""
        for epsilon, delta in self._segments.values():
            self.add(None, epsilon, delta)
        self._segments = {}

    def budget(self, name: str) -> Budget:
        epsilons, deltas = zip([0.0, 0.0], *self._segments.values(), strict=True)
        epsilon, delta = self._all[0] + max(epsilons), self._all[1] + max(deltas)
        by_segment = {each: spent for each, (spent, _) in self._segments.items()}
        return Budget(name, *self.total, epsilon, delta, by_segment)


def _spendings(connection: sa.Connection) -> dict[str, _Spending]:
    of = {row.uid: row.segment for row in connection.execute(sa.select(segments))}
    spendings: dict[str, _Spending] = {}
    for row in connection.execute(sa.select(entries).order_by(entries.c.id)):
        if row.population is not None:
            spending = spendings.setdefault(row.population, _Spending())
            if row.event == POPULATION:
                spending.total = row.epsilon, row.delta
            else:
                spending.add(of.get(row.uid), row.epsilon, row.delta)
        if row.event == RESTORED:
            for each in spendings.values():
                each.dissolve_segments()
    return spendings


def _spending(connection: sa.Connection, population: str) -> _Spending:
    spending = _spendings(connection).get(population)
    if spending is None:
        raise Problem(
            404,
            f"unknown population {population!r}; create it with PUT /v1/populations/{{name}} and a "
            "total (epsilon, delta)",
        )
    return spending


def _budgets(connection: sa.Connection) -> dict[str, Budget]:
    return {name: each.budget(name) for name, each in _spendings(connection).items()}
