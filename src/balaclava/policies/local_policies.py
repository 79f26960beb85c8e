"""Base classes of local policies: each device makes its reward private."""

import math
from collections.abc import Callable
from typing import Any, ClassVar

from balaclava._core.kernels import kernel
from balaclava.errors import ParameterError, RewardError
from balaclava.policies.base import (
    Policy,
    PrivateBoundedPolicy,
    PrivateRealPolicy,
    limited_reward,
    onto_unit_grid,
)
from balaclava.policies.loss_policies import loss_onto_unit_grid
from balaclava.privacy.device_report import checked_level, checked_number
from balaclava.privacy.exact_noise import GRID_BITS
from balaclava.privacy.guarantee import Model, Scope
from balaclava.privacy.mechanisms.laplace import laplace_report, laplace_tail
from balaclava.privacy.mechanisms.randomized_response import bernoulli_report
from balaclava.privacy.mechanisms.truncation import truncated
from balaclava.privacy.randomness import SystemRandomness

REPORTED = (
    "each reward is reported by its device (policy.report, agent.tell_report); an agent that is "
    "told raw rewards keeps the decisions private, but its operator sees the rewards"
)

_HONEST_TAIL = 1e-12  # an honest report is refused less often: never, in 10^9 reports


@kernel(borrows=True)
def unit_level(params: Any, state: Any, arm: int, phase: int) -> float:
    """A constant level: reports of rewards in [0, 1] do not use it."""
    return 1.0


@kernel(borrows=True)
def unit_laplace_report(params: Any, reward: float, level: float, rng: Any) -> float:
    """Report a reward or a loss in [0, 1] with Laplace noise."""
    return laplace_report(rng, reward, 1.0, params.epsilon)


@kernel(borrows=True)
def unit_bit_report(params: Any, reward: float, level: float, rng: Any) -> float:
    """Report a reward in [0, 1] as one randomized bit."""
    return bernoulli_report(rng, reward, params.epsilon)


@kernel(borrows=True)
def truncated_laplace_report(params: Any, reward: float, level: float, rng: Any) -> float:
    """Report a reward of any size, truncated, with Laplace noise (`privacy.device_report`)."""
    return laplace_report(rng, truncated(reward, level), 2.0 * level, params.epsilon)


# Kinds of report that devices without Python can make (service/static/report.js), by the kernels
# that prepare and report a reward.
RULES: dict[tuple[Callable[..., float], Callable[..., float] | None], str] = {
    (onto_unit_grid, unit_bit_report): "bit",
    (onto_unit_grid, unit_laplace_report): "laplace",
    (loss_onto_unit_grid, unit_laplace_report): "laplace",
    (limited_reward, truncated_laplace_report): "truncated-laplace",
}


class LocalPolicy(Policy):
    """A policy that learns from reports, each made private on the participant's device.

    A subclass gives three kernels:

    - `report_level(params, state, arm, phase) -> float`: the truncation level of a decision's
      reward; public, and sent with the decision;
    - `report_kernel(params, reward, level, rng) -> float`: the only function that sees a prepared
      reward. It must keep its epsilon at every level above 0, since a server may send any;
    - `learn_report(params, state, t, arm, report, phase, rng)`: learns from a report.

    The server sends `agent.report_level(decision)` with the decision, the device calls
    `policy.report(reward, level)`, and the server calls `agent.tell_report(decision, report)`. The
    policy's `learn` does all three for a caller that has the raw rewards.
    """

    model: ClassVar[Model] = "local"
    scope: ClassVar[Scope] = "report"
    report_level: ClassVar[Callable[..., float] | None] = staticmethod(unit_level)

    def report(self, reward: float, level: float | None = None) -> float:
        """Report a reward from a device, with secure noise.

        Warning:
            Report each reward once: a second report of the same reward costs epsilon again.

        Args:
            reward: Any finite number. One outside `accepts` is clipped, even with
                outside="refuse": a device that refused it would reveal it by its silence.
            level: The value of `agent.report_level(decision)`; optional for rewards in a known
                range.

        Returns:
            The report to send in place of the reward.

        Raises:
            RewardError: If the reward is not a finite number.
            ParameterError: If the level is missing, or is not above 0.
        """
        kernel = type(self).report_kernel
        if kernel is None:
            raise NotImplementedError(f"{type(self).__name__} has no report_kernel")
        if level is None:
            if type(self).report_level is not unit_level:
                raise ParameterError(
                    f"{self.name}: level is missing; give the level that the server sent with the "
                    "decision, agent.report_level(decision)"
                )
            level = 1.0
        params = self.constants()
        low, high = self.accepts
        clipped = min(max(checked_number(self.name, "reward", reward), low), high)
        prepared = self.prepare()(params, clipped)
        return float(kernel(params, prepared, checked_level(level), SystemRandomness()))

    def checked_report(self, report: Any, level: float | None = None) -> float:
        """Check a report before the policy learns from it.

        It refuses what a device that follows the mechanism sends with probability below 1e-12: a
        forged report then has no more weight than an extreme honest one.

        Args:
            report: The number that the device sent.
            level: The level of its decision; without one, only the bounds that need none apply.

        Returns:
            The report as a float.

        Raises:
            RewardError: If it is not such a number. The message does not repeat it.
        """
        value = checked_number(self.name, "report", report)
        kind, (low, high) = self._rule_kind, self.reports
        epsilon = float(self.constants().epsilon) if kind is not None else math.inf
        if kind == "laplace":
            tail = laplace_tail(1.0, epsilon, _HONEST_TAIL)
            low, high = -tail, 1.0 + tail
        elif kind == "truncated-laplace" and level is not None:
            high = level + laplace_tail(2.0 * level, epsilon, _HONEST_TAIL)
            low = -high
        if not low <= value <= high or (kind == "bit" and value not in (0.0, 1.0)):
            raise RewardError(
                f"{self.name}: no device that follows policy.report or report.js sends this report "
                "(its value is withheld); use the rule and the level of the experiment"
            )
        return value

    @property
    def _rule_kind(self) -> str | None:
        return RULES.get((self.prepare(), type(self).report_kernel))

    def report_rule(self) -> dict[str, Any]:
        """Describe the report's distribution for devices without Python.

        Returns:
            Public, JSON-able values. `kind` is "bit" (randomized response), "laplace", or
            "truncated-laplace", which also needs the level of each decision. `range` gives the
            accepted rewards; devices clip others to it. `grid_bits` is the grid of reports.

        Raises:
            ParameterError: If the policy has another kind of report.

        Example:
            >>> import balaclava as bl
            >>> bl.policy("ldp-ucb-bernoulli", arms=3, epsilon=1.0).report_rule()
            {'kind': 'bit', 'epsilon': 1.0, 'range': [0.0, 1.0], 'outside': 'clip',
             'grid_bits': 20}
        """
        kind = self._rule_kind
        if kind is None:
            raise ParameterError(
                f"{self.name} has its own kind of report, which devices without Python do not "
                "know; call policy.report in Python"
            )
        return {
            "kind": kind,
            "epsilon": float(self.constants().epsilon),
            "range": None if kind == "truncated-laplace" else [float(x) for x in self.accepts],
            "outside": "clip",  # of old scripts, which refused rewards otherwise
            "grid_bits": GRID_BITS,
        }


class LocalBoundedPolicy(LocalPolicy, PrivateBoundedPolicy):
    """A local policy for rewards in a known range."""

    assumptions: ClassVar[tuple[str, ...]] = (REPORTED,)


class LocalRealPolicy(LocalPolicy, PrivateRealPolicy):
    """A local policy for rewards of any size, which devices truncate at a given level."""

    assumptions: ClassVar[tuple[str, ...]] = (*PrivateRealPolicy.assumptions, REPORTED)
