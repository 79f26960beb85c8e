"""Runs a policy's kernels on its state, for agents and the service."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from balaclava.agents.decision_order import DecisionOrder
from balaclava.agents.decisions import OpenDecision
from balaclava.agents.estimates import EstimateReader
from balaclava.errors import BalaclavaError, ParameterError, RewardError, failed_kernel, require_arm
from balaclava.policies.base import Policy
from balaclava.privacy.device_report import checked_number

REWARD, REPORT = "reward", "report"
KERNEL_FAILURES = (ArithmeticError, IndexError, ValueError)  # of kernels on an invalid state


class Observation(NamedTuple):
    """A reward, or a device's report of one."""

    kind: str
    value: float


class Choice(NamedTuple):
    """An arm, its phase, and its propensity given public values; None if it is not public."""

    arm: int
    phase: int
    propensity: float | None


class PolicyRunner:
    """Interpreted kernels, one state, and one source of randomness."""

    def __init__(self, policy: Policy, rng: Any) -> None:
        self.policy, self.rng = policy, rng
        self.params = policy.constants()
        self._choose = policy.kernels.choose
        # With scope "decision" a propensity would be a function of raw means.
        self._shows_chances = policy.scope != "decision"
        self._prepare = policy.prepare()
        # Estimates in the order of decisions need each report, not only the policy's sum of them.
        in_tally = policy.estimation is not None and policy.estimation.from_tally is not None
        self._report = policy.report_kernel if in_tally else None
        try:
            self.state = policy.kernels.begin(self.params)
        except (MemoryError, OverflowError):
            raise ParameterError(
                f"{policy.name}: arms = {policy.arms} do not fit into memory; give fewer"
            ) from None

    def choose(self, round: int, context: Any = None) -> Choice:
        """Make the decision of a round; `context` comes from `policy.checked_context`."""
        try:
            choice, phase = self._choose(self.params, self.state, round, context, self.rng)
            arm = int(choice)
        except KERNEL_FAILURES as error:
            raise self._failed(round, error) from None
        require_arm(self.policy.name, round, arm, self.policy.arms)
        chance = self.policy.propensity(self.state, arm) if self._shows_chances else None
        return Choice(arm, int(phase), chance)

    def level(self, arm: int, phase: int) -> float:
        """The public level that a device needs to report the decision's reward."""
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

    def learn(self, entry: OpenDecision, observation: Observation) -> float:
        """Learn from a checked observation of a decision; returns the number that was learned."""
        learn: Callable[..., None] = self.policy.kernels.learn
        learn_report, value = self.policy.learn_report, observation.value
        if observation.kind == REPORT and learn_report is not None:
            learn = learn_report
        else:
            value = self._prepare(self.params, value)
        try:
            if self._report is not None and learn_report is not None and learn is not learn_report:
                level = self.level(entry.arm, entry.phase)
                value = float(self._report(self.params, value, level, self.rng))
                learn = learn_report
            learn(self.params, self.state, entry.round, entry.arm, value, entry.phase, self.rng)
        except KERNEL_FAILURES as error:
            raise self._failed(entry.round, error) from None
        return value

    def forget(self, entry: OpenDecision) -> None:
        """Give up a decision: its reward will not come."""
        forget = self.policy.kernels.forget
        try:
            forget(self.params, self.state, entry.round, entry.arm, entry.phase, self.rng)
        except KERNEL_FAILURES as error:
            raise self._failed(entry.round, error) from None

    def _failed(self, round: int, error: Exception) -> Exception:
        """Wrap a failure of a kernel; the package's own errors pass unchanged."""
        if isinstance(error, BalaclavaError):
            return error
        return failed_kernel(self.policy.name, round, error)

    def reading(
        self,
        decisions: Sequence[int],
        confidence: Any,
        condition: str | None,
        order: DecisionOrder | None = None,
    ) -> EstimateReader:
        """Estimates at a confidence, given the number of decisions of each arm.

        `condition` is what they assume of arrivals; `order` has the rewards in order, if kept.
        """
        return EstimateReader(
            self.policy, self.params, self.state, decisions, confidence, condition, order
        )
