"""A policy at work: its state and its randomness. Who keeps the books is another's business.

An agent keeps its decisions in memory, the service keeps them in a database; both play by this.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from balaclava.agents.decisions import OpenDecision
from balaclava.agents.estimates import EstimateReader
from balaclava.errors import (
    BalaclavaError,
    ParameterError,
    RewardError,
    failed_kernel,
    require_arm,
)
from balaclava.policies.base import Policy
from balaclava.privacy.device_report import checked_number

REWARD, REPORT = "reward", "report"
KERNEL_FAILURES = (ArithmeticError, IndexError, ValueError)  # of kernels in a state that cannot be


class Observation(NamedTuple):
    """What the policy learns from: a reward as it was told, or a report of one."""

    kind: str
    value: float


class Choice(NamedTuple):
    """An arm, its phase, and the chance that it had, given what was public; None if not public."""

    arm: int
    phase: int
    propensity: float | None


class PolicyRunner:
    """Interpreted kernels on one state, with one source of randomness."""

    def __init__(self, policy: Policy, rng: Any) -> None:
        self.policy, self.rng = policy, rng
        self.params = policy.constants()
        self._choose = policy.kernels.choose
        # Where single decisions are protected, a chance would be made of raw means.
        self._shows_chances = policy.scope != "decision"
        self._prepare = policy.prepare()
        try:
            self.state = policy.kernels.begin(self.params)
        except (MemoryError, OverflowError):
            raise ParameterError(
                f"{policy.name}: arms = {policy.arms} are more than memory holds; give fewer"
            ) from None

    def choose(self, round: int, context: Any = None) -> Choice:
        """The decision of a round; `context` as `policy.checked_context` gave it."""
        try:
            choice, phase = self._choose(self.params, self.state, round, context, self.rng)
            arm = int(choice)  # numpy's numbers are compared ten times slower
        except KERNEL_FAILURES as error:
            raise self._failed(round, error) from None
        require_arm(self.policy.name, round, arm, self.policy.arms)
        chance = self.policy.propensity(self.state, arm) if self._shows_chances else None
        return Choice(arm, int(phase), chance)

    def level(self, arm: int, phase: int) -> float:
        """The public level that goes with a decision to the owner of its reward."""
        level = self.policy.report_level
        if level is None:
            raise RewardError(f"{self.policy.name} takes rewards, not reports; use tell")
        return float(level(self.params, self.state, arm, phase))

    def checked(self, observation: Observation) -> Observation:
        """Check a reward or a report; an error does not repeat it."""
        policy = self.policy
        if observation.kind != REPORT:
            return Observation(REWARD, policy.checked_reward(observation.value))
        if policy.learn_report is None:
            raise RewardError(f"{policy.name} takes rewards, not reports; use tell")
        value = checked_number(policy.name, "report", observation.value, *policy.reports)
        return Observation(REPORT, value)

    def learn(self, entry: OpenDecision, observation: Observation) -> None:
        """What a checked observation teaches of a decision."""
        learn: Callable[..., None] = self.policy.kernels.learn
        value = observation.value
        if observation.kind == REPORT and self.policy.learn_report is not None:
            learn = self.policy.learn_report
        else:
            value = self._prepare(self.params, value)
        try:
            learn(self.params, self.state, entry.round, entry.arm, value, entry.phase, self.rng)
        except KERNEL_FAILURES as error:
            raise self._failed(entry.round, error) from None

    def forget(self, entry: OpenDecision) -> None:
        """The decision is given up: its reward will not come."""
        forget = self.policy.kernels.forget
        try:
            forget(self.params, self.state, entry.round, entry.arm, entry.phase, self.rng)
        except KERNEL_FAILURES as error:
            raise self._failed(entry.round, error) from None

    def _failed(self, round: int, error: Exception) -> Exception:
        """What a failure of the kernels is told as; errors of our own stay what they are."""
        if isinstance(error, BalaclavaError):
            return error
        return failed_kernel(self.policy.name, round, error)

    def reading(self, decisions: Sequence[int], confidence: Any) -> EstimateReader:
        """What was released of the arms, for each of which so many decisions were made."""
        return EstimateReader(self.policy, self.params, self.state, decisions, confidence)
