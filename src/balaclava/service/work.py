"""One transaction: what it needs is read at once, jobs are applied in memory, all is written."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from sqlalchemy import Connection, bindparam, insert, select, tuple_, update

from balaclava.errors import BalaclavaError
from balaclava.service.experiment import Experiment
from balaclava.service.problems import Problem
from balaclava.service.schema import OPEN, decisions, experiments, persons, requests, snapshots
from balaclava.service.storage import Storage, stand_alone

log = logging.getLogger("balaclava.service")

_AT_ONCE = 5_000  # values in one question
_DUE_AT_ONCE = 2_000  # windows of one experiment that one transaction ends

_UPDATE_EXPERIMENT = (
    update(experiments)
    .where(experiments.c.id == bindparam("key"))
    .values(
        version=bindparam("version"),
        state=bindparam("state"),
        books=bindparam("books"),
        policy_state=bindparam("policy_state"),
        next_due=bindparam("next_due"),
    )
)
_UPDATE_DECISION = (
    update(decisions)
    .where(decisions.c.id == bindparam("key"))
    .values(state=bindparam("state"), kind=bindparam("kind"), value=bindparam("value"))
)


@dataclass
class Needs:
    """What jobs will look at."""

    names: set[str] = field(default_factory=set)
    decisions: set[str] = field(default_factory=set)
    requests: set[tuple[str, str]] = field(default_factory=set)  # name of experiment, digest
    persons: set[tuple[str, str]] = field(default_factory=set)
    creates: bool = False  # an experiment
    due: bool = False  # every experiment of which a window is over


class BehindError(Exception):
    """More windows are over than one transaction ends: the job is for a later one."""


class Work:
    """The cache of one transaction.

    Experiments that it touches are locked first, in the order of their ids, so that two processes
    never wait for each other.
    """

    def __init__(
        self, storage: Storage, connection: Connection, kept: dict[int, Experiment], now: float
    ) -> None:
        self.connection, self.now = connection, now
        self._storage, self._kept = storage, kept
        self.by_name: dict[str, Experiment] = {}
        self.by_id: dict[int, Experiment] = {}
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

    def load(self, needs: Needs) -> None:
        """Lock the experiments, read the rest, and end the windows that are over.

        Not of experiments that only a reward is for: nothing that can be seen of an experiment
        may change because a reward came, not even when its windows are ended.
        """
        if needs.creates:
            stand_alone(self.connection)
        ids = self._ids_of(needs)
        due = self._due_ids() if needs.due else set()
        ids |= due
        for row in self._storage.locked(self.connection, sorted(ids)):
            experiment = self._kept.get(row.id)
            if experiment is None or experiment.version != row.version:
                whole = select(experiments).where(experiments.c.id == row.id)
                stored = self.connection.execute(whole).one()
                try:
                    experiment = Experiment.from_row(stored)
                except BalaclavaError as error:
                    log.error("experiment %d cannot be read: %s", row.id, error)
                    self._unreadable.add(stored.name)
                    continue
                self._kept[row.id] = experiment
            self._enter(experiment)
        self._load_decisions(needs.decisions)
        self._load_requests(needs.requests)
        self._load_persons(needs.persons)
        self.now = max([self.now, *(each.books.time for each in self.by_id.values())])
        for experiment in self.by_id.values():
            experiment.pass_time(self.now)
            if experiment.id in due or experiment.definition.name in needs.names:
                self._end_windows(experiment)

    def _enter(self, experiment: Experiment) -> None:
        self.by_id[experiment.id] = experiment
        self.by_name[experiment.definition.name] = experiment

    def experiment(self, name: str) -> Experiment:
        """The experiment of that name, locked, its windows ended up to now."""
        experiment = self.known(name)
        if experiment is None:
            raise Problem(404, "there is no such experiment; create it first")
        if experiment.behind:
            raise BehindError
        return experiment

    def known(self, name: str) -> Experiment | None:
        """The experiment of that name, locked, or None if there is none."""
        if name in self._unreadable:
            raise unreadable()
        return self.by_name.get(name)

    def touch(self, experiment: Experiment) -> None:
        """It has changed and will be written."""
        self._touched.add(experiment.id)

    def change(self, row: dict[str, Any]) -> None:
        """A decision has changed and will be written."""
        self._changed[row["id"]] = row

    def add_decisions(self, rows: list[dict[str, Any]]) -> None:
        """New decisions."""
        self._new_decisions += rows

    def add_request(
        self, experiment: Experiment, row: dict[str, Any], answer: list[dict[str, Any]]
    ) -> None:
        """A request, and the decisions that every repetition of it gets."""
        self._new_requests.append(row)
        self.requests[experiment.id, row["digest"]] = row["body"], answer

    def count_person(self, key: tuple[int, str], count: int) -> None:
        """So many decisions for that person learn now."""
        self.persons[key] = count
        self._changed_persons.add(key)

    def add_experiment(self, experiment: Experiment, now: float) -> None:
        """A new experiment."""
        experiment.created, experiment.version = now, 1
        experiment.pass_time(now)
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
        self._kept[experiment.id] = experiment
        self._enter(experiment)
        self._created.add(experiment.id)

    def store(self) -> dict[str, int]:
        """Write everything; the version of each experiment that is new or has changed, by uid."""
        pictures = []
        for id in sorted(self._touched):
            experiment = self.by_id[id]
            if (picture := experiment.snapshot()) is not None:
                pictures.append(picture)
            if id not in self._created:
                experiment.version += 1
            self.connection.execute(_UPDATE_EXPERIMENT, {"key": id, **experiment.columns()})
        for table, rows in (
            (requests, self._new_requests),
            (decisions, self._new_decisions),
            (snapshots, pictures),
        ):
            if rows:
                self.connection.execute(insert(table), rows)
        if self._changed:
            rows = [
                {"key": id, **{name: row[name] for name in ("state", "kind", "value")}}
                for id, row in self._changed.items()
            ]
            self.connection.execute(_UPDATE_DECISION, rows)
        self._store_persons()
        changed = [self.by_id[id] for id in self._touched | self._created]
        return {experiment.definition.uid: experiment.version for experiment in changed}

    def _store_persons(self) -> None:
        if not self._changed_persons:
            return
        self.connection.execute(
            self._storage.count_persons,
            [
                {"experiment": key[0], "digest": key[1], "decisions": self.persons[key]}
                for key in sorted(self._changed_persons)
            ],
        )

    # Reading

    def _ids_of(self, needs: Needs) -> set[int]:
        ids: set[int] = set()
        for names in _pieces(needs.names):
            wanted = select(experiments.c.id).where(experiments.c.name.in_(names))
            ids.update(self.connection.scalars(wanted))
        for keys in _pieces(needs.decisions):
            some = select(decisions.c.experiment).where(decisions.c.id.in_(keys)).distinct()
            ids.update(self.connection.scalars(some))
        return ids

    def _due_ids(self) -> set[int]:
        due = select(experiments.c.id).where(experiments.c.next_due <= self.now)
        return set(self.connection.scalars(due.limit(100)))

    def _load_decisions(self, keys: Iterable[str]) -> None:
        for some in _pieces(keys):
            wanted = select(decisions).where(decisions.c.id.in_(some))
            for row in self.connection.execute(wanted):
                self.decisions[row.id] = dict(row._mapping)

    def _load_requests(self, keys: Iterable[tuple[str, str]]) -> None:
        for some in self._pairs(keys):
            place = tuple_(requests.c.experiment, requests.c.digest)
            for row in self.connection.execute(select(requests).where(place.in_(some))):
                answer = (
                    select(decisions)
                    .where(decisions.c.request == row.id)
                    .order_by(decisions.c.position)
                )
                rows = [dict(each._mapping) for each in self.connection.execute(answer)]
                self.requests[row.experiment, row.digest] = row.body, rows

    def _load_persons(self, keys: Iterable[tuple[str, str]]) -> None:
        for some in self._pairs(keys):
            place = tuple_(persons.c.experiment, persons.c.digest)
            for row in self.connection.execute(select(persons).where(place.in_(some))):
                self.persons[row.experiment, row.digest] = row.decisions

    def _pairs(self, keys: Iterable[tuple[str, str]]) -> Iterable[Sequence[tuple[int, str]]]:
        """Experiments' ids in place of their names, in pieces."""
        known = [(self.by_name[name].id, digest) for name, digest in keys if name in self.by_name]
        return _pieces(known, _AT_ONCE // 2)

    def _end_windows(self, experiment: Experiment) -> None:
        """In the order of decisions, at most so many at once: the rest with the next commit."""
        if not experiment.behind:
            return
        still_open = (
            select(decisions)
            .where(decisions.c.experiment == experiment.id, decisions.c.state == OPEN)
            .order_by(decisions.c.round)
        )
        experiment.next_due = None
        rows = self.connection.execute(still_open.limit(_DUE_AT_ONCE + 1)).all()
        for place, row in enumerate(rows):
            if row.closes > experiment.books.time or place == _DUE_AT_ONCE:
                experiment.next_due = row.closes
                break
            known = self.decisions.setdefault(row.id, dict(row._mapping))
            experiment.close(known)
            self.change(known)
        self.touch(experiment)


def unreadable() -> Problem:
    """An experiment whose stored state is damaged. All others go on."""
    return Problem(500, "the experiment's stored state cannot be read; see the log, put it back")


def _pieces(values: Iterable[Any], size: int = _AT_ONCE) -> Iterable[Sequence[Any]]:
    items = list(values)
    for start in range(0, len(items), size):
        yield items[start : start + size]
