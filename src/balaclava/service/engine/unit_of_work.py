"""One transaction: what it needs is read at once, jobs are applied in memory, all is written."""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from sqlalchemy import Connection, insert, select

from balaclava.errors import BalaclavaError
from balaclava.service.engine.served_experiment import ServedExperiment
from balaclava.service.problems import Problem
from balaclava.service.store.schema import OPEN, experiments
from balaclava.service.store.sql import (
    CHANGE_DECISION,
    CHANGE_EXPERIMENT,
    CHANGING,
    COUNT_PERSON,
    DECISIONS,
    IDS_OF_NAMES,
    PERSONS,
    REQUESTS,
    REQUESTS_MADE,
    SNAPSHOTS,
    execute_many,
    fetch,
)
from balaclava.service.store.storage import Storage, advisory_lock

log = logging.getLogger("balaclava.service")

_DUE_AT_ONCE = 2_000  # windows of one experiment that one transaction ends
_STILL_OPEN = f"WHERE experiment IN (*) AND state = {OPEN} ORDER BY round LIMIT {_DUE_AT_ONCE + 1}"


@dataclass
class Prefetch:
    """What jobs will look at."""

    names: set[str] = field(default_factory=set)
    decisions: set[str] = field(default_factory=set)
    requests: set[tuple[str, str]] = field(default_factory=set)  # name of experiment, digest
    persons: set[tuple[str, str]] = field(default_factory=set)
    creates: bool = False  # an experiment
    due: bool = False  # every experiment of which a window is over


class OverdueWindowsError(Exception):
    """More windows are over than one transaction ends: the job is for a later one."""


class UnitOfWork:
    """The cache of one transaction.

    Experiments that it touches are locked first, in the order of their ids, so that two processes
    never wait for each other.
    """

    def __init__(
        self,
        storage: Storage,
        connection: Connection,
        cache: dict[int, ServedExperiment],
        now: float,
    ) -> None:
        self.connection, self.now = connection, now
        self._storage, self._cache = storage, cache
        self.by_name: dict[str, ServedExperiment] = {}
        self.by_id: dict[int, ServedExperiment] = {}
        self.decisions: dict[str, dict[str, Any]] = {}
        self.requests: dict[tuple[int, str], tuple[str, list[dict[str, Any]]]] = {}
        self.persons: dict[tuple[int, str], int] = {}
        self._unreadable: set[str] = set()  # names of experiments whose state is damaged
        self._touched: set[int] = set()
        self._created: set[int] = set()
        self._changed: dict[str, dict[str, Any]] = {}
        self._new_decisions: list[dict[str, Any]] = []
        self._new_requests: list[dict[str, Any]] = []
        self._changed_persons: set[tuple[int, str]] = set()

    def load(self, prefetch: Prefetch) -> None:
        """Lock the experiments, read the rest, and end the windows that are over.

        Not of experiments that only a reward is for: nothing that can be seen of an experiment
        may change because a reward came, not even when its windows are ended.
        """
        if prefetch.creates:
            advisory_lock(self.connection)
        self._load_decisions(prefetch.decisions)
        ids = {row["experiment"] for row in self.decisions.values()}
        ids.update(row[0] for row in fetch(self.connection, IDS_OF_NAMES, prefetch.names))
        due = self._due_ids() if prefetch.due else set()
        ids |= due
        for id, version in self._storage.locked(self.connection, sorted(ids)):
            experiment = self._cache.get(id)
            if experiment is None or experiment.version != version:
                whole = select(experiments).where(experiments.c.id == id)
                stored = self.connection.execute(whole).one()
                try:
                    experiment = read_experiment(stored)
                except Problem:
                    self._unreadable.add(stored.name)
                    continue
                self._cache[id] = experiment
            self._enter(experiment)
        if not self._storage.one_process:
            self._load_decisions(prefetch.decisions)  # as those have left them who had the lock
        self._load_requests(prefetch.requests)
        self._load_persons(prefetch.persons)
        self.now = max([self.now, *(each.counters.time for each in self.by_id.values())])
        for experiment in self.by_id.values():
            experiment.advance_clock(self.now)
            if experiment.id in due or experiment.definition.name in prefetch.names:
                self._end_windows(experiment)

    def _enter(self, experiment: ServedExperiment) -> None:
        self.by_id[experiment.id] = experiment
        self.by_name[experiment.definition.name] = experiment

    def experiment(self, name: str) -> ServedExperiment:
        """The experiment of that name, locked, its windows ended up to now."""
        experiment = self.known(name)
        if experiment is None:
            raise Problem(404, "there is no such experiment; create it first")
        if experiment.overdue:
            raise OverdueWindowsError
        return experiment

    def known(self, name: str) -> ServedExperiment | None:
        """The experiment of that name, locked, or None if there is none."""
        if name in self._unreadable:
            raise damaged_experiment()
        return self.by_name.get(name)

    def mark_changed(self, experiment: ServedExperiment) -> None:
        """It has changed and will be written."""
        self._touched.add(experiment.id)

    def update_decision(self, row: dict[str, Any]) -> None:
        """A decision has changed and will be written."""
        self._changed[row["id"]] = row

    def add_decisions(self, rows: list[dict[str, Any]]) -> None:
        """New decisions."""
        self._new_decisions += rows

    def add_request(
        self, experiment: ServedExperiment, row: dict[str, Any], answer: list[dict[str, Any]]
    ) -> None:
        """A request, and the decisions that every repetition of it gets."""
        self._new_requests.append(row)
        self.requests[experiment.id, row["digest"]] = row["body"], answer

    def count_person(self, key: tuple[int, str], count: int) -> None:
        """So many decisions for that person learn now."""
        self.persons[key] = count
        self._changed_persons.add(key)

    def add_experiment(self, experiment: ServedExperiment, now: float) -> None:
        """A new experiment."""
        experiment.created, experiment.version = now, 1
        experiment.advance_clock(now)
        definition = experiment.definition
        result = self.connection.execute(
            insert(experiments).values(
                uid=definition.uid,
                name=definition.name,
                definition=definition.text,
                created=now,
                **experiment.columns(),
            )
        )
        key = result.inserted_primary_key
        assert key is not None
        experiment.id = int(key[0])
        self._cache[experiment.id] = experiment
        self._enter(experiment)
        self._created.add(experiment.id)

    def store(self) -> dict[str, int]:
        """Write everything; the version of each experiment that is new or has changed, by uid."""
        snapshots_taken = []
        for id in sorted(self._touched):
            experiment = self.by_id[id]
            if (snapshot := experiment.snapshot()) is not None:
                snapshots_taken.append(snapshot)
            if id not in self._created:
                experiment.version += 1
            columns = experiment.columns()
            values = (*(columns[name] for name in CHANGING), id)
            execute_many(self.connection, CHANGE_EXPERIMENT, [values])
        REQUESTS_MADE.add(self.connection, self._new_requests)
        DECISIONS.add(self.connection, self._new_decisions)
        SNAPSHOTS.add(self.connection, snapshots_taken)
        rows = [(row["state"], row["kind"], row["value"], id) for id, row in self._changed.items()]
        execute_many(self.connection, CHANGE_DECISION, rows)
        counts = [(*key, self.persons[key]) for key in sorted(self._changed_persons)]
        execute_many(self.connection, COUNT_PERSON, counts)
        changed = [self.by_id[id] for id in self._touched | self._created]
        return {experiment.definition.uid: experiment.version for experiment in changed}

    # Reading

    def _due_ids(self) -> set[int]:
        due = select(experiments.c.id).where(experiments.c.next_due <= self.now)
        return set(self.connection.scalars(due.limit(100)))

    def _load_decisions(self, ids: Iterable[str]) -> None:
        for row in DECISIONS.read(self.connection, "WHERE id IN (*)", ids):
            self.decisions[row["id"]] = row

    def _load_requests(self, keys: Iterable[tuple[str, str]]) -> None:
        for experiment, digests in self._by_experiment(keys):
            for id, digest, body in fetch(self.connection, REQUESTS, digests, experiment):
                rows = DECISIONS.read(
                    self.connection, "WHERE request IN (*) ORDER BY position", [id]
                )
                self.requests[experiment, digest] = body, rows

    def _load_persons(self, keys: Iterable[tuple[str, str]]) -> None:
        for experiment, digests in self._by_experiment(keys):
            for digest, count in fetch(self.connection, PERSONS, digests, experiment):
                self.persons[experiment, digest] = count

    def _by_experiment(self, keys: Iterable[tuple[str, str]]) -> Iterable[tuple[int, list[str]]]:
        """Digests by the id of the experiment, in place of its name."""
        digests: dict[int, list[str]] = defaultdict(list)
        for name, digest in keys:
            if name in self.by_name:
                digests[self.by_name[name].id].append(digest)
        return digests.items()

    def _end_windows(self, experiment: ServedExperiment) -> None:
        """In the order of decisions, at most so many at once: the rest with the next commit."""
        if not experiment.overdue:
            return
        experiment.next_due = None
        rows = DECISIONS.read(self.connection, _STILL_OPEN, [experiment.id])
        for place, row in enumerate(rows):
            if row["closes"] > experiment.counters.time or place == _DUE_AT_ONCE:
                experiment.next_due = row["closes"]
                break
            known = self.decisions.setdefault(row["id"], row)
            experiment.close(known)
            self.update_decision(known)
        self.mark_changed(experiment)


def read_experiment(row: Any) -> ServedExperiment:
    """The experiment of a row; a Problem, and the reason in the log, if it is damaged."""
    try:
        return ServedExperiment.from_row(row)
    except BalaclavaError as error:
        log.error("experiment %d cannot be read: %s", row.id, error)
        raise damaged_experiment() from None


def damaged_experiment() -> Problem:
    """An experiment whose stored state is damaged. All others go on."""
    return Problem(500, "the experiment's stored state cannot be read; see the log, put it back")
