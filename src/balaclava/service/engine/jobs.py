"""What can be asked of the writer. A job says what it needs, and is then applied in memory."""

from __future__ import annotations

import json
import secrets
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

from sqlalchemy import insert, select, update

from balaclava.agents.policy_runner import REPORT, REWARD, Observation
from balaclava.errors import RewardError
from balaclava.service.credentials import Role, Vault, is_decision_id, key_digest, new_key
from balaclava.service.engine.definition import ExperimentDefinition
from balaclava.service.engine.served_experiment import FINISHED, PAUSED, RUNNING, ServedExperiment
from balaclava.service.engine.unit_of_work import Prefetch, UnitOfWork, damaged_experiment
from balaclava.service.problems import Problem
from balaclava.service.store.ledger import Ledger
from balaclava.service.store.schema import keys

RECORDED = {"recorded": True}


class WriteJob:
    """Something that changes the database."""

    weight: ClassVar[int] = 1  # how much of the queue it takes

    def prefetch(self, wanted: Prefetch) -> None:
        """Add what it will look at."""

    def apply(self, work: UnitOfWork) -> Any:
        """Do it, and return the answer; a Problem leaves everything as it was."""
        raise NotImplementedError


@dataclass
class MakeDecisions(WriteJob):
    """Decisions for a person, or for nobody in particular."""

    vault: Vault
    name: str
    count: int = 1
    request_id: str | None = None
    person: str | None = None

    def __post_init__(self) -> None:
        self.weight = self.count  # type: ignore[misc]
        self._request = self._person = self._body = ""
        if self.request_id is not None:
            self._body = self.vault.digest("body", json.dumps([self.count, self.person]))
            self._request = self.vault.digest("request", f"{self.name}\0{self.request_id}")
        if self.person is not None:
            self._person = self.vault.digest("person", f"{self.name}\0{self.person}")

    def prefetch(self, wanted: Prefetch) -> None:
        """The experiment, the request if it came before, the person."""
        wanted.names.add(self.name)
        if self._request:
            wanted.requests.add((self.name, self._request))
        if self._person:
            wanted.persons.add((self.name, self._person))

    def apply(self, work: UnitOfWork) -> str:
        """Exactly `count` decisions, in JSON; the same again for the same request."""
        experiment = work.experiment(self.name)
        known = work.requests.get((experiment.id, self._request)) if self._request else None
        if known is not None:
            body, rows = known
            if body != self._body:
                raise Problem(409, "this request_id was used for another request; take a new one")
            return decisions_json(experiment, rows)
        if experiment.state == PAUSED:
            raise Problem(409, "the experiment is paused; resume it to get decisions")
        rows = self._decide(work, experiment)
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
        return decisions_json(experiment, rows)

    def _decide(self, work: UnitOfWork, experiment: ServedExperiment) -> list[dict[str, Any]]:
        learning = 0 if experiment.state == FINISHED else self.count
        if self._person and learning:
            key = experiment.id, self._person
            used = work.persons.get(key, 0)
            learning = min(learning, max(experiment.definition.rewards_per_person - used, 0))
            if learning:
                work.count_person(key, used + learning)
        return experiment.decide(self.count, learning, bool(self._person))


def decisions_json(experiment: ServedExperiment, rows: Sequence[dict[str, Any]]) -> str:
    """Decisions as they are answered: the JSON of `DecisionsOut`, in a third of the time."""
    answers = []
    for row in rows:
        arm, chance, level = row["arm"], row.get("propensity"), row.get("level")
        answer = f'"decision_id":"{row["id"]}","arm":{arm},"label":{experiment.labels[arm]}'
        answer += f',"propensity":{"null" if chance is None else repr(float(chance))}'
        answer += f',"learns":{"true" if row["learns"] else "false"}'
        if level is not None:
            answer += f',"level":{float(level)!r}'
        answers.append(f"{{{answer}}}")
    return f'{{"decisions":[{",".join(answers)}]}}'


class ReceivedReward(NamedTuple):
    """What came of a decision: a reward, or a report of one."""

    decision_id: str
    kind: str
    value: float


@dataclass
class RecordRewards(WriteJob):
    """Outcomes, an answer for each: what was recorded, or a Problem."""

    outcomes: Sequence[ReceivedReward]

    def __post_init__(self) -> None:
        self.weight = max(len(self.outcomes), 1)  # type: ignore[misc]

    def prefetch(self, wanted: Prefetch) -> None:
        """The decisions; what cannot be an id is not looked for."""
        ids = (outcome.decision_id for outcome in self.outcomes)
        wanted.decisions.update(id for id in ids if is_decision_id(id))

    def apply(self, work: UnitOfWork) -> list[dict[str, bool] | Problem]:
        """Each outcome by itself: one that is refused does not hold up the others."""
        return [self._record(work, outcome) for outcome in self.outcomes]

    def _record(self, work: UnitOfWork, outcome: ReceivedReward) -> dict[str, bool] | Problem:
        row = work.decisions.get(outcome.decision_id)
        if row is None:
            return Problem(404, "there is no such decision; give the id that came with it")
        experiment = work.by_id.get(row["experiment"])
        if experiment is None:
            return damaged_experiment()
        if experiment.counters.time >= row["closes"]:
            return Problem(410, "the decision's window is over; its reward cannot count any more")
        if (outcome.kind == REPORT) != (experiment.policy.model == "local"):
            wanted = "report" if outcome.kind == REWARD else "value"
            return Problem(422, f"{experiment.policy.name} takes {{{wanted!r}: number}}")
        try:
            observation = experiment.player.checked(Observation(outcome.kind, outcome.value))
        except RewardError as error:
            return Problem(422, str(error))
        experiment.take(row, observation)
        # The same answer, and the same work, whatever is stored: any other would tell.
        work.update_decision(row)
        if not experiment.window:
            work.mark_changed(experiment)
        return RECORDED


@dataclass
class CreateExperiment(WriteJob):
    """A new experiment."""

    ledger: Ledger
    definition: ExperimentDefinition

    def prefetch(self, wanted: Prefetch) -> None:
        """One of the same name."""
        wanted.names.add(self.definition.name)
        wanted.creates = True

    def apply(self, work: UnitOfWork) -> bool:
        """Whether it is new. Charged before it is there: what is cut off is not charged twice."""
        known = work.known(self.definition.name)
        if known is not None:
            if not self.definition.matches(known.definition):
                raise Problem(
                    409,
                    "there is an experiment of this name with another definition, and nothing was "
                    "changed; take another name",
                )
            return False
        definition = self.definition.with_defaults()
        experiment = ServedExperiment(definition)
        if definition.population is not None:
            charge = definition.person_guarantee(experiment.policy)
            if not charge.private:
                raise Problem(
                    409,
                    "nothing is promised to a person who gives that many rewards; lower "
                    "rewards_per_person or epsilon",
                )
            self.ledger.charge(
                definition.population,
                definition.name,
                definition.uid,
                charge.epsilon,
                charge.delta,
            )
        work.add_experiment(experiment, work.now)
        return True


@dataclass
class SetExperimentState(WriteJob):
    """Pause, resume or finish."""

    name: str
    verb: str

    def prefetch(self, wanted: Prefetch) -> None:
        """The experiment."""
        wanted.names.add(self.name)

    def apply(self, work: UnitOfWork) -> None:
        """Finished is for good."""
        experiment = work.experiment(self.name)
        wanted = {"pause": PAUSED, "resume": RUNNING, "finish": FINISHED}[self.verb]
        if experiment.state == wanted:
            return
        if experiment.state == FINISHED:
            raise Problem(409, "the experiment is finished, and that is for good")
        experiment.state = wanted
        work.mark_changed(experiment)


@dataclass
class CreateKey(WriteJob):
    """A new API key."""

    role: Role
    label: str

    def apply(self, work: UnitOfWork) -> dict[str, Any]:
        """The key, which is shown this once."""
        if not self.label.isprintable():
            raise Problem(422, "a label has no control characters")
        text = new_key()
        row = {
            "id": secrets.token_hex(8),
            "role": self.role,
            "label": self.label,
            "created": time.time(),
        }
        work.connection.execute(insert(keys).values(**row, digest=key_digest(text)))
        return {**row, "key": text}


@dataclass
class RevokeKey(WriteJob):
    """An API key that is not to be accepted any more."""

    id: str

    def apply(self, work: UnitOfWork) -> None:
        """The last admin key stays: nobody could make another."""
        valid = work.connection.execute(select(keys).where(keys.c.revoked.is_(None))).all()
        known = next((row for row in valid if row.id == self.id), None)
        if known is None:
            raise Problem(404, "there is no such key, or it was revoked")
        if known.role == "admin" and sum(row.role == "admin" for row in valid) == 1:
            raise Problem(409, "this is the last admin key; make another before you revoke it")
        work.connection.execute(
            update(keys).where(keys.c.id == self.id).values(revoked=time.time())
        )


class CloseWindows(WriteJob):
    """Nothing is asked; windows that are over are ended."""

    def prefetch(self, wanted: Prefetch) -> None:
        """Experiments that are due."""
        wanted.due = True

    def apply(self, work: UnitOfWork) -> bool:
        """Whether there is more to do; what could be was done when the work was loaded."""
        return any(experiment.overdue for experiment in work.by_id.values())
