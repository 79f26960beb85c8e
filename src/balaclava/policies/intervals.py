"""Kernels that read released means and their intervals: one pair for each kind of release."""

import math
from typing import Any

from balaclava._core.kernels import kernel
from balaclava.errors import EstimateError
from balaclava.frames.tally import Tally
from balaclava.policies.base import Estimation, Policy
from balaclava.theory.confidence_sequences import laplace_scale, mean_interval


@kernel(borrows=True)
def read_pools(params: Any, state: Any, arm: int) -> tuple[int, float, float]:
    """Pools or epochs: the mean of all releases."""
    return state.rewards[arm], state.pooled[arm], state.draws[arm]


@kernel(borrows=True)
def read_tally(params: Any, state: Tally, arm: int) -> tuple[int, float, float]:
    """A tally of rewards without noise."""
    n = state.pulls[arm]
    return n, state.sums[arm] / max(n, 1), 0


@kernel(borrows=True)
def read_reports(params: Any, state: Tally, arm: int) -> tuple[int, float, float]:
    """A tally of reports: each has its own draw of noise."""
    n = state.pulls[arm]
    return n, state.sums[arm] / max(n, 1), n


@kernel(borrows=True)
def limits_with_laplace(
    params: Any, rewards: int, mean: float, draws: float, failure: float
) -> tuple[float, float]:
    """Limits for draws of Laplace noise of scale 1/epsilon."""
    return mean_interval(mean, rewards, int(draws), laplace_scale(params.epsilon), failure)


@kernel(borrows=True)
def limits_without_noise(
    params: Any, rewards: int, mean: float, draws: float, failure: float
) -> tuple[float, float]:
    return mean_interval(mean, rewards, 0, 0.0, failure)


@kernel(borrows=True)
def limits_within_radius(
    params: Any, rewards: int, mean: float, radius: float, failure: float
) -> tuple[float, float]:
    """Limits from the policy's own radius; see `require_radii`."""
    if rewards < 1:
        return -math.inf, math.inf
    return mean - radius, mean + radius


def require_radii(policy: Policy, proved: bool, fails: float, failure: float) -> None:
    """Refuse intervals that the radii do not prove; `fails` is their failure probability."""
    if not proved:
        raise EstimateError(
            f"{policy.name} offers no estimates with these parameters: its radii are smaller than "
            "proved; set radius_scale = 1, or see its docstring"
        )
    if fails > failure:
        raise EstimateError(
            f"{policy.name} has radii that fail with probability {fails:.3g} an arm, but this "
            f"confidence allows {failure:.3g}; lower the confidence, or make the policy with a "
            "lower failure_probability"
        )


FROM_POOLS = Estimation(read_pools, limits_with_laplace)
FROM_REPORTS = Estimation(read_reports, limits_with_laplace)
FROM_TALLY = Estimation(read_tally, limits_without_noise)
