"""What can be asked of the writer. A job says what it needs, and is then applied in memory."""

from __future__ import annotations

import json
import secrets
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

from sqlalchemy import insert, select, update

from balaclava.agents.player import REPORT, REWARD, Lesson
from balaclava.errors import RewardError
from balaclava.service.definition import Definition
from balaclava.service.experiment import FINISHED, PAUSED, RUNNING, Experiment
from balaclava.service.ledger import Ledger
from balaclava.service.problems import Problem
from balaclava.service.schema import keys
from balaclava.service.secrets import Role, Vault, is_decision_id, key_digest, new_key
from balaclava.service.work import Needs, Work, unreadable

RECORDED = {"recorded": True}


class Job:
    """Something that changes the database."""

    weight: ClassVar[int] = 1  # how much of the queue it takes

    def need(self, needs: Needs) -> None:
        """Add what it will look at."""

    def apply(self, work: Work) -> Any:
        """Do it, and return the answer; a Problem leaves everything as it was."""
        raise NotImplementedError


@dataclass
class Decide(Job):
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

    def need(self, needs: Needs) -> None:
        """The experiment, the request if it came before, the person."""
        needs.names.add(self.name)
        if self._request:
            needs.requests.add((self.name, self._request))
        if self._person:
            needs.persons.add((self.name, self._person))

    def apply(self, work: Work) -> str:
        """Exactly `count` decisions, in JSON; the same again for the same request."""
        experiment = work.experiment(self.name)
        known = work.requests.get((experiment.id, self._request)) if self._request else None
        if known is not None:
            body, rows = known
            if body != self._body:
                raise Problem(409, "this request_id was used for another request; take a new one")
            return shown(experiment, rows)
        if experiment.state == PAUSED:
            raise Problem(409, "the experiment is paused; resume it to get decisions")
        rows = self._decide(work, experiment)
        work.add_decisions(rows)
        work.touch(experiment)
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
        return shown(experiment, rows)

    def _decide(self, work: Work, experiment: Experiment) -> list[dict[str, Any]]:
        learning = 0 if experiment.state == FINISHED else self.count
        if self._person and learning:
            key = experiment.id, self._person
            used = work.persons.get(key, 0)
            learning = min(learning, max(experiment.definition.rewards_per_person - used, 0))
            if learning:
                work.count_person(key, used + learning)
        return experiment.decide(self.count, learning, bool(self._person))


def shown(experiment: Experiment, rows: Sequence[dict[str, Any]]) -> str:
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


class Outcome(NamedTuple):
    """What came of a decision: a reward, or a report of one."""

    decision_id: str
    kind: str
    value: float


@dataclass
class Reward(Job):
    """Outcomes, an answer for each: what was recorded, or a Problem."""

    outcomes: Sequence[Outcome]

    def __post_init__(self) -> None:
        self.weight = max(len(self.outcomes), 1)  # type: ignore[misc]

    def need(self, needs: Needs) -> None:
        """The decisions; what cannot be an id is not looked for."""
        ids = (outcome.decision_id for outcome in self.outcomes)
        needs.decisions.update(id for id in ids if is_decision_id(id))

    def apply(self, work: Work) -> list[dict[str, bool] | Problem]:
        """Each outcome by itself: one that is refused does not hold up the others."""
        return [self._record(work, outcome) for outcome in self.outcomes]

    def _record(self, work: Work, outcome: Outcome) -> dict[str, bool] | Problem:
        row = work.decisions.get(outcome.decision_id)
        if row is None:
            return Problem(404, "there is no such decision; give the id that came with it")
        experiment = work.by_id.get(row["experiment"])
        if experiment is None:
            return unreadable()
        if experiment.books.time >= row["closes"]:
            return Problem(410, "the decision's window is over; its reward cannot count any more")
        if (outcome.kind == REPORT) != (experiment.policy.model == "local"):
            wanted = "report" if outcome.kind == REWARD else "value"
            return Problem(422, f"{experiment.policy.name} takes {{{wanted!r}: number}}")
        try:
            lesson = experiment.player.checked(Lesson(outcome.kind, outcome.value))
        except RewardError as error:
            return Problem(422, str(error))
        experiment.take(row, lesson)
        # The same answer, and the same work, whatever is stored: any other would tell.
        work.change(row)
        if not experiment.window:
            work.touch(experiment)
        return RECORDED


@dataclass
class Create(Job):
    """A new experiment."""

    ledger: Ledger
    definition: Definition

    def need(self, needs: Needs) -> None:
        """One of the same name."""
        needs.names.add(self.definition.name)
        needs.creates = True

    def apply(self, work: Work) -> bool:
        """Whether it is new. Charged before it is there: what is cut off is not charged twice."""
        known = work.known(self.definition.name)
        if known is not None:
            if not self.definition.asks_for(known.definition):
                raise Problem(
                    409,
                    "there is an experiment of this name with another definition, and nothing was "
                    "changed; take another name",
                )
            return False
        definition = self.definition.complete()
        experiment = Experiment(definition)
        if definition.population is not None:
            charge = definition.guarantee_of_person(experiment.policy)
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
class SetState(Job):
    """Pause, resume or finish."""

    name: str
    verb: str

    def need(self, needs: Needs) -> None:
        """The experiment."""
        needs.names.add(self.name)

    def apply(self, work: Work) -> None:
        """Finished is for good."""
        experiment = work.experiment(self.name)
        wanted = {"pause": PAUSED, "resume": RUNNING, "finish": FINISHED}[self.verb]
        if experiment.state == wanted:
            return
        if experiment.state == FINISHED:
            raise Problem(409, "the experiment is finished, and that is for good")
        experiment.state = wanted
        work.touch(experiment)


@dataclass
class CreateKey(Job):
    """A new API key."""

    role: Role
    label: str

    def apply(self, work: Work) -> dict[str, Any]:
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
class RevokeKey(Job):
    """An API key that is not to be accepted any more."""

    id: str

    def apply(self, work: Work) -> None:
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


class Tick(Job):
    """Nothing is asked; windows that are over are ended."""

    def need(self, needs: Needs) -> None:
        """Experiments that are due."""
        needs.due = True

    def apply(self, work: Work) -> bool:
        """Whether there is more to do; what could be was done when the work was loaded."""
        return any(experiment.behind for experiment in work.by_id.values())
