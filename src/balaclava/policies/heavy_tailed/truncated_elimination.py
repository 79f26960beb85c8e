"""Elimination on truncated means (Tao, Wu, Zhao, Wang 2022): shared parameters and bound."""

import functools
import math
from collections.abc import Callable
from typing import Any, ClassVar, NamedTuple

import numpy as np

from balaclava._core import declared
from balaclava._core.kernels import kernel
from balaclava.frames.epochs import learn_in_state
from balaclava.policies.base import Estimation, failure_or_inverse_horizon
from balaclava.policies.intervals import limits_within_radius, require_radii
from balaclava.policies.pooled_policies import SAME_EPOCHS, PooledPolicy
from balaclava.policies.theorem_conditions import TailOrder, moments_hold, raw_bound, require_levels
from balaclava.privacy.mechanisms.truncation import truncated_onto
from balaclava.theory.elimination_regret import (
    removal_epochs,
    worst_elimination_regret,
    worst_regret,
)

LOG_2 = math.log(2.0)
# Epochs that the worst-case bound counts: gaps below 2^-60 cost less than 1 in 10^18 rounds.
COUNTED_EPOCHS = 60


class Params(NamedTuple):
    arms: int
    epsilon: float
    order: float  # 1 + v
    log_bound: float  # log u
    beta: float
    radius_scale: float
    explore: float
    holdout: float


@kernel(borrows=True)
def read_mean(params: Any, state: Any, arm: int) -> tuple[int, float, float]:
    """The mean of the last epoch, with its radius, and the rewards of all epochs."""
    epochs = state.epochs
    return epochs.rewards[arm], epochs.means[arm], epochs.widths[arm]


@kernel(borrows=True)
def truncated_value(params: Any, state: Any, t: int, row: int, reward: float) -> float:
    """0 for a reward beyond the level of its epoch, which the state has by row, as the step."""
    return truncated_onto(reward, state.level[row], state.step[row])


learn_truncated = functools.partial(learn_in_state, value=truncated_value)


class TruncatedEliminationPolicy(PooledPolicy):
    """Elimination in epochs of R pulls of each active arm, with rewards truncated at B.

    A subclass gives R and B as kernels of (params, active, epoch) and (params, active, epoch, R),
    and a bound on the error of an estimate.

    Parameters:
        failure_probability: beta, 1/horizon by default.
        radius_scale: multiplies err in the test, and shortens the epochs to match; privacy is
            unaffected.
        mean_range: D. If given, the means lie in [-D, D], moment_bound is about E|X - mean|^(1+v),
            and u = (moment_bound^(1/(1+v)) + D)^(1+v).
    """

    pools = "epochs"
    fixed_arms = SAME_EPOCHS
    winner_reason = "it plays all remaining arms equally often"
    estimation = Estimation(read_mean, limits_within_radius)
    epoch_length: ClassVar[Callable[..., int]]
    truncation_level: ClassVar[Callable[..., float]]
    allowed_error: ClassVar[float]  # of an estimate, in units of err: half the test's
    failures: ClassVar[float]  # probability of any larger error, in units of beta

    epsilon: declared.Epsilon
    moment_order: TailOrder
    moment_bound: declared.MomentBound
    horizon: declared.Horizon | None = None
    failure_probability: declared.FailureProbability | None = None
    radius_scale: declared.RadiusScale = 1.0
    mean_range: declared.MeanRange | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        level, params = type(self).truncation_level, self.constants()
        try:
            levels = level(params, self.arms, 1, self.first_epoch), level(params, 1, 1, 2**62)
        except OverflowError:
            levels = math.inf, math.inf
        require_levels(self, *levels)

    def constants(self) -> Params:
        return self.fill(
            Params,
            order=self.moment_order,
            log_bound=math.log(raw_bound(self)),
            beta=failure_or_inverse_horizon(self),
        )

    @property
    def first_epoch(self) -> int:
        """Pulls of each arm in the first epoch; no arm is dropped earlier."""
        return int(type(self).epoch_length(self.constants(), self.arms, 1))

    def error(self, shortest: float, longest: float) -> float:
        """A bound on the error of an estimate, in units of err, for epochs of these lengths."""
        raise NotImplementedError

    def require_estimates(self, failure: float) -> Estimation:
        """All estimates are within their radii, except with probability `failures` beta."""
        longest = float(self.horizon or 2**61)
        error = self.error(min(float(self.first_epoch), longest), longest)
        fails = self.failures * failure_or_inverse_horizon(self) / self.arms
        require_radii(self, error <= self.allowed_error * self.radius_scale, fails, failure)
        return super().require_estimates(failure)

    def proved_bound(self, environment: Any, horizon: int) -> float | None:
        """A bound with all constants; None if the moment bound or the proof does not hold.

        Suppose that no error exceeds `allowed_error` times radius_scale. Then the best arm stays,
        and R makes an arm of gap >= 2^-tau leave by the end of epoch tau. So an arm is pulled at
        most R_1 + ... + R_tau times, tau the first epoch with 2^-tau <= gap. The bound adds these
        up to the horizon, and counts the whole horizon if an estimate fails.
        """
        if not moments_hold(self, environment):
            return None
        gaps = environment.gaps
        if not (gaps > 0).any():
            return 0.0
        params, last = self.constants(), removal_epochs(gaps[gaps > 0])
        length = type(self).epoch_length
        lengths = np.array([float(length(params, self.arms, e + 1)) for e in range(last.max())])
        error = self.error(lengths[0], min(lengths[-1], float(horizon)))
        if error > self.allowed_error * self.radius_scale:
            return None
        pulls = np.full(self.arms, math.inf)
        pulls[gaps > 0] = lengths.cumsum()[last - 1]
        fails = min(self.failures * params.beta, 1.0)
        return worst_regret(gaps, pulls, horizon) + fails * horizon * float(gaps.max())

    def worst_case_bound(self, horizon: int) -> float | None:
        """The same bound for all gaps; None if the proof does not hold.

        The instance-independent part of Theorems 4 and 7, with constants. Gaps are at most
        2 u^(1/(1+v)), since |mean|^(1+v) <= u.
        """
        if self.draws_evenly:
            return None
        params, length = self.constants(), type(self).epoch_length
        steps: list[tuple[float, float]] = []
        pulls, shortest, longest = 0.0, 0.0, 0.0
        while pulls < horizon and len(steps) < COUNTED_EPOCHS:
            longest = float(length(params, self.arms, len(steps) + 1))
            shortest = shortest or longest
            pulls += longest
            steps.append((0.5 ** (len(steps) + 1), pulls))
        if self.error(shortest, min(longest, float(horizon))) > (
            self.allowed_error * self.radius_scale
        ):
            return None
        largest = 2.0 * math.exp(params.log_bound / self.moment_order)
        fails = self.failures * params.beta
        return worst_elimination_regret(self.arms, steps, horizon, fails, largest)
