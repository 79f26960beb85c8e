"""One experiment in memory: its policy, the policy's state, and its counters.

Nothing here accesses the database. Decisions are rows, which these methods make and change.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import asdict, dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np

from balaclava.agents.decisions import OpenDecision
from balaclava.agents.estimates import EstimateReader
from balaclava.agents.policy_runner import REWARD, Choice, Observation, PolicyRunner
from balaclava.agents.saving import DamageError, StateBytes, fill_from_bytes
from balaclava.agents.settling import arrival_condition
from balaclava.errors import BalaclavaError, EstimateError, ParameterError, SavedStateError
from balaclava.policies.base import NamedArms
from balaclava.policies.contextual.value_estimates import ValueEstimates
from balaclava.privacy.guarantee import Guarantee
from balaclava.privacy.randomness import SystemRandomness
from balaclava.service.credentials import new_decision_ids
from balaclava.service.engine.contexts import (
    choose_without_learning,
    stores_features,
    takes_features,
)
from balaclava.service.engine.definition import MOST_ARMS, ExperimentDefinition, require_distinct
from balaclava.service.engine.guardrails import Guardrail, Guardrails
from balaclava.service.engine.settings import ExperimentSettings, retention_of
from balaclava.service.engine.unreleased import (
    awaits_release,
    end_batch,
    has_open_batches,
    next_batches,
    replace_reward,
)
from balaclava.service.problems import Problem
from balaclava.service.store.schema import (
    AWAITED,
    DEFAULTED,
    GIVEN_UP,
    NOT_LEARNED,
    OPEN,
    REWARDED,
    WAS_ERASED,
)

RUNNING, PAUSED, FINISHED = "running", "paused", "finished"
LONGEST_TERM = 5.0  # the longest term of a lease
RESULTS_CONFIDENCE = 0.95  # default of results, and level of the charts' intervals
# Decisions between two snapshots: 5 % more, at least 50. 10^9 decisions make about 300 snapshots.
_SNAPSHOT_GROWTH, _SNAPSHOT_LEAST = 1.05, 50
# Arms times decisions of a request that offers some arms only: two seconds of processor time.
_MOST_RESTRICTED = 1_000_000
# Decisions in a row that were kept out of a batch, after which it ends: most visitors are in it by
# then. By simulation 5 to 40 differ little (`benchmarks/many_rewards.py --enforced`).
_MOST_KEPT_OUT = 10
_WAIT_BUCKETS = 64  # histogram of delays: bounds grow by sqrt(2) from 0.1 s, to nine years


@dataclass
class Counters:
    """Counts of an experiment, in the column `books` as JSON under these names.

    Where batches settle by windows, no count depends on when or whether a reward arrived.
    """

    time: float = 0.0  # seconds since 1970; it never decreases
    rounds: int = 0  # decisions that learn
    closed: int = 0  # of these, by a reward or by the end of the window; stored as "over"
    anonymous: int = 0  # decisions that learn and named no person
    last_arm: int = 0  # arm of the last decision that learns
    decisions: list[int] = field(default_factory=list)  # per arm
    learning: list[int] = field(default_factory=list)  # decisions that learn, per arm
    kept_out: int | None = None  # decisions since the last one that learned, with `rewards_apart`
    leased: int | None = None  # of `rounds`: slots of leases that are not settled
    next_snapshot: int = 1  # number of decisions at which it is due
    # Only where batches settle by arrival:
    rewarded: int = 0
    defaulted: int = 0
    given_up: int = 0
    waits: list[int] = field(default_factory=list)  # histogram of delays
    # From the end until the last release. None: running, or nothing more is released.
    closing: bool | None = None
    exposures: list[list[int]] = field(default_factory=list)  # per arm: windows over, displayed
    roster: dict[str, Any] | None = None  # once arms changed: `ArmRoster.save`, and all labels

    @classmethod
    def from_json(cls, text: str) -> Counters:
        stored = json.loads(text)
        return cls(closed=stored.pop("over", 0), **stored)

    @property
    def json(self) -> str:
        values = [(name, value) for name, value in vars(self).items() if value is not None]
        return json.dumps({"over" if name == "closed" else name: value for name, value in values})


class Offer(NamedTuple):
    """What a request offers: labels of arms, None for all, and the context of checked features."""

    available: Sequence[str] | None = None
    context: np.ndarray | None = None
    # Batches that the person is in, if rewards are kept apart: arm and phase.
    batches: set[tuple[int, int]] | None = None
    slots: list[list[int] | None] | None = None  # one element: those of all decisions


class ServedExperiment:
    """An experiment at one version."""

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
        self.policy = definition.built_policy
        self.runner = PolicyRunner(self.policy, SystemRandomness())
        if definition.prior is not None:
            self.runner.set_prior(definition.prior, definition.same_means)
        self._take_labels()
        zeros = [0] * self.policy.arms
        self.counters = Counters(decisions=list(zeros), learning=list(zeros))
        self.created = 0.0
        self.next_due: float | None = None
        self.next_cleanup: float | None = None
        self.settings = ExperimentSettings()
        rails = [Guardrail(**each) for each in definition.guardrails or ()]
        self.guardrails = Guardrails(rails, len(definition.arms))
        self._cached_values: tuple[Any, dict[str, Any]] | None = None
        self._state_bytes: StateBytes | None = None

    @classmethod
    def from_row(cls, row: Any, earlier: ServedExperiment | None = None) -> ServedExperiment:
        """Restore from a row of `experiments`, and check it.

        The definition never changes: it is that of an `earlier` version, if given.
        """
        experiment = cls(
            earlier.definition if earlier else ExperimentDefinition.from_json(row.definition),
            id=row.id,
            version=row.version,
            state=row.state,
        )
        experiment.counters = Counters.from_json(row.books)
        experiment.created, experiment.next_due = row.created, row.next_due
        experiment.next_cleanup = row.next_cleanup
        experiment.settings = ExperimentSettings.from_json(row.settings)
        experiment.guardrails.load(row.guardrails)
        rounds = experiment.counters.rounds
        if experiment.counters.roster is not None:
            experiment._load_roster(experiment.counters.roster, rounds)
        fill_from_bytes(experiment.policy, experiment.runner.state, row.policy_state, rounds)
        return experiment

    def _load_roster(self, saved: dict[str, Any], rounds: int) -> None:
        labels = NamedArms(saved["labels"])
        self.runner.policy = replace(self.policy, arms=labels)
        content = {name: value for name, value in saved.items() if name != "labels"}
        try:
            self.runner.load_roster(content, rounds)
        except DamageError as error:
            raise SavedStateError(f"the stored arms are damaged: {error}") from None
        self._take_labels()

    def _take_labels(self) -> None:
        """Adopt the runner's arms."""
        self.policy = self.runner.policy
        self.arms = [self.policy.arm_label(arm) for arm in range(self.policy.arms)]
        self.labels = [json.dumps(label) for label in self.arms]

    def columns(self) -> dict[str, Any]:
        roster = self.runner.roster
        if roster is not None and roster.changed:
            self.counters.roster = {"labels": self.arms, **roster.save()}
        if self._state_bytes is None or self._state_bytes.state is not self.runner.state:
            self._state_bytes = StateBytes(self.runner.state)
        return {
            "version": self.version,
            "state": self.state,
            "books": self.counters.json,
            "policy_state": self._state_bytes.read(),
            "next_due": self.next_due,
            "next_cleanup": self.next_cleanup,
            "guardrails": self.guardrails.json,
            "settings": self.settings.json,
        }

    @property
    def settles_by_window(self) -> bool:
        """Whether batches settle at the end of windows."""
        return self.definition.settle == "window"

    @property
    def owner(self) -> str:
        """The owner, as last changed."""
        changed = self.settings.owner
        return self.definition.owner if changed is None else changed

    @property
    def purpose(self) -> str:
        """The purpose, as last changed."""
        changed = self.settings.purpose
        return self.definition.purpose if changed is None else changed

    @property
    def retention(self) -> float:
        """Seconds after which a decision is deleted, once its batch is released."""
        return retention_of(self.definition, self.settings)

    @property
    def overdue(self) -> bool:
        """Whether an ended window is not closed yet."""
        return self.next_due is not None and self.next_due <= self.counters.time

    @property
    def is_over(self) -> bool:
        """Whether it is finished, and everything learned is released."""
        return self.state == FINISHED and not self.counters.closing

    def finish(self, served_arm: str | None) -> None:
        """Make no further decision that learns. Open windows still close: `release_rest`."""
        self.state, self.counters.closing = FINISHED, True
        self.settings = replace(self.settings, served_arm=served_arm)
        self.guardrails.forget_open()
        self.clean_up_at(self.counters.time)
        self.release_rest()

    def release_rest(self) -> None:
        """Once the windows of a finished experiment are over, release what no release holds yet.

        As `Agent.finish` does: each open batch ends with the decisions that it has. The moment is
        that of the last window, which depends on decisions, clocks and the request to finish. Call
        it in the transaction that closes windows or finishes: then it happens once. Batches that
        await aggregators are ended, and released by them.
        """
        if not self.counters.closing or self.next_due is not None:
            return
        state, rng = self.runner.state, self.runner.rng
        for slot, phase in self.policy.closing_decisions(state, rng):
            self.runner.forget_slot(self.counters.rounds, slot, phase)
        if self.definition.is_split and has_open_batches(self.runner):
            return
        self.counters.closing = None
        due = max(sum(self.counters.decisions), 1)
        self.counters.next_snapshot = min(self.counters.next_snapshot, due)
        self.clean_up_at(self.counters.time)

    def advance_clock(self, now: float) -> None:
        """Move the experiment's time to `now`, never back."""
        self.counters.time = max(self.counters.time, now)

    # Arms

    @property
    def retired(self) -> set[int]:
        """The arms that are no longer offered."""
        return set() if self.runner.roster is None else self.runner.roster.retired

    def guarantee(self, restored: int = 0) -> Guarantee:
        """The guarantee for one reward, after `restored` restores of the database."""
        return self.runner.guarantee_with_changes(self.definition.guarantee(self.policy, restored))

    @property
    def shares(self) -> dict[str, float]:
        """Least chances, by label."""
        roster = self.runner.roster
        return {} if roster is None else {self.arms[arm]: s for arm, s in roster.shares.items()}

    def offered(self, available: Sequence[str] | None) -> Set[int]:
        """The live arms, or those of these labels; raises a `Problem` if one is not live."""
        live = set(range(self.policy.arms)) - self.retired
        if available is None:
            return live
        try:
            roster = self.runner.open_roster()
        except ParameterError as error:
            raise Problem(409, str(error)) from None
        try:
            return roster.checked_available(available)
        except BalaclavaError as error:
            raise Problem(422, str(error)) from None

    @property
    def fixed_arms(self) -> str:
        """Why the arms cannot change; empty if they can."""
        policy = self.policy
        if self.state == FINISHED:
            return "the experiment is finished; its arms cannot change"
        if self.definition.is_split:
            return "an experiment with aggregators cannot change its arms; clone it"
        if policy.fixed_arms:
            return (
                f"the arms of {policy.name} cannot change: {policy.fixed_arms}; create another "
                "experiment, with dp-imed if its arms shall change"
            )
        return ""

    def change_arms(
        self,
        add: Sequence[str],
        retire: Sequence[str],
        shares: Mapping[str, float] | None,
        open_decisions: Callable[[int], int],
    ) -> bool:
        """Add and retire arms, and set all shares: all of them, or none and a `Problem`.

        To add an arm that was added before, or to retire one that was retired, changes nothing, so
        that a request may be repeated. Returns whether anything changed.
        """
        roster = self.runner.open_roster()
        before = self.arms, set(roster.retired), dict(roster.shares)
        gone = [self.arms[arm] for arm in roster.retired]
        later = set(self.arms[roster.policy.arms :]).difference(gone)
        added = [label for label in dict.fromkeys(add) if label not in later]
        leaving = [label for label in dict.fromkeys(retire) if label not in gone]
        try:
            for label in added:
                roster.checked_new(label)
            for label in leaving:
                if label not in added:
                    roster.number_of(label)
        except BalaclavaError as error:
            raise Problem(422, str(error)) from None
        require_distinct(added, self.arms)
        if added and len(self.arms) + len(added) > MOST_ARMS:
            raise Problem(
                422,
                f"an experiment has at most {MOST_ARMS:,} arms, with those that were retired; "
                "clone this one, with its live arms",
            )
        live = {*self.arms, *added} - {*gone, *leaving}
        if not live:
            raise Problem(422, "these changes retire the last arm; add another one")
        if shares is not None:
            check_shares(shares, live)
        needed = {rail.serve for rail in self.guardrails.rails}
        if self.definition.targeting is not None:
            needed.add(self.definition.targeting["otherwise"])
        if self.definition.held_out is not None:
            needed.add(self.definition.held_out["arm"])
        if kept := needed & {*leaving}:
            raise Problem(
                422,
                f"{sorted(kept)} serve guardrails, those outside the targeting, or those held out",
            )
        for label in added:
            self.runner.add_arm(label, self.counters.rounds)
            self.counters.decisions.append(0)
            self.counters.learning.append(0)
        self._take_labels()
        for label in leaving:
            self.runner.retire_arm(label, self.counters.rounds, open_decisions)
        if shares is not None:
            self.runner.set_shares(shares)
        return before != (self.arms, roster.retired, roster.shares)

    def clone(self, changes: Mapping[str, Any]) -> ExperimentDefinition:
        """The definition of an experiment like this one is now, with its live arms, and changes."""
        arms = [self.arms[arm] for arm in sorted(self.offered(None))]
        rails = self.guardrails.limited(self.settings.guardrail_limits)
        fields = asdict(self.definition) | {
            "arms": arms,
            "shares": {arm: self.shares[arm] for arm in arms if arm in self.shares} or None,
            "guardrails": [rail._asdict() for rail in rails],
            "owner": self.owner,
            "purpose": self.purpose,
            "retention": self.settings.retention or self.definition.retention,
            **{"prior": None, "same_means": False},  # it was of the arms at the start
        }
        if changes.get("population") is None:
            fields["segment"] = None
        parameters = self.definition.parameters | (changes.get("parameters") or {})
        return ExperimentDefinition.checked(**{**fields, **changes, "parameters": parameters})

    # Decisions

    def decide(
        self,
        count: int,
        learning: int,
        named: bool,
        offer: Offer,
        repeated: int | None = None,
    ) -> list[dict[str, Any]]:
        """Make decisions, as rows. The first `learning` of them learn.

        Those that do not learn repeat the arm `repeated`. Without it they depend on released values
        only. For the driver's speed, a row omits empty columns, and its flags are 0 or 1.
        """
        counters, policy, context = self.counters, self.policy, offer.context
        if offer.available is not None:
            self.offered(offer.available)  # before anything changes
        roster = self.runner.roster
        if learning and roster is not None:
            restricted = offer.available is not None or roster.retired or roster.rests
            if restricted and learning * policy.arms > _MOST_RESTRICTED:
                raise Problem(
                    422,
                    "so many decisions among some of so many arms would hold up all others; ask "
                    f"for at most {max(_MOST_RESTRICTED // policy.arms, 1):,} at once",
                )
        if learning and roster is not None and not roster.rests:  # once: slow with many arms
            slots = self.runner.offered_slots(offer.available, counters.rounds + 1)
            offer = offer._replace(slots=[slots])
        closes = self.window_end
        every: dict[str, Any] = {"experiment": self.id, "made": counters.time, "closes": closes}
        if context is not None and stores_features(policy):
            every["features"] = json.dumps(context.tolist())
        learns = {**every, "learns": 1, "state": OPEN}
        public = {**every, "learns": 0, "state": NOT_LEARNED}
        rows = []
        for place, id in enumerate(new_decision_ids(count)):
            slot = self._own_slot(offer) if place < learning else None
            if slot is not None:
                round, (arm, phase, chance) = slot
                counters.last_arm = arm
            elif place == learning or offer.batches is not None:  # all further ones repeat it
                arm, phase, chance = self._public_choice(repeated, offer)
            counters.decisions[arm] += 1
            row = {**(learns if phase >= 0 else public), "id": id, "arm": arm, "phase": phase}
            if chance is not None:
                row["propensity"] = chance
            if phase >= 0:
                row["round"] = round
                counters.learning[arm] += 1
                counters.anonymous += not named
                if policy.model == "local":
                    row["level"] = self.runner.level(arm, phase)
            elif slot is not None:
                counters.closed += 1  # it has no reward
            rows.append(row)
        if self.next_cleanup is None:
            self.next_cleanup = counters.time + self.retention
        if self.next_due is None and any(row["learns"] for row in rows):
            self.next_due = closes
        return rows

    def next_slot(self, offer: Offer) -> tuple[int, Choice]:
        """The next decision of the policy, and its round."""
        self.counters.rounds += 1
        round = self.counters.rounds
        slots = offer.slots or [self.runner.offered_slots(offer.available, round)]
        return round, self.runner.choose(round, offer.context, slots[0])

    def _own_slot(self, offer: Offer) -> tuple[int, Choice] | None:
        """The next decision of the policy; None if the person has one in its batch already.

        That depends on decisions and persons alone. A slot that the person must not take is given
        up at once: its batch is that much smaller.
        """
        if offer.batches is None:
            return self.next_slot(offer)
        batches = next_batches(self.runner)
        if batches <= offer.batches:
            self._keep_out(batches)
            return None
        self.counters.kept_out = 0
        round, choice = self.next_slot(offer)
        batch = choice.arm, choice.phase
        if batch in offer.batches:
            self.runner.forget(OpenDecision("", round, *batch))
            self.counters.closed += 1
            return None
        if choice.phase >= 0:
            offer.batches.add(batch)
        return round, choice

    def _keep_out(self, batches: set[tuple[int, int]]) -> None:
        """Count a decision that must not learn, and end batches that hardly anyone can join.

        A batch may be larger than the number of participants: it would never be released. Who asks
        decides it, and no reward.
        """
        self.counters.kept_out = (self.counters.kept_out or 0) + 1
        if self.counters.kept_out >= _MOST_KEPT_OUT:
            self.counters.kept_out = 0
            for batch in sorted(batches):
                end_batch(self.runner, *batch, self.counters.rounds)

    @property
    def is_leased(self) -> bool:
        """Whether several processes decide, by leases."""
        return self.definition.deciders > 1

    @property
    def lease_seconds(self) -> float:
        """The term of a lease; 0 without leases."""
        return min(LONGEST_TERM, self.definition.reward_window) if self.is_leased else 0.0

    @property
    def window_end(self) -> float:
        """The end of the window of a decision that is made now.

        With leases a window begins when a lease that starts now would end: then windows end in the
        order of rounds, also those of slots that are used late.
        """
        return self.counters.time + self.lease_seconds + self.definition.reward_window

    def decide_for(
        self, arm: int | None, count: int, learning: int, offer: Offer
    ) -> list[dict[str, Any]]:
        """Make a person's sticky decisions: all with this arm, or else with that of the first.

        An arm that was retired or is not available counts as none.
        """
        if arm in self.retired or (
            offer.available is not None and arm not in self.offered(offer.available)
        ):
            arm = None
        first = [] if arm is not None else self.decide(1, learning, True, offer)
        repeated = arm if arm is not None else int(first[0]["arm"])
        return first + self.decide(count - len(first), 0, True, offer, repeated)

    def _public_choice(self, repeated: int | None, offer: Offer) -> Choice:
        """Choose the leader, or repeat an arm.

        It costs no privacy: it depends on released values, or on a decision that was answered.
        """
        if repeated is None and offer.context is not None and self.chosen_arm is None:
            rounds, last = self.counters.rounds, self.counters.last_arm
            return choose_without_learning(self.runner, rounds, offer.context, last)
        chance = None if self.policy.scope == "decision" else 1.0
        return Choice(self.served(offer.available) if repeated is None else repeated, -1, chance)

    @property
    def chosen_arm(self) -> int | None:
        """The arm that all get: of a breaker that tripped, or chosen by an admin at the end."""
        label = self.settings.served_arm if self.state == FINISHED else None
        if self.guardrails.trip is not None and self.state != FINISHED:
            label = self.guardrails.trip.serve
        return None if label is None else self.arms.index(label)

    @property
    def held_out(self) -> dict[str, Any] | None:
        """The share that gets a fixed arm; None if a breaker sends all to one, or without it."""
        tripped = self.guardrails.trip is not None and self.state != FINISHED
        return None if tripped else self.definition.held_out

    def served(self, available: Sequence[str] | None = None) -> int:
        """The arm of a decision that does not learn: the chosen one if it is offered, or leads."""
        chosen = self.chosen_arm
        if chosen is not None and chosen in self.offered(available):
            return chosen
        return self.leader(available)

    def leader(self, available: Sequence[str] | None = None) -> int:
        """The arm with the highest released mean, of all that are offered.

        Without means, or where means depend on features, the last arm that learned.
        """
        arms = self.offered(available)
        released = None if takes_features(self.policy) else self.runner.released_of(arms)
        if released is None or not all(each.rewards for each in released.values()):
            return self.counters.last_arm if self.counters.last_arm in arms else min(arms)
        return max(released, key=lambda arm: released[arm].mean)

    # Rewards

    def record_exposure(self, row: dict[str, Any]) -> None:
        """Record that an open decision was displayed."""
        if row["state"] == OPEN and not self.is_over:
            row["exposed"] = 1

    def _count_exposure(self, row: dict[str, Any]) -> None:
        counts = self.counters.exposures
        while len(counts) <= row["arm"]:
            counts.append([0, 0])
        counts[row["arm"]][0] += 1
        counts[row["arm"]][1] += bool(row.get("exposed"))

    def record_metrics(self, row: dict[str, Any], metrics: Mapping[str, float]) -> None:
        """Record readings of an open decision, each unless it has one."""
        if row["state"] == OPEN and row["kind"] != WAS_ERASED and self.state != FINISHED:
            row["metrics"] = json.dumps({**metrics, **_readings(row)})

    def record_reward(self, row: dict[str, Any], observation: Observation) -> None:
        """Record a reward or report of an open decision, unless it has one."""
        if row["state"] != OPEN or row["kind"] is not None or self.is_over:
            return
        if self.settles_by_window:
            row["kind"], row["value"] = observation
            return
        self.runner.learn(_entry(row), observation)
        row["state"] = REWARDED
        self.counters.closed += 1
        self.counters.rewarded += 1
        self._record_wait(self.counters.time - row["made"])

    def close_window(self, row: dict[str, Any]) -> None:
        """Close the window of an open decision: learn from it, and delete its reward."""
        if self.is_over:  # finished by a version that learned nothing afterwards
            row.update(state=NOT_LEARNED, kind=None, value=None, metrics=None)
            self.counters.closed += 1
            return
        if self.definition.is_split:
            row["state"] = AWAITED  # until the aggregators have released its batch
            self.counters.closed += 1
            return
        default = self.definition.default_reward
        arrived = row["kind"] not in (None, WAS_ERASED)
        observation = Observation(row["kind"], row["value"]) if arrived else None
        row["state"] = DEFAULTED if observation is None else REWARDED
        if self.definition.exposures:
            self._count_exposure(row)
        if self.state == FINISHED:
            row["metrics"] = None  # guardrails end with the experiment
        elif self.guardrails.rails:
            self._count_metrics(row)
        if observation is None and default is not None:
            observation = self.runner.checked(Observation(REWARD, default))
        self.counters.closed += 1
        if observation is not None:
            self.runner.learn(_entry(row), observation)
            self.counters.defaulted += not self.settles_by_window
            self._hold(row, arrived)
            return
        row["value"] = None
        self.runner.forget(_entry(row))
        row["state"] = GIVEN_UP
        self.counters.given_up += 1

    def _count_metrics(self, row: dict[str, Any]) -> None:
        """Count the readings of an ended window; those of a named person may still be erased."""
        self.guardrails.add(row, _readings(row), self.runner.rng)
        if row["person"] is None:
            row["metrics"] = None
        if self.guardrails.released:
            self.update_breaker()

    def update_breaker(self) -> None:
        """Let the breaker look at what was released, and at the limits."""
        limits = self.settings.guardrail_limits
        self.guardrails.update_breaker(limits, self.arms, self.counters.time)

    def _hold(self, row: dict[str, Any], arrived: bool) -> None:
        """Keep the reward of a named person until its batch is released: it may be erased."""
        open_batch = awaits_release(self.runner, row["arm"], row["phase"])
        if row["person"] is not None and not open_batch:
            self.clean_up_at(self.counters.time)
        if not (arrived and open_batch and row["person"] is not None):
            row["value"] = None
            row["kind"] = WAS_ERASED if row["kind"] == WAS_ERASED else None

    def drop_released(self, rows: list[dict[str, Any]]) -> None:
        """Drop the held rewards of batches that were released meanwhile."""
        for row in rows:
            held = row["value"] is not None and row["state"] != OPEN
            if held and not awaits_release(self.runner, row["arm"], row["phase"]):
                row["kind"] = row["value"] = None

    def clean_up_at(self, moment: float) -> None:
        """Schedule a cleanup, at this moment at the latest."""
        known = self.next_cleanup
        self.next_cleanup = moment if known is None else min(known, moment)

    def erase(self, row: dict[str, Any]) -> None:
        """Erase the reward of a decision that is not released, and link the row to no person.

        Where batches settle by windows, the reward counts as missing and nothing else changes:
        neither the size of its batch nor the time of its release.
        """
        if row["state"] == OPEN and not self.settles_by_window and not self.is_over:
            self.runner.forget(_entry(row))
            row["state"] = GIVEN_UP
            self.counters.closed += 1
            self.counters.given_up += 1
        elif row["state"] == REWARDED and row.get("value") is not None:
            default = self.definition.default_reward
            assert default is not None  # rewards are held only where there is one
            place = row["arm"], row["phase"], row["round"]
            replace_reward(self.runner, *place, row["value"], default)
        if row["state"] != OPEN and row.get("metrics") is not None:
            self.guardrails.erase(row, _readings(row))
        row.update(kind=WAS_ERASED, value=None, person=None, request=None, metrics=None)

    def _record_wait(self, seconds: float) -> None:
        waits = self.counters.waits or [0] * _WAIT_BUCKETS
        bucket = 0 if seconds <= 0.1 else 1 + int(2 * math.log2(seconds / 0.1))
        waits[min(bucket, _WAIT_BUCKETS - 1)] += 1
        self.counters.waits = waits

    def wait_quantile(self, share: float) -> float | None:
        """Quantile of the delays of rewards, in seconds, rounded up to a bucket's bound."""
        counts = np.cumsum(self.counters.waits)
        if not len(counts):
            return None
        bucket = int(np.searchsorted(counts, share * counts[-1]))
        return float(0.1 * 2 ** (bucket / 2))

    # Released values

    def reading(self, confidence: float = RESULTS_CONFIDENCE) -> EstimateReader | EstimateError:
        """Released means and intervals, or the reason why there are none."""
        try:
            return self.runner.reading(self.counters.learning, confidence, self.condition)
        except EstimateError as error:
            return error

    @property
    def condition(self) -> str | None:
        """What the intervals assume of arrivals. It does not depend on them, as readers see it."""
        estimation = self.policy.estimation
        return self._condition(in_order=estimation is not None and estimation.in_order)

    def _condition(self, in_order: bool) -> str | None:
        return arrival_condition(
            window=self.settles_by_window,
            in_order=in_order,
            lost=self.definition.default_reward is None,
        )

    def values(self, confidence: float) -> ValueEstimates | None:
        """Estimated values of policies; None if the policy has none."""
        if self.policy.value_estimates is None:
            return None
        return self.runner.values(confidence, self._condition(in_order=True))

    def snapshot(self) -> dict[str, Any] | None:
        """A point of the charts, if one is due; that depends on the number of decisions only."""
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
        """Released means and intervals, cached until the next release."""
        reading = self.reading()
        if not isinstance(reading, EstimateReader):
            return {}
        if self._cached_values is None or self._cached_values[0] != reading.released_means:
            estimates = reading.estimates()
            values = {
                "means": [finite(each.mean) for each in estimates],
                "low": [finite(each.interval[0]) for each in estimates],
                "high": [finite(each.interval[1]) for each in estimates],
            }
            self._cached_values = reading.released_means, values
        return self._cached_values[1]


def check_shares(shares: Mapping[str, float], live: set[str]) -> None:
    """Raise a `Problem` unless these are least chances of live arms."""
    for label, share in shares.items():
        if label not in live:
            raise Problem(422, f"shares: there is no live arm {label!r}")
        if not 0.0 <= share <= 1.0:
            raise Problem(422, f"the share of {label!r} is {share:g}; give one in [0, 1]")
    if math.fsum(shares.values()) > 1.0:
        raise Problem(422, f"shares add up to {math.fsum(shares.values()):.12g}; give at most 1")


def _readings(row: Mapping[str, Any]) -> dict[str, float]:
    """The readings of a decision, by metric."""
    text = row.get("metrics")
    return {} if text is None else json.loads(text)


def finite(value: float | None) -> float | None:
    """The number, or None for an infinite one, which JSON does not have."""
    return value if value is not None and math.isfinite(value) else None


def _entry(row: dict[str, Any]) -> OpenDecision:
    return OpenDecision(row["id"], row["round"], row["arm"], row["phase"])
