"""What happened in a trial, for the review board's page: released values and counts of decisions.

It is read from a save of the agent or from an export of the service. Of a save, which holds raw
sums, only the released values are read, and the agent in it can still be continued.
"""

import dataclasses
import datetime
import hashlib
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from balaclava._core.number_format import mean_reward, percent, significant, within_interval
from balaclava.advice.plan.trial_plan import TrialPlan
from balaclava.agents.restoring import read_save
from balaclava.agents.settling import missing_rewards
from balaclava.errors import ResultsFileError, SavedStateError
from balaclava.policies.base import BEST_ARM
from balaclava.privacy.guarantee import Guarantee, not_private
from balaclava.reporting.assessment_input import AssessmentInput

_EXPORT_PARTS = ("experiment", "privacy", "results")
NOT_NAMED, NOT_PLANNED = "no arm is known to be the best", "not planned"


class OutcomeArm(NamedTuple):
    """The decisions of an arm, and its released mean."""

    label: str
    decisions: int
    rewards: int | None  # in the released mean
    mean: float | None
    low: float | None
    high: float | None

    @property
    def cells(self) -> tuple[str, ...]:
        rewards = "–" if self.rewards is None else f"{self.rewards:,}"
        return (self.label, f"{self.decisions:,}", rewards, mean_reward(self.mean),
                f"{mean_reward(self.low)} to {mean_reward(self.high)}")  # fmt: skip


class Lead(NamedTuple):
    """The leader's released mean minus that of another arm."""

    label: str
    difference: float
    low: float
    high: float

    def __str__(self) -> str:
        mean, low, high = (
            within_interval(each, self.low, self.high)
            for each in (self.difference, self.low, self.high)
        )
        return f"{mean} ({low} to {high})"


@dataclass(frozen=True)
class TrialOutcome:
    """What happened in a trial."""

    policy: str
    parameters: Mapping[str, Any]
    arms: tuple[OutcomeArm, ...]
    leads: tuple[Lead, ...]  # of the leader over each other arm; empty before all have a release
    leader: str | None
    answer: str | None  # what the policy names; None if it is not known
    winner: str | None
    confidence: float
    condition: str | None  # what intervals and answer assume of arrivals
    missing: str | None  # how rewards count that did not arrive
    learned_from: int  # decisions
    finished: bool
    guarantee: Guarantee  # what was spent
    awaited: Mapping[str, Any] | None = None  # windows that are not over, and when the last is
    digest: str = ""  # of an export; that of a save could be searched for the raw sums in it

    @property
    def decisions(self) -> int:
        return sum(arm.decisions for arm in self.arms)

    @property
    def closest(self) -> Lead | None:
        """The lead over the closest other arm."""
        return min(self.leads, key=lambda lead: lead.low, default=None)

    def departures(self, assessment: AssessmentInput) -> list[str]:
        """Where the policy was not the assessed one, or spent more."""
        planned = assessment.policy
        faults = []
        if self.policy != planned.name:
            faults.append(f"the policy was {self.policy}, not {planned.name}")
        else:
            wanted = json.loads(json.dumps(planned.parameters))
            faults = [
                f"{name} was {self.parameters[name]}, not {value}"
                for name, value in wanted.items()
                if name in self.parameters and self.parameters[name] != value
                if name != "arms" or not isinstance(value, int)
            ]
            if "arms" in self.parameters and len(self.arms) != planned.arms:
                faults.append(f"there were {len(self.arms)} arms, not {planned.arms}")
        allowed, spent = assessment.reward_guarantee, self.guarantee
        more = spent.epsilon > allowed.epsilon or spent.delta > allowed.delta
        if more or not spent.private:
            faults.append(f"the guarantee of a reward was {spent}, not {allowed}")
        return faults

    def conclusion(self, assessment: AssessmentInput) -> tuple[str, bool]:
        """The conclusion in one sentence, and whether the trial was run as planned."""
        departures = self.departures(assessment)
        if departures:
            return f"The trial did not run as assessed: {'; '.join(departures)}.", False
        lead = self.closest
        answer = self.answer or NOT_NAMED
        words = f"{answer}, at {percent(self.confidence, 'g')} confidence"
        if lead is not None:
            words += f"; the lead of {self.leader!r} over {lead.label!r} is {lead}"
        of = f"after {self.decisions:,} of {assessment.horizon:,} decisions"
        if assessment.horizon in (0, self.decisions):
            of = f"after {self.decisions:,} decisions"
        if self._is_awaited:
            return f"The result is not in yet, {of}: {self._awaited_words}.", False
        if not self.finished:
            return f"The trial has not ended. So far, {of}: {words}.", False
        if self.without:
            of += f", {self._without_words} of them without an outcome"
        return f"The trial has ended, {of}: {words}. It has spent {self.guarantee}.", True

    @property
    def without(self) -> int:
        """Decisions that the policy learned from whose outcome is in no released mean."""
        return self.learned_from - sum(arm.rewards or 0 for arm in self.arms)

    @property
    def _without_words(self) -> str:
        return f"{self.without:,} ({percent(self.without / max(self.learned_from, 1))})"

    @property
    def _is_awaited(self) -> bool:
        """Whether open windows may still change the result: not all outcomes are released."""
        return self.awaited is not None and self.without > 0

    @property
    def _awaited_words(self) -> str:
        windows, until = (self.awaited or {}).get("windows"), (self.awaited or {}).get("until")
        if not windows or until is None:
            return "what is not released yet is still to be released"
        day = datetime.datetime.fromtimestamp(until, datetime.UTC)
        return (
            f"{windows:,} windows of outcomes are open, the last until {day:%Y-%m-%d %H:%M} UTC; "
            "what is not released yet is released then"
        )

    def comparison(
        self, assessment: AssessmentInput, plan: TrialPlan | None
    ) -> list[tuple[str, str, str]]:
        """What was planned beside what happened."""
        row = None if plan is None else plan.of(assessment.policy.name)
        lead, others = self.closest, "–"
        if self.winner is not None:
            worse = sum(arm.decisions for arm in self.arms if arm.label != self.winner)
            others = f"{worse:,} ({percent(worse / self.decisions)})"
        wide = "–" if lead is None else f"{lead}: {significant(lead.high - lead.low, 2)} wide"
        power = error = width = worse_planned = NOT_PLANNED
        if row is not None:
            power = f"the best in {percent(row.named, '.0f')} of such trials"
            width = f"{significant(row.width, 2)} wide"
            worse_planned = f"{row.worse:,.0f}"
        error = f"at most {percent(1.0 - assessment.confidence, '.3g')}"
        counted = self.missing or f"{self._without_words}: lost, late, or in no release"
        if self._is_awaited:
            counted = f"not known yet: {self._awaited_words}"
        spent = dataclasses.replace(assessment, guarantee=self.guarantee)
        person, person_spent = (
            str(each.person_guarantee or "not counted") for each in (assessment, spent)
        )
        planned = f"{assessment.horizon:,}" if assessment.horizon else NOT_PLANNED
        return [
            ("Decisions", planned, f"{self.decisions:,}"),
            ("Without an outcome", str(assessment.feedback) or "none planned", counted),
            ("Arm named", power, self.answer or NOT_NAMED),
            ("Chance that it is wrong", error, f"at most {percent(1 - self.confidence, '.3g')}"),
            ("Lead over the closest arm, and its interval", width, wide),
            ("Participants with another arm than the best", worse_planned, others),
            ("Privacy loss of one reward", str(assessment.reward_guarantee), str(self.guarantee)),
            ("Privacy loss of one person", person, person_spent),
        ]  # fmt: skip


def read_outcome(path: str | os.PathLike[str], confidence: float = 0.95) -> TrialOutcome:
    """Read what happened from a save of an agent, or from an export of the service.

    Args:
        path: the file: `agent.save(path)`, or the service's export in the format "jsonl".
        confidence: the chance that all intervals hold; an export has its own.

    Returns:
        Released values and counts of decisions.

    Raises:
        ResultsFileError: if the file is neither.
        SavedStateError: if a save is damaged.
        EstimateError: if the policy offers no estimates.
    """
    place = Path(path)
    try:
        data = place.read_bytes()
        documents = [json.loads(line) for line in data.splitlines()[: len(_EXPORT_PARTS)]]
    except OSError as error:
        raise ResultsFileError(
            f"{place} cannot be read: {error.strerror}; check the path"
        ) from None
    except (UnicodeDecodeError, ValueError):
        documents = []  # a save may have any layout
    parts = {each.get("type"): each for each in documents if isinstance(each, dict)}
    if parts.keys() >= set(_EXPORT_PARTS):
        digest = hashlib.sha256(data).hexdigest()
        return outcome_of_service(*(parts[name] for name in _EXPORT_PARTS), digest=digest)
    try:
        return _outcome_of_save(place, confidence)
    except SavedStateError as error:
        raise SavedStateError(
            f"{error}. --results takes a file of agent.save(path), or an export of the service "
            "(format=jsonl)"
        ) from None


def _outcome_of_save(place: Path, confidence: float) -> TrialOutcome:
    agent, settling, finished = read_save(place)
    estimates, status, guarantee = agent.estimates(confidence), agent.status(), agent.guarantee
    arms = [
        OutcomeArm(each.label, each.decisions, each.rewards, each.mean, *each.interval)
        for each in estimates
    ]
    compared = [each for each in estimates if each.mean is not None and not each.retired]
    leads, leader = [], None
    if len(compared) == len(estimates.compared):
        best = max(compared, key=lambda each: each.mean or 0.0)
        leader = best.label
        leads = [
            Lead(
                each.label,
                (best.mean or 0.0) - (each.mean or 0.0),
                *estimates.difference(best.arm, each.arm),
            )
            for each in compared
            if each is not best
        ]
    winner = None if estimates.winner is None else estimates[estimates.winner].label
    return TrialOutcome(
        agent.policy.name,
        json.loads(json.dumps(agent.policy.parameters)),
        tuple(arms),
        tuple(leads),
        leader,
        None if estimates.answer is None else best_is(winner) or str(estimates.answer),
        winner,
        estimates.confidence,
        estimates.condition,
        missing_rewards(settling.missing),
        status.decisions - status.unlearned,
        finished,
        guarantee,
    )


def best_is(winner: str | None) -> str | None:
    """The answer of a policy that looks for the best arm."""
    return None if winner is None else f"{BEST_ARM} is {winner!r}"


def outcome_of_service(
    experiment: Mapping[str, Any], privacy: Mapping[str, Any], results: Mapping[str, Any],
    *, digest: str = "",
) -> TrialOutcome:  # fmt: skip
    """What happened in an experiment, from the service's documents."""
    spent, winner = privacy["guarantee"], results["winner"]
    guarantee = not_private("the policy is not private", "")
    if spent["epsilon"] is not None:
        named = ("epsilon", "delta", "model", "scope", "neighbours")
        guarantee = Guarantee(
            **{name: spent[name] for name in named}, assumptions=tuple(spent["assumptions"])
        )
    fields = ("label", "decisions", "rewards", "mean", "low", "high")
    return TrialOutcome(
        experiment["policy"],
        {**experiment["parameters"], "arms": experiment["arms"]},
        tuple(OutcomeArm(*(each[name] for name in fields)) for each in results["arms"]),
        tuple(
            Lead(*(each[name] for name in Lead._fields))
            for each in results["differences"] or ()
            if each["low"] is not None and each["high"] is not None
        ),
        results["leader"],
        best_is(winner),
        winner,
        results["confidence"],
        results["condition"],
        results["missing"],
        experiment["learning_decisions"],
        experiment["state"] == "finished",
        guarantee,
        results.get("awaited"),
        digest,
    )
