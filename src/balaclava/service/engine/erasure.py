"""Erasure of a person: rewards that are not released, decisions, requests, the sticky arm.

The ledger records an erasure, as digests, before it commits, and the database the number of the
last one that it has. A restored database has an older number: the service applies the others again
before it answers anything.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from sqlalchemy import select

from balaclava.service.credentials import Vault, person_tag
from balaclava.service.engine.jobs import BY_SERVICE, WriteJob
from balaclava.service.engine.unit_of_work import Prefetch, StoredPerson, UnitOfWork
from balaclava.service.store import sql
from balaclava.service.store.ledger import ERASED as ERASED_EVENT
from balaclava.service.store.ledger import Ledger
from balaclava.service.store.schema import decisions, experiments, meta, persons
from balaclava.service.store.storage import Storage

APPLIED = "erasures"  # name in `meta`: number of the last erasure that the database has
_ANY_DECISION = select(decisions.c.id)
_KEPT_AFTER_ERASURE = [
    "A keyed digest of the person with the number of decisions that learned: without it the "
    "limit of rewards per person would start again.",
    "A keyed digest of the person with a segment of a population, where experiments have segments: "
    "without it the person could learn in another one.",
    "The decisions without person, request and reward, until their retention ends: each batch "
    "keeps its size.",
]
_FINAL = [
    "Sums that were released: they contain the rewards, under noise, by the guarantee.",
    "Rewards that are in a policy's sums where batches settle by arrival, or whose policy cannot "
    "take one out.",
    "Shares of rewards at two aggregators, until they release the batch: each is a random number.",
    "Backups, and what was copied elsewhere.",
]


@dataclass
class ErasePerson(WriteJob):
    """Erase a person, given as a digest by name of the experiment."""

    ledger: Ledger
    digests: Mapping[str, str]
    by: str = BY_SERVICE
    number: int | None = None  # in the ledger, if it is applied again
    before: float | None = None  # it is applied to decisions made up to then

    def prefetch(self, wanted: Prefetch) -> None:
        wanted.names.update(self.digests)
        wanted.persons.update(self.digests.items())

    def apply(self, work: UnitOfWork) -> dict[str, Any]:
        """Erase; returns what was erased, what is kept, and what is final."""
        known_to = [work.experiment(name) for name in sorted(self.digests) if work.find(name)]
        number = self.number
        if number is None:
            uids = {each.definition.uid: self.digests[each.definition.name] for each in known_to}
            number = self.ledger.record_erasure(work.now, uids)
            self.ledger.note(ERASED_EVENT, None, None, "a person", self.by)
        count = 0
        for experiment in known_to:
            digest = self.digests[experiment.definition.name]
            rows = work.decisions_of(person_tag(digest), experiment)
            rows = [row for row in rows if self.before is None or row["made"] <= self.before]
            requests = {row["request"] for row in rows if row.get("request") is not None}
            for row in rows:
                experiment.erase(row)
                work.erase_decision(row)
            work.forget_requests(requests)
            key = experiment.id, digest
            if key in work.persons:
                known: StoredPerson = work.persons[key]
                work.update_person(key, known._replace(arm=None, decision=None))
            work.mark_changed(experiment)
            count += len(rows)
        sql.execute_many(work.connection, sql.UPSERT_META, [(APPLIED, str(number))])
        work.mark_written()
        return {
            "experiments": [each.definition.name for each in known_to],
            "decisions": count,
            "erased": [
                "Rewards whose batch was not released, where batches settle by windows: they count "
                "as missing.",
                "Requests, the sticky arm, and every link from decisions to the person.",
            ],
            "kept": _KEPT_AFTER_ERASURE,
            "cannot_be_undone": _FINAL,
        }


def persons_experiments(storage: Storage, vault: Vault, person: str) -> dict[str, str]:
    """The experiments that know a person, each with the person's digest in it."""
    wanted = select(experiments.c.id, experiments.c.name).order_by(experiments.c.id)
    digests = {}
    with storage.reading() as connection:
        for id, name in connection.execute(wanted).all():
            digest = vault.person_digest(name, person)
            counted = select(persons.c.decisions).where(persons.c.experiment == id)
            tagged = _ANY_DECISION.where(decisions.c.person == person_tag(digest))
            if (
                connection.execute(counted.where(persons.c.digest == digest)).first() is not None
                or connection.execute(tagged.limit(1)).first() is not None
            ):
                digests[name] = digest
    return digests


def unapplied_erasures(storage: Storage, ledger: Ledger) -> list[ErasePerson]:
    """Erasures in the ledger that a restored database does not have."""
    with storage.reading() as connection:
        applied = connection.scalar(select(meta.c.value).where(meta.c.name == APPLIED))
        rows = connection.execute(select(experiments.c.uid, experiments.c.name)).all()
    names = {row.uid: row.name for row in rows}
    return [
        ErasePerson(ledger, {names[each.uid]: each.digest}, number=each.id, before=each.at)
        for each in ledger.erasures_after(int(applied or 0))
        if each.uid in names
    ]
