"""One experiment as it stands in the database: its policy at work, and its books.

Nothing here touches the database. Decisions are rows; this says what becomes of them.
"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from balaclava.agents.decisions import OpenDecision
from balaclava.agents.estimates import EstimateReader
from balaclava.agents.policy_runner import REWARD, Choice, Observation, PolicyRunner
from balaclava.agents.saving import fill_from_bytes, state_bytes
from balaclava.errors import EstimateError
from balaclava.privacy.randomness import SystemRandomness
from balaclava.service.credentials import new_decision_ids
from balaclava.service.engine.definition import ExperimentDefinition
from balaclava.service.store.schema import DEFAULTED, GIVEN_UP, OPEN, REWARDED, UNLEARNED

RUNNING, PAUSED, FINISHED = "running", "paused", "finished"
CONFIDENCE = 0.95
_SNAPSHOT_GROWTH, _SNAPSHOT_LEAST = 1.05, 50  # decisions from one picture to the next
_WAIT_BUCKETS = 64  # of how late rewards come: each sqrt(2) times the one before, from 0.1 s


@dataclass
class Counters:
    """What is counted. With windows, nothing here depends on when or whether rewards came."""

    time: float = 0.0  # the service's, never going back
    rounds: int = 0  # decisions that learn: the policy's clock
    over: int = 0  # of them, those whose window is over or whose reward came
    anonymous: int = 0  # decisions that learn and came without a person
    last_arm: int = 0  # of the last decision that learned
    decisions: list[int] = field(default_factory=list)  # of each arm
    learning: list[int] = field(default_factory=list)  # of each arm, those that learn
    next_snapshot: int = 1
    # Where batches settle by arrival, and only there:
    rewarded: int = 0
    defaulted: int = 0
    given_up: int = 0
    waits: list[int] = field(default_factory=list)


class ServedExperiment:
    """The policy, its state and the books, as of a version."""

    def __init__(
        self,
        definition: ExperimentDefinition,
        *,
        id: int = 0,
        version: int = 0,
        state: str = RUNNING,
    ) -> None:
        self.id, self.version, self.state = id, version, state
        self.definition = definition
        self.policy = definition.make_policy()
        self.labels = [json.dumps(self.policy.arm_label(arm)) for arm in range(self.policy.arms)]
        self.player = PolicyRunner(self.policy, SystemRandomness())
        zeros = [0] * self.policy.arms
        self.counters = Counters(decisions=list(zeros), learning=list(zeros))
        self.created = 0.0
        self.next_due: float | None = None
        self._last_snapshot: tuple[Any, dict[str, Any]] | None = None  # the last, and what it shows

    @classmethod
    def from_row(cls, row: Any) -> ServedExperiment:
        """As it was stored; everything in it is checked."""
        experiment = cls(
            ExperimentDefinition.from_json(row.definition),
            id=row.id,
            version=row.version,
            state=row.state,
        )
        experiment.counters = Counters(**json.loads(row.books))
        experiment.created, experiment.next_due = row.created, row.next_due
        rounds = experiment.counters.rounds
        fill_from_bytes(experiment.policy, experiment.player.state, row.policy_state, rounds)
        return experiment

    def columns(self) -> dict[str, Any]:
        """What a commit writes of it."""
        return {
            "version": self.version,
            "state": self.state,
            "books": json.dumps(vars(self.counters)),
            "policy_state": state_bytes(self.player.state),
            "next_due": self.next_due,
        }

    @property
    def window(self) -> bool:
        """Whether batches settle at the end of windows."""
        return self.definition.settle == "window"

    @property
    def overdue(self) -> bool:
        """Whether windows are over that were not ended yet."""
        return self.next_due is not None and self.next_due <= self.counters.time

    def advance_clock(self, now: float) -> float:
        """The experiment's time: `now`, unless it was later already."""
        self.counters.time = max(self.counters.time, now)
        return self.counters.time

    # Decisions

    def decide(self, count: int, learning: int, named: bool) -> list[dict[str, Any]]:
        """New decisions, as rows, of which the first `learning` learn.

        One that does not learn follows from what is public. A row leaves out what there is none
        of, and says by a number whether it learns: the database's driver is slow with the rest.
        """
        counters, policy = self.counters, self.policy
        closes = counters.time + self.definition.reward_window
        every = {"experiment": self.id, "made": counters.time, "closes": closes}
        learns = {**every, "learns": 1, "state": OPEN}
        public = {**every, "learns": 0, "state": UNLEARNED}
        rows = []
        for place, id in enumerate(new_decision_ids(count)):
            if place < learning:
                counters.rounds += 1
                arm, phase, chance = self.player.choose(counters.rounds)
                counters.last_arm = arm
            elif place == learning:  # and so for the rest of them
                arm, phase, chance = self._public_choice()
            counters.decisions[arm] += 1
            row = {**(learns if phase >= 0 else public), "id": id, "arm": arm, "phase": phase}
            if chance is not None:
                row["propensity"] = chance
            if phase >= 0:
                row["round"] = counters.rounds
                counters.learning[arm] += 1
                counters.anonymous += not named
                if policy.model == "local":
                    row["level"] = self.player.level(arm, phase)
            elif place < learning:
                counters.over += 1  # nothing is waited for
            rows.append(row)
        if self.next_due is None and any(row["learns"] for row in rows):
            self.next_due = closes
        return rows

    def _public_choice(self) -> Choice:
        """The best arm by what was released; where means are not, the last arm decided for.

        Both follow from what is public already, so that it costs no privacy however often.
        """
        chance = None if self.policy.scope == "decision" else 1.0
        return Choice(self.leader(), -1, chance)

    def leader(self) -> int:
        """The arm that is served where nothing is learned."""
        released = self.policy.released(self.player.state)
        if released is None or not all(each.rewards for each in released):
            return self.counters.last_arm
        return max(released, key=lambda each: each.mean).arm

    # Rewards

    def take(self, row: dict[str, Any], observation: Observation) -> None:
        """A reward, or a report, came in time; one that is there already stays."""
        if row["state"] != OPEN or row["kind"] is not None or self.state == FINISHED:
            return
        if self.window:
            row["kind"], row["value"] = observation
            return
        self.player.learn(_entry(row), observation)
        row["state"] = REWARDED
        self.counters.over += 1
        self.counters.rewarded += 1
        self._record_wait(self.counters.time - row["made"])

    def close(self, row: dict[str, Any]) -> None:
        """The window of an open decision is over; what came for it is not kept."""
        if self.state == FINISHED:
            row["state"], row["kind"], row["value"] = UNLEARNED, None, None
            self.counters.over += 1
            return
        default = self.definition.default_reward
        observation = Observation(row["kind"], row["value"]) if row["kind"] else None
        row["state"] = DEFAULTED if observation is None else REWARDED
        if observation is None and default is not None:
            observation = self.player.checked(Observation(REWARD, default))
        self.counters.over += 1
        row["kind"] = row["value"] = None
        if observation is not None:
            self.player.learn(_entry(row), observation)
            self.counters.defaulted += not self.window
            return
        self.player.forget(_entry(row))
        row["state"] = GIVEN_UP
        self.counters.given_up += 1

    def _record_wait(self, seconds: float) -> None:
        waits = self.counters.waits or [0] * _WAIT_BUCKETS
        bucket = 0 if seconds <= 0.1 else 1 + int(2 * math.log2(seconds / 0.1))
        waits[min(bucket, _WAIT_BUCKETS - 1)] += 1
        self.counters.waits = waits

    def wait_quantile(self, share: float) -> float | None:
        """In how many seconds that share of the rewards that came had come, rounded up."""
        counts = np.cumsum(self.counters.waits)
        if not len(counts):
            return None
        bucket = int(np.searchsorted(counts, share * counts[-1]))
        return float(0.1 * 2 ** (bucket / 2))

    # What is known

    def reading(self, confidence: float = CONFIDENCE) -> EstimateReader | EstimateError:
        """Released means and their intervals, or why there are none."""
        try:
            return self.player.reading(self.counters.learning, confidence)
        except EstimateError as error:
            return error

    def snapshot(self) -> dict[str, Any] | None:
        """A picture for the charts, once in a while; when, follows from decisions alone."""
        total = sum(self.counters.decisions)
        if total < self.counters.next_snapshot:
            return None
        grown = math.ceil(total * _SNAPSHOT_GROWTH)
        self.counters.next_snapshot = max(total + _SNAPSHOT_LEAST, grown)
        content = {"counts": self.counters.decisions, **self._released_values()}
        return {
            "experiment": self.id,
            "decisions": total,
            "at": self.counters.time,
            "content": json.dumps(content),
        }

    def _released_values(self) -> dict[str, Any]:
        """Means and intervals; worked out anew only when something was released since."""
        reading = self.reading()
        if not isinstance(reading, EstimateReader):
            return {}
        if self._last_snapshot is None or self._last_snapshot[0] != reading.released_means:
            estimates = reading.estimates()
            snapshot = {
                "means": [finite(each.mean) for each in estimates],
                "low": [finite(each.interval[0]) for each in estimates],
                "high": [finite(each.interval[1]) for each in estimates],
            }
            self._last_snapshot = reading.released_means, snapshot
        return self._last_snapshot[1]


def finite(value: float | None) -> float | None:
    """The number; None in place of an infinite one, which JSON has not."""
    return value if value is not None and math.isfinite(value) else None


def _entry(row: dict[str, Any]) -> OpenDecision:
    return OpenDecision(row["id"], row["round"], row["arm"], row["phase"])
