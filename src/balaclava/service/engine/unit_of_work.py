"""The unit of work: one transaction that prefetches, applies jobs in memory, and writes."""

import contextlib
import logging
from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from sqlalchemy import Connection, func, insert, select

from balaclava.errors import BalaclavaError
from balaclava.service.engine.leasing.granting import (
    EXPIRED_LEASES,
    await_leases,
    grant_lease,
    settle_leases,
    use_leases,
)
from balaclava.service.engine.leasing.held_leases import HeldLease, LeaseBook, LeasedExperiment
from balaclava.service.engine.served_experiment import RUNNING, ServedExperiment
from balaclava.service.problems import Problem
from balaclava.service.store import sql
from balaclava.service.store.ledger import Ledger
from balaclava.service.store.schema import (
    DEFAULTED,
    GIVEN_UP,
    OPEN,
    REWARDED,
    WAS_ERASED,
    decisions,
    experiments,
)
from balaclava.service.store.storage import Storage, advisory_lock

log = logging.getLogger("balaclava.service")

_MOST_CLOSED = 10_000  # windows per experiment and transaction: bounds the time of a commit
_ALL_ROUNDS = 2**62
_LOCKED = " ORDER BY id FOR UPDATE"  # PostgreSQL
_LOCKED_PERSONS = " ORDER BY digest FOR UPDATE"
_STILL_OPEN = f"WHERE experiment IN (*) AND state = {OPEN} ORDER BY round LIMIT {_MOST_CLOSED + 1}"


@dataclass
class Prefetch:
    """The rows that jobs need, fetched together before the jobs are applied."""

    names: set[str] = field(default_factory=set)
    slots: Counter[str] = field(default_factory=Counter)  # decisions by name, by leases if possible
    decisions: set[str] = field(default_factory=set)
    requests: set[tuple[str, str]] = field(default_factory=set)  # experiment's name, digest
    persons: set[tuple[str, str]] = field(default_factory=set)
    sticky: set[tuple[str, str]] = field(default_factory=set)  # of these, with their first decision
    creates: bool = False  # an experiment, under the advisory lock
    due: bool = False  # all experiments with ended windows
    cleanup: bool = False  # some experiments with something to delete


class StoredPerson(NamedTuple):
    """What is stored about a person in an experiment, under a keyed digest."""

    decisions: int = 0  # that learn
    arm: int | None = None  # that sticky decisions repeat
    decision: str | None = None  # that set it


class LeaseLostError(Exception):
    """A lease was settled, or a request was answered by another process: apply the jobs again."""


class SegmentTakenError(LeaseLostError):
    """Another process has put a person into a segment: apply the jobs again."""


class OverdueWindowsError(Exception):
    """More windows have ended than one transaction closes: the writer queues the job again."""


class UnitOfWork:
    """The rows and experiments of one transaction.

    It locks experiments first, in the order of their ids, so that two processes never deadlock.
    """

    def __init__(
        self,
        storage: Storage,
        connection: Connection,
        cache: dict[int, ServedExperiment],
        now: float,
        ledger: Ledger,
        leases: LeaseBook | None = None,
    ) -> None:
        self.connection, self.now, self.ledger = connection, now, ledger
        self._leases = leases  # None without leases: a database of one process
        self._granted: dict[int, HeldLease] = {}  # by experiment
        self._storage, self._cache = storage, cache
        self.by_name: dict[str, ServedExperiment] = {}
        self.by_id: dict[int, ServedExperiment] = {}
        self.decisions: dict[str, dict[str, Any]] = {}
        self.requests: dict[tuple[int, str], tuple[str, list[dict[str, Any]]]] = {}
        self.persons: dict[tuple[int, str], StoredPerson] = {}
        self.first_decisions: dict[str, dict[str, Any]] = {}  # sticky ones that are still stored
        self._unreadable: set[str] = set()  # names of experiments with a damaged state
        self._touched: set[int] = set()
        self._created: set[int] = set()
        self._changed: dict[str, dict[str, Any]] = {}
        self._new_decisions: list[dict[str, Any]] = []
        self._new_requests: list[dict[str, Any]] = []
        self._changed_persons: set[tuple[int, str]] = set()
        self._erased: list[str] = []  # ids of decisions
        # Segments of persons, by population and digest; and of these, those that are new.
        self._segments: dict[tuple[str, str], str] = {}
        self._joined: dict[tuple[str, str], str] = {}
        self._wrote = False  # beyond the rows above
        self._loaded: dict[str, int] = {}  # versions as read, by uid

    def load(self, prefetch: Prefetch) -> None:
        """Lock the experiments, fetch the rest, and close ended windows.

        An experiment that only received a reward keeps its windows open: nothing displayed may
        change because a reward arrived, not even the time at which windows close.
        """
        if prefetch.creates:
            advisory_lock(self.connection)
        self._load_decisions(prefetch.decisions)
        by_lease = self._use_leases(prefetch)
        ids = {row["experiment"] for row in self.decisions.values()} - by_lease
        ids.update(row[0] for row in sql.fetch(self.connection, sql.EXPERIMENT_IDS, prefetch.names))
        due = self._due_ids() if prefetch.due else set()
        ids |= due
        if prefetch.cleanup:
            ids.update(self._cleanup_ids())
        for id, version in self._storage.locked(self.connection, sorted(ids)):
            experiment = self._cache.get(id)
            if experiment is None or experiment.version != version:
                wanted = select(experiments).where(experiments.c.id == id)
                stored = self.connection.execute(wanted).one()
                try:
                    experiment = read_experiment(stored, experiment)
                except Problem:
                    self._unreadable.add(stored.name)
                    continue
                self._cache[id] = experiment
            self._register(experiment)
            self._loaded[experiment.definition.uid] = version
        self._load_persons(prefetch.persons)
        self._load_first_decisions(prefetch.sticky)
        if not self._storage.one_process:
            # Again: another process may have held the lock.
            self._load_decisions(prefetch.decisions, _LOCKED)
        self._load_requests(prefetch.requests)
        closed = self._closed_windows(by_lease)
        self.now = max([self.now, *closed, *(each.counters.time for each in self.by_id.values())])
        for experiment in self.by_id.values():
            experiment.advance_clock(self.now)
            if experiment.id in due or experiment.definition.name in prefetch.names:
                self._close_windows(experiment)
                if experiment.is_leased and settle_leases(self.connection, experiment):
                    self.mark_changed(experiment)  # after decisions: deciders lock in this order

    def _use_leases(self, prefetch: Prefetch) -> set[int]:
        """Register the experiments that need no row, by the leases of this process; their ids."""
        names = set(prefetch.slots)
        if self._leases is None:
            prefetch.names |= names
            return set()
        by_lease: dict[int, LeasedExperiment] = {}
        for name in sorted(names - prefetch.names):
            leased = self._leases.by_name.get(name)
            if leased is not None:
                leased.begin(self.now)
                if leased.slots_left() >= prefetch.slots[name]:
                    by_lease[leased.id] = leased
        for id in {row["experiment"] for row in self.decisions.values()} - by_lease.keys():
            if id not in self._leases.by_id:
                wanted = select(experiments).where(experiments.c.id == id)
                with contextlib.suppress(Problem):  # a damaged one: locking it says so
                    self._leases.add(read_experiment(self.connection.execute(wanted).one()))
            leased = self._leases.by_id.get(id)
            if leased is not None and leased.definition.name not in prefetch.names | names:
                leased.begin(self.now)
                by_lease[id] = leased
        for leased in by_lease.values():
            self._register(leased)
        prefetch.names |= names - {each.definition.name for each in by_lease.values()}
        return set(by_lease)

    def _closed_windows(self, by_lease: set[int]) -> list[float]:
        """Ends of windows that others have closed: the service's time is later."""
        return [
            row["closes"]
            for row in self.decisions.values()
            if row["experiment"] in by_lease and row["state"] in (REWARDED, DEFAULTED, GIVEN_UP)
        ]

    def revoke_leases(self, experiment: ServedExperiment) -> None:
        """End all leases of an experiment: no process decides by them afterwards."""
        if experiment.is_leased and settle_leases(self.connection, experiment, revoke=True):
            self.mark_changed(experiment)

    def require_leases(self) -> None:
        """Raise a `Problem` unless several processes can use the database."""
        if self._leases is None:
            raise Problem(
                422,
                "deciders > 1 needs PostgreSQL: an SQLite file has one process; start the service "
                "with --database postgresql://..., or give deciders = 1",
            )

    def _register(self, experiment: ServedExperiment) -> None:
        self.by_id[experiment.id] = experiment
        self.by_name[experiment.definition.name] = experiment

    def experiment(self, name: str) -> ServedExperiment:
        """The locked experiment of that name, without ended windows; raises if there is none."""
        experiment = self.find(name)
        if experiment is None:
            raise Problem(404, "this experiment does not exist; create it first")
        if experiment.overdue:
            raise OverdueWindowsError
        return experiment

    def find(self, name: str) -> ServedExperiment | None:
        """The locked experiment of that name, or None."""
        if name in self._unreadable:
            raise damaged_experiment()
        return self.by_name.get(name)

    def mark_changed(self, experiment: ServedExperiment) -> None:
        """Make `store` write the experiment."""
        self._touched.add(experiment.id)

    def mark_written(self) -> None:
        """Count the commit of a job that wrote to the database itself."""
        self._wrote = True

    def update_decision(self, row: dict[str, Any]) -> None:
        self._changed[row["id"]] = row

    def decisions_of(self, tag: int, experiment: ServedExperiment) -> list[dict[str, Any]]:
        """The decisions of a person in an experiment, with changes of this transaction."""
        stored = sql.DECISIONS.read(self.connection, "WHERE person IN (*)", [tag])
        rows = [self.decisions.setdefault(row["id"], row) for row in stored]
        rows += self._new_decisions
        mine = experiment.id, tag
        return [row for row in rows if (row["experiment"], row.get("person")) == mine]

    def erase_decision(self, row: dict[str, Any]) -> None:
        """Store an erased decision: `ServedExperiment.erase` changed the row."""
        if any(row is new for new in self._new_decisions):
            row.update(position=None, propensity=None, level=None, features=None, metrics=None)
        else:
            self.update_decision(row)
            self._erased.append(row["id"])

    def forget_requests(self, ids: set[int]) -> None:
        """Delete requests, also those of this transaction."""
        self._new_requests = [row for row in self._new_requests if row["id"] not in ids]
        sql.execute_for(self.connection, sql.DELETE_REQUESTS, sorted(ids))

    def add_decisions(self, rows: list[dict[str, Any]]) -> None:
        self._new_decisions += rows

    def add_request(
        self, experiment: ServedExperiment, row: dict[str, Any], answer: list[dict[str, Any]]
    ) -> None:
        """Insert a request; its repetitions get the same answer."""
        self._new_requests.append(row)
        self.requests[experiment.id, row["digest"]] = row["body"], answer

    def update_person(self, key: tuple[int, str], person: StoredPerson) -> None:
        """Set what is stored about a person in an experiment."""
        self.persons[key] = person
        self._changed_persons.add(key)

    def joins(self, population: str, digest: str, segment: str) -> bool:
        """Whether a person is in a segment: that of the first decision that could learn.

        A person who is in none joins it.
        """
        key = population, digest
        if key not in self._segments:
            rows = sql.fetch(self.connection, sql.SEGMENTS, [digest], population)
            if not rows:
                self._joined[key] = segment
            self._segments[key] = rows[0][0] if rows else segment
        return self._segments[key] == segment

    def add_experiment(self, experiment: ServedExperiment, now: float) -> None:
        experiment.created, experiment.version = now, 1
        experiment.advance_clock(now)
        definition = experiment.definition
        result = self.connection.execute(
            insert(experiments).values(
                uid=definition.uid,
                name=definition.name,
                definition=definition.json,
                created=now,
                **experiment.columns(),
            )
        )
        key = result.inserted_primary_key
        assert key is not None
        experiment.id = int(key[0])
        self._cache[experiment.id] = experiment
        self._register(experiment)
        self._created.add(experiment.id)

    @property
    def created(self) -> list[str]:
        """The uids of new experiments."""
        return [self.by_id[id].definition.uid for id in self._created]

    def open_decisions(self, experiment: ServedExperiment, arm: int) -> int:
        """The open decisions of an arm, with those of this transaction."""
        table = decisions.c
        stored = select(func.count()).where(table.state == OPEN, table.arm == arm)
        stored = stored.where(table.experiment == experiment.id)
        closed = [
            row["id"]
            for row in self._changed.values()
            if row["state"] != OPEN and (row["experiment"], row["arm"]) == (experiment.id, arm)
        ]
        made = [
            row
            for row in self._new_decisions
            if row["state"] == OPEN and (row["experiment"], row["arm"]) == (experiment.id, arm)
        ]
        scalar = self.connection.scalar
        just_closed = scalar(stored.where(table.id.in_(closed))) if closed else 0
        return int(scalar(stored) or 0) - int(just_closed or 0) + len(made)

    def store(self) -> bool:
        """Write all changes; returns whether there were any."""
        snapshots_taken = []
        self._grant_leases()
        for id in sorted(self._touched):
            experiment = self.by_id[id]
            if isinstance(experiment, LeasedExperiment):
                continue
            if (snapshot := experiment.snapshot()) is not None:
                snapshots_taken.append(snapshot)
            if id not in self._created:
                experiment.version += 1
            columns = experiment.columns()
            values = (*(columns[name] for name in sql.EXPERIMENT_COLUMNS), id)
            sql.execute_many(self.connection, sql.UPDATE_EXPERIMENT, [values])
        sql.REQUEST_ROWS.insert(self.connection, self._new_requests)
        sql.DECISIONS.insert(self.connection, self._new_decisions)
        sql.SNAPSHOTS.insert(self.connection, snapshots_taken)
        rows = [
            (row["state"], row["kind"], row["value"], row.get("metrics"), row.get("exposed"), id)
            for id, row in self._changed.items()
        ]
        sql.execute_many(self.connection, sql.UPDATE_DECISION, rows)
        erased = [(WAS_ERASED, id) for id in self._erased]
        sql.execute_many(self.connection, sql.ERASE_DECISION, erased)
        for id in self._touched:
            bounds = self.by_id[id].guardrails.drop_bounds()
            dropped = [(id, arm, _ALL_ROUNDS if n is None else n) for arm, n in bounds.items()]
            sql.execute_many(self.connection, sql.DROP_METRICS, dropped)
        known = [(*key, *self.persons[key]) for key in sorted(self._changed_persons)]
        sql.execute_many(self.connection, sql.UPSERT_PERSON, known)
        joined = [(*key, segment) for key, segment in sorted(self._joined.items())]
        if sql.execute_many(self.connection, sql.JOIN_SEGMENT, joined) < len(joined):
            raise SegmentTakenError
        if not use_leases(self.connection, [each for each in self._own_leases() if each.changed]):
            raise LeaseLostError
        touched = self._touched or self._created or self._new_decisions or self._changed
        return self._wrote or bool(touched)

    def _own_leases(self) -> list[HeldLease]:
        """The leases of this process that the transaction may use."""
        by_lease = (each for each in self.by_id.values() if isinstance(each, LeasedExperiment))
        return [lease for each in by_lease for lease in each.leases]

    def _grant_leases(self) -> None:
        """Lease slots of the experiments that decided to this process."""
        for id in sorted({row["experiment"] for row in self._new_decisions}):
            experiment = self.by_id[id]
            if isinstance(experiment, LeasedExperiment) or not experiment.is_leased:
                continue
            if experiment.state == RUNNING and not experiment.overdue:
                assert self._leases is not None  # an experiment has several deciders on it alone
                wanted = self._leases.wanted(id, self.now, experiment.lease_seconds)
                held = self._leases.held(id, self.now)
                lease = grant_lease(self.connection, experiment, held, wanted)
                if lease is not None:
                    self._granted[id] = lease

    def note_committed(self) -> None:
        """Keep the new leases, and what was stored of the others. Call after the commit."""
        for lease in self._own_leases():
            lease.stored, lease.changed = lease.used, False
        for id, lease in self._granted.items():
            if self._leases is not None:
                self._leases.add(self.by_id[id], lease)

    def drop_leases(self) -> bool:
        """Forget the leases that were used, after a failure; returns whether there were any."""
        by_lease = [each for each in self.by_id.values() if isinstance(each, LeasedExperiment)]
        for each in by_lease:
            if self._leases is not None:
                self._leases.drop(each.id)
        return bool(by_lease)

    def versions(self) -> tuple[dict[str, int], dict[str, int]]:
        """The versions of experiments as read, and the current ones, by uid."""
        now = {
            each.definition.uid: each.version
            for each in self.by_id.values()
            if not isinstance(each, LeasedExperiment)
        }
        return self._loaded, now

    # Reading

    def _due_ids(self) -> set[int]:
        due = select(experiments.c.id).where(experiments.c.next_due <= self.now)
        ids = set(self.connection.scalars(due.limit(100)))
        if self._leases is not None:
            over, _ = sql.execute(self.connection, EXPIRED_LEASES, self.now)
            ids.update(int(row[0]) for row in over[:100])
        return ids

    def _cleanup_ids(self) -> set[int]:
        ripe = select(experiments.c.id).where(experiments.c.next_cleanup <= self.now)
        return set(self.connection.scalars(ripe.order_by(experiments.c.next_cleanup).limit(10)))

    def _load_decisions(self, ids: Iterable[str], lock: str = "") -> None:
        for row in sql.DECISIONS.read(self.connection, f"WHERE id IN (*){lock}", sorted(ids)):
            self.decisions[row["id"]] = row

    def _load_requests(self, keys: Iterable[tuple[str, str]]) -> None:
        for experiment, digests in self._by_experiment(keys):
            for id, digest, body in sql.fetch(self.connection, sql.REQUESTS, digests, experiment):
                rows = sql.DECISIONS.read(
                    self.connection, "WHERE request IN (*) ORDER BY position", [id]
                )
                self.requests[experiment, digest] = body, rows

    def _load_persons(self, keys: Iterable[tuple[str, str]]) -> None:
        """Read persons. With leases, lock them: several processes count their decisions."""
        for experiment, digests in sorted(self._by_experiment(keys)):
            query = sql.PERSONS
            if self._leases is not None and self.by_id[experiment].is_leased:
                new = [(experiment, digest) for digest in sorted(digests)]
                sql.execute_many(self.connection, sql.ADD_PERSON, new)
                query += _LOCKED_PERSONS
            for digest, *row in sql.fetch(self.connection, query, sorted(digests), experiment):
                self.persons[experiment, digest] = StoredPerson(*row)

    def _load_first_decisions(self, keys: Iterable[tuple[str, str]]) -> None:
        """Read, without a lock, what an answer says of persons' first sticky decisions."""
        persons = (
            self.persons.get((experiment, digest))
            for experiment, digests in self._by_experiment(keys)
            for digest in digests
        )
        ids = {each.decision for each in persons if each is not None and each.decision is not None}
        for row in sql.DECISIONS.read(self.connection, "WHERE id IN (*)", sorted(ids)):
            kept = {name: row[name] for name in ("id", "arm", "learns", "level")}
            self.first_decisions[row["id"]] = kept

    def _by_experiment(self, keys: Iterable[tuple[str, str]]) -> Iterable[tuple[int, list[str]]]:
        """Group digests by the experiment's id."""
        digests: dict[int, list[str]] = defaultdict(list)
        for name, digest in keys:
            if name in self.by_name:
                digests[self.by_name[name].id].append(digest)
        return digests.items()

    def _close_windows(self, experiment: ServedExperiment) -> None:
        """Close ended windows in the order of decisions; the next commit closes the rest."""
        if not experiment.overdue:
            return
        experiment.next_due = None
        closed: list[dict[str, Any]] = []
        rows = sql.DECISIONS.read(self.connection, _STILL_OPEN, [experiment.id])
        if self._leases is not None and experiment.is_leased:
            self._lock_ended(experiment, rows)
            await_leases(self.connection, experiment)
        for place, row in enumerate(rows):
            if row["closes"] > experiment.counters.time or place == _MOST_CLOSED:
                known_due = experiment.next_due
                closes = row["closes"]
                experiment.next_due = closes if known_due is None else min(known_due, closes)
                break
            known = self.decisions.setdefault(row["id"], row)
            experiment.close_window(known)
            self.update_decision(known)
            closed.append(known)
        experiment.release_rest()
        experiment.drop_released(closed)
        self.mark_changed(experiment)

    def _lock_ended(self, experiment: ServedExperiment, rows: list[dict[str, Any]]) -> None:
        """Lock the decisions whose windows ended, and read their rewards again.

        Other processes record rewards without the experiment's row: one that was acknowledged is
        seen here, and any later one finds its window closed.
        """
        ended = sorted(row["id"] for row in rows if row["closes"] <= experiment.counters.time)
        locked = sql.DECISIONS.read(self.connection, f"WHERE id IN (*){_LOCKED}", ended)
        now = {row["id"]: row for row in locked}
        rows[:] = [now.get(row["id"], row) for row in rows]


def read_experiment(row: Any, earlier: ServedExperiment | None = None) -> ServedExperiment:
    """Restore an experiment. A damaged one raises a `Problem`; the log says why."""
    try:
        return ServedExperiment.from_row(row, earlier)
    except BalaclavaError as error:
        log.error("cannot restore experiment %d: %s", row.id, error)
        raise damaged_experiment() from None


def damaged_experiment() -> Problem:
    """The answer to a request for an experiment with a damaged state."""
    return Problem(
        500, "the experiment's stored state is damaged; see the log, and restore a backup"
    )
