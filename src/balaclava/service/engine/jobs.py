"""Write jobs: each names the rows it needs; the writer fetches them and applies it in memory."""

import json
import secrets
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

from sqlalchemy import delete, insert, select, update

from balaclava.agents.policy_runner import REPORT, REWARD, Observation
from balaclava.errors import RewardError
from balaclava.service.credentials import (
    SESSION_SECONDS,
    Role,
    Vault,
    is_decision_id,
    key_digest,
    new_key,
    person_tag,
)
from balaclava.service.engine.contexts import checked_features
from balaclava.service.engine.definition import ExperimentDefinition
from balaclava.service.engine.served_experiment import (
    FINISHED,
    PAUSED,
    RUNNING,
    Offer,
    ServedExperiment,
)
from balaclava.service.engine.unit_of_work import (
    Prefetch,
    StoredPerson,
    UnitOfWork,
    damaged_experiment,
)
from balaclava.service.problems import Problem
from balaclava.service.share_messages import TICKETS, split_secret, ticket
from balaclava.service.store.ledger import CREATED, KEY_MADE, KEY_REVOKED, Ledger
from balaclava.service.store.schema import WAS_ERASED, ended_sessions, experiments, keys
from balaclava.service.store.sql import END_SESSION, UPSERT_META, execute_many
from balaclava.service.targeting import Attributes, is_held_out, takes_part

RECORDED = {"recorded": True}
_PROBE_BYTES = 32_768  # as random digits, 16 pages of SQLite: a commit of many decisions
TIME = "time"  # name in `meta`
BY_SERVICE = "by the service itself"


class WriteJob:
    """A change of the database: `prefetch` names the rows that `apply` needs."""

    weight: ClassVar[int] = 1  # decisions or rewards: what the queue counts
    since = 0.0  # when it first had to wait for ended windows, by the monotonic clock

    def prefetch(self, wanted: Prefetch) -> None:
        """Add the rows that the job needs to `wanted`."""

    def apply(self, work: UnitOfWork) -> Any:
        """Apply the job; returns the answer. A `Problem` leaves everything unchanged."""
        raise NotImplementedError


@dataclass
class MakeDecisions(WriteJob):
    """Make decisions, for a person or anonymously.

    With `sticky`, the person keeps the arm of the first sticky decision. Only that one may learn.
    """

    vault: Vault
    name: str
    count: int = 1
    request_id: str | None = None
    person: str | None = None
    sticky: bool = False
    available: Sequence[str] | None = None
    features: Any = None
    attributes: Attributes | None = None

    def __post_init__(self) -> None:
        self.weight = self.count  # type: ignore[misc]
        self._request = self._person = self._body = ""
        if self.request_id is not None:
            body: list[Any] = [self.count, self.person, *(["sticky"] if self.sticky else [])]
            if self.available is not None:
                body.append(list(self.available))
            if self.features is not None:
                body.append({"features": self.features})
            if self.attributes is not None:
                body.append({"attributes": self.attributes})
            self._body = self.vault.digest("body", json.dumps(body))
            self._request = self.vault.digest("request", f"{self.name}\0{self.request_id}")
        if self.person is not None:
            self._person = self.vault.person_digest(self.name, self.person)

    def prefetch(self, wanted: Prefetch) -> None:
        if self.available is None and self.features is None:
            wanted.slots[self.name] += self.count
        else:
            wanted.names.add(self.name)
        if self._request:
            wanted.requests.add((self.name, self._request))
        if self._person:
            wanted.persons.add((self.name, self._person))
            if self.sticky:
                wanted.sticky.add((self.name, self._person))

    def apply(self, work: UnitOfWork) -> str:
        """Make `count` decisions; returns their JSON. A repeated request_id gets the same JSON."""
        experiment = work.experiment(self.name)
        known = work.requests.get((experiment.id, self._request)) if self._request else None
        if known is not None:
            body, rows = known
            if body != self._body:
                raise Problem(409, "this request_id belongs to another request; use a new one")
            return self._answer(work, experiment, rows)
        if experiment.state == PAUSED:
            raise Problem(409, "the experiment is paused; resume it first")
        definition = experiment.definition
        named = definition.population is not None or definition.rewards_apart
        if named and not self._person and experiment.state != FINISHED:
            raise Problem(
                422,
                "give the participant as `person`: the experiment is charged to a population or "
                "keeps rewards apart, and rewards_per_person must hold for each participant",
            )
        if self.sticky and not self._person:
            raise Problem(422, "sticky decisions need a `person`, whose arm they repeat")
        rows = self._decide(work, experiment)
        if self._person:
            tag = person_tag(self._person)
            for row in rows:
                row["person"] = tag
        work.add_decisions(rows)
        work.mark_changed(experiment)
        if self._request:
            request = {
                "id": secrets.randbits(62),
                "experiment": experiment.id,
                "digest": self._request,
                "body": self._body,
            }
            for position, row in enumerate(rows):
                row["request"], row["position"] = request["id"], position
            work.add_request(experiment, request, rows)
        return self._answer(work, experiment, rows)

    def _answer(
        self, work: UnitOfWork, experiment: ServedExperiment, rows: Sequence[dict[str, Any]]
    ) -> str:
        definition, first = experiment.definition, None
        if self.sticky:
            person = work.persons.get((experiment.id, self._person), StoredPerson())
            first = work.first_decisions.get(person.decision or "")
        key = split_secret(self.vault, definition, TICKETS) if definition.is_split else None
        return decisions_json(experiment, rows, key, first)

    def _decide(self, work: UnitOfWork, experiment: ServedExperiment) -> list[dict[str, Any]]:
        context = None
        if experiment.chosen_arm is None:
            context = checked_features(experiment.policy, self.features, self.count)
        offer = Offer(self.available, context)
        targeting = experiment.definition.targeting
        if not takes_part(targeting, self.attributes):
            assert targeting is not None
            arm = experiment.arms.index(targeting["otherwise"])
            return experiment.decide(self.count, 0, bool(self._person), offer, arm)
        held_out = experiment.held_out
        if held_out is None:
            return self._decide_for_participants(work, experiment, self.count, offer)
        count, rows = self._number_held_out(held_out), []
        if count:
            fits = self.available is None or held_out["arm"] in self.available
            served = experiment.arms.index(held_out["arm"]) if fits else None
            rows = experiment.decide(count, 0, bool(self._person), offer, served)
        if count < self.count:
            rest = self.count - count
            rows += self._decide_for_participants(work, experiment, rest, offer)
            secrets.SystemRandom().shuffle(rows)  # the order says nothing
        return rows

    def _number_held_out(self, held_out: dict[str, Any]) -> int:
        """How many of the decisions are held out: all or none of a person's."""
        if self.person is not None:
            digest = self.vault.holdout_digest(self.name, self.person)
            return self.count if is_held_out(held_out, digest) else 0
        draws = secrets.SystemRandom()
        return sum(draws.random() < held_out["share"] for _ in range(self.count))

    def _decide_for_participants(
        self, work: UnitOfWork, experiment: ServedExperiment, count: int, offer: Offer
    ) -> list[dict[str, Any]]:
        population = experiment.definition.population
        stopped = population is not None and work.ledger.overspent(population)
        over = experiment.state == FINISHED or experiment.chosen_arm is not None
        learning = 0 if stopped or over else count
        if not self._person or over:  # the winner is served, or the arm of a guardrail
            named = bool(self._person)
            return experiment.decide(count, learning, named, offer)
        key = experiment.id, self._person
        known = person = work.persons.get(key, StoredPerson())
        left = max(experiment.definition.rewards_per_person - known.decisions, 0)
        learning = min(learning, left)
        if learning and not self._is_in_segment(work, experiment, offer):
            learning = 0
        if experiment.definition.rewards_apart:
            tagged = work.decisions_of(person_tag(self._person), experiment)
            joined = {(row["arm"], row["phase"]) for row in tagged if row["phase"] >= 0}
            offer = offer._replace(batches=joined)
        if not self.sticky:
            rows = experiment.decide(count, learning, True, offer)
        else:
            learning = min(learning, 1) if known.arm is None else 0
            rows = experiment.decide_for(known.arm, count, learning, offer)
            if known.arm is None or known.arm in experiment.retired:
                if known.decision is None:
                    work.first_decisions[rows[0]["id"]] = rows[0]
                first = known.decision or rows[0]["id"]  # of a retired arm: it alone learns
                person = person._replace(arm=rows[0]["arm"], decision=first)
        if offer.batches is not None:
            learning = sum(row["learns"] for row in rows)
        person = person._replace(decisions=known.decisions + learning)
        if person != known:
            work.update_person(key, person)
        return rows

    def _is_in_segment(self, work: UnitOfWork, experiment: ServedExperiment, offer: Offer) -> bool:
        """Whether the person is in the experiment's segment; one in none yet joins it."""
        population, segment = experiment.definition.population, experiment.definition.segment
        if population is None or segment is None:
            return True
        experiment.offered(offer.available)  # raises before anything changes
        assert self.person is not None  # a population needs it
        return work.joins(population, self.vault.member_digest(population, self.person), segment)


def decisions_json(
    experiment: ServedExperiment,
    rows: Sequence[dict[str, Any]],
    ticket_key: str | None = None,
    first: dict[str, Any] | None = None,
) -> str:
    """The JSON of `DecisionsOut`, formatted by hand for speed.

    Decisions that repeat the person's `first` sticky one, or follow it after its arm was retired,
    also say what its reward needs.
    """
    answers = []
    gone = first is not None and first["arm"] in experiment.retired
    for row in rows:
        arm, chance = row["arm"], row.get("propensity")
        repeats = first is not None and (gone or first["arm"] == arm)
        learning = first if first is not None and repeats else row
        level = learning.get("level")
        answer = f'"decision_id":"{row["id"]}","arm":{arm},"label":{experiment.labels[arm]}'
        answer += f',"propensity":{"null" if chance is None else repr(float(chance))}'
        answer += f',"learns":{"true" if row["learns"] else "false"}'
        if level is not None:
            answer += f',"level":{float(level)!r}'
        if ticket_key is not None and learning["learns"]:
            answer += f',"ticket":"{ticket(ticket_key, learning["id"])}"'
        if repeats:
            answer += f',"first_decision_id":"{learning["id"]}"'
        answers.append(f"{{{answer}}}")
    return f'{{"decisions":[{",".join(answers)}]}}'


class ReceivedReward(NamedTuple):
    """A reward or a report, as received."""

    decision_id: str
    kind: str | None  # None: only readings of guardrails
    value: float
    metrics: Mapping[str, float] | None = None  # readings of guardrails
    exposed: bool = False


@dataclass
class RecordRewards(WriteJob):
    """Record rewards, of some experiments only if a key is valid for no others."""

    received: Sequence[ReceivedReward]
    experiments: frozenset[str] | None = None

    def __post_init__(self) -> None:
        self.weight = max(len(self.received), 1)  # type: ignore[misc]

    def prefetch(self, wanted: Prefetch) -> None:
        ids = (each.decision_id for each in self.received)
        wanted.decisions.update(id for id in ids if is_decision_id(id))

    def apply(self, work: UnitOfWork) -> list[dict[str, bool] | Problem]:
        """Record each independently; returns an acknowledgement or a `Problem` for each."""
        return [self._record(work, each) for each in self.received]

    def _record(self, work: UnitOfWork, received: ReceivedReward) -> dict[str, bool] | Problem:
        row = work.decisions.get(received.decision_id)
        if row is None:
            return _unknown_decision()
        experiment = work.by_id.get(row["experiment"])
        if experiment is None:
            return damaged_experiment()
        if self.experiments is not None and experiment.definition.name not in self.experiments:
            return _unknown_decision()
        if experiment.definition.is_split:
            return Problem(
                422,
                "the rewards of this experiment must not reach the decider: devices send shares of "
                "them to its two aggregators (report.js)",
            )
        # The window's end settled the decision: its batch may be released, so its sum is final. The
        # refusal depends on clocks and decisions only, not on whether a reward came.
        if experiment.counters.time >= row["closes"] or row["kind"] == WAS_ERASED:
            return Problem(
                410,
                "the reward window of this decision is over; nothing was recorded. Send rewards "
                "within reward_window seconds of the decision",
            )
        if received.exposed and not experiment.definition.exposures:
            return Problem(422, "exposed: the experiment was created without exposures")
        readings = received.metrics or {}
        try:
            metrics = experiment.guardrails.checked_metrics(readings) if readings else {}
        except Problem as problem:
            return problem
        if received.kind is not None:
            fault = self._record_value(experiment, row, received.kind, received.value)
            if fault is not None:
                return fault
        if metrics:
            experiment.record_metrics(row, metrics)
        if received.exposed:
            experiment.record_exposure(row)
        # The same answer after the same work: a difference would reveal what is stored.
        work.update_decision(row)
        if not experiment.settles_by_window:
            work.mark_changed(experiment)
        return RECORDED

    def _record_value(
        self, experiment: ServedExperiment, row: dict[str, Any], kind: str, value: float
    ) -> Problem | None:
        if (kind == REPORT) != (experiment.policy.model == "local"):
            wanted = "report" if kind == REWARD else "value"
            return Problem(422, f"{experiment.policy.name} takes {{{wanted!r}: number}}")
        try:
            observation = experiment.runner.checked(Observation(kind, value), row["level"])
        except RewardError as error:
            return Problem(422, str(error))
        experiment.record_reward(row, observation)
        return None


def _unknown_decision() -> Problem:
    return Problem(404, "this decision does not exist; give the decision_id of the answer")


@dataclass
class CreateExperiment(WriteJob):
    ledger: Ledger
    definition: ExperimentDefinition
    by: str = BY_SERVICE

    def prefetch(self, wanted: Prefetch) -> None:
        wanted.names.add(self.definition.name)
        wanted.creates = True

    def apply(self, work: UnitOfWork) -> bool:
        """Charge, then create it; returns whether it is new.

        After a crash between the two, a retry does not charge again.
        """
        known = work.find(self.definition.name)
        if known is not None:
            if not self.definition.matches(known.definition):
                raise Problem(
                    409,
                    "an experiment of this name has another definition; nothing was changed. Use "
                    "another name",
                )
            return False
        if self.definition.deciders > 1:
            work.require_leases()
        definition = self.definition.with_defaults()
        experiment = ServedExperiment(definition)
        if definition.shares is not None:  # before the charge: it may be refused
            experiment.change_arms((), (), definition.shares, lambda arm: 0)
        if definition.population is not None:
            charge = definition.person_guarantee(experiment.policy)
            if not charge.private:
                raise Problem(
                    409,
                    "there is no guarantee for a person with that many rewards; lower "
                    "rewards_per_person or epsilon",
                )
            self._void_charges(work, definition)
            terms = definition.uid, charge.epsilon, charge.delta, self.by, definition.segment
            self.ledger.charge(definition.population, definition.name, *terms)
        else:
            self.ledger.note(CREATED, definition.name, definition.uid, self.by, self.by)
        work.add_experiment(experiment, work.now)
        return True

    def _void_charges(self, work: UnitOfWork, definition: ExperimentDefinition) -> None:
        """Cancel charges of other experiments whose commit failed, as on a full disk.

        The advisory lock is held: no other process creates one now. Nothing of them was seen.
        """
        assert definition.population is not None
        charges = self.ledger.uncommitted_charges(definition.population)
        charges.pop(definition.uid, None)
        stored = select(experiments.c.uid).where(experiments.c.uid.in_(charges))
        for uid in charges.keys() - set(work.connection.scalars(stored)):
            name, epsilon, delta = charges[uid]
            self.ledger.void_charge(definition.population, name, uid, epsilon, delta)


@dataclass
class SetExperimentState(WriteJob):
    """Pause, resume or finish an experiment."""

    ledger: Ledger
    name: str
    verb: str
    by: str = BY_SERVICE
    arm: str | None = None  # label of the arm that a finished experiment serves

    def prefetch(self, wanted: Prefetch) -> None:
        wanted.names.add(self.name)

    def apply(self, work: UnitOfWork) -> None:
        """Change the state; a finished experiment stays finished."""
        experiment = work.experiment(self.name)
        wanted = {"pause": PAUSED, "resume": RUNNING, "finish": FINISHED}[self.verb]
        if experiment.state == wanted and self.arm in (None, experiment.settings.served_arm):
            return
        if experiment.state == FINISHED:
            raise Problem(409, "the experiment is finished, which cannot be undone")
        self._check_arm(experiment)
        served = "" if self.arm is None else f", serves {self.arm!r}"
        self.ledger.note(self.verb, self.name, None, self.by + served, self.by)
        work.revoke_leases(experiment)
        if wanted == FINISHED:
            experiment.finish(self.arm)
        else:
            experiment.state = wanted
        work.mark_changed(experiment)

    def _check_arm(self, experiment: ServedExperiment) -> None:
        live = [experiment.arms[arm] for arm in sorted(experiment.offered(None))]
        if self.arm is not None and self.arm not in live:
            raise Problem(422, f"there is no live arm {self.arm!r}; give one of {live}")


@dataclass
class CreateKey(WriteJob):
    ledger: Ledger
    role: Role
    label: str
    by: str = BY_SERVICE
    lifetime: float | None = None  # seconds
    id: str = ""  # of a form that must not create two; by default a new one
    experiments: list[str] | None = None  # for which it is valid; None: all

    def apply(self, work: UnitOfWork) -> dict[str, Any]:
        """Store the key's digest; returns the key, which is not stored."""
        if not self.label.isprintable():
            raise Problem(422, "the label must not contain control characters")
        text, now = new_key(), time.time()
        row: dict[str, Any] = {
            "id": self.id or secrets.token_hex(8),
            "role": self.role,
            "label": self.label,
            "created": now,
            "expires": None if self.lifetime is None else now + self.lifetime,
            "experiments": self.experiments,
        }
        if self.id and work.connection.scalar(select(keys.c.id).where(keys.c.id == self.id)):
            raise Problem(
                409,
                "this form was sent before, and its key was created then; it is displayed once. If "
                "you did not copy it, revoke it and create another",
            )
        of = "" if self.experiments is None else f" of {', '.join(map(repr, self.experiments))}"
        self.ledger.note(KEY_MADE, None, row["id"], f"role {self.role}{of}, {self.by}", self.by)
        work.connection.execute(insert(keys).values(**row, digest=key_digest(text)))
        work.mark_written()
        return {**row, "key": text}


@dataclass
class RevokeKey(WriteJob):
    ledger: Ledger
    id: str
    by: str = BY_SERVICE

    def apply(self, work: UnitOfWork) -> None:
        """Revoke the key, unless it is the last admin key. The ledger outlives a restore."""
        rows = work.connection.execute(select(keys).where(keys.c.revoked.is_(None))).all()
        valid = [row for row in rows if row.expires is None or row.expires > time.time()]
        known = next((row for row in valid if row.id == self.id), None)
        if known is None:
            raise Problem(404, "this key does not exist, or was revoked")
        if known.role == "admin" and sum(row.role == "admin" for row in valid) == 1:
            raise Problem(409, "this is the last admin key; create another one first")
        self.ledger.note(KEY_REVOKED, None, self.id, self.by, self.by)
        work.mark_written()
        work.connection.execute(
            update(keys).where(keys.c.id == self.id).values(revoked=time.time())
        )


@dataclass
class EndSession(WriteJob):
    session: str

    def apply(self, work: UnitOfWork) -> None:
        """Store the session's digest until it expires, and delete those that have."""
        now = time.time()
        work.connection.execute(delete(ended_sessions).where(ended_sessions.c.expires < now))
        rows = [(key_digest(self.session), now + SESSION_SECONDS)]
        execute_many(work.connection, END_SESSION, rows)
        work.mark_written()


class Probe(WriteJob):
    """Write some pages, to see whether the disk takes them."""

    def apply(self, work: UnitOfWork) -> None:
        execute_many(work.connection, UPSERT_META, [("probe", secrets.token_hex(_PROBE_BYTES))])
        work.mark_written()


class NoteTime(WriteJob):
    """Note the time, so that a clock that jumped is noticed though nothing else was written."""

    def apply(self, work: UnitOfWork) -> None:
        execute_many(work.connection, UPSERT_META, [(TIME, repr(work.now))])
        work.mark_written()


class CloseWindows(WriteJob):
    """Close ended windows; the writer submits this by the clock."""

    def prefetch(self, wanted: Prefetch) -> None:
        wanted.due = True

    def apply(self, work: UnitOfWork) -> bool:
        """Return whether ended windows remain: `UnitOfWork.load` closes a limited number."""
        return any(experiment.overdue for experiment in work.by_id.values())
