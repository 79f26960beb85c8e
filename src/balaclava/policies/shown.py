"""What was released of an arm, and the interval that it gives: one estimator a way of releasing."""

from __future__ import annotations

from typing import Any

from balaclava._core.kernels import kernel
from balaclava.frames.tally import Tally
from balaclava.policies.base import Estimation
from balaclava.theory.confidence import laplace_scale, mean_interval


@kernel(borrows=True)
def shown_in_pools(params: Any, state: Any, arm: int) -> tuple[int, float, int]:
    """Of pools or epochs: the mean of all that was released."""
    return state.rewards[arm], state.pooled[arm], state.draws[arm]


@kernel(borrows=True)
def shown_in_tally(params: Any, state: Tally, arm: int) -> tuple[int, float, int]:
    """Rewards without noise."""
    n = state.pulls[arm]
    return n, state.sums[arm] / max(n, 1), 0


@kernel(borrows=True)
def shown_in_reports(params: Any, state: Tally, arm: int) -> tuple[int, float, int]:
    """Each reward has a draw of noise of its own."""
    n = state.pulls[arm]
    return n, state.sums[arm] / max(n, 1), n


@kernel(borrows=True)
def limits_with_laplace(
    params: Any, rewards: int, mean: float, draws: int, failure: float
) -> tuple[float, float]:
    """Draws of Laplace noise of scale 1/epsilon."""
    return mean_interval(mean, rewards, draws, laplace_scale(params.epsilon), failure)


@kernel(borrows=True)
def limits_without_noise(
    params: Any, rewards: int, mean: float, draws: int, failure: float
) -> tuple[float, float]:
    """Rewards as they are."""
    return mean_interval(mean, rewards, 0, 0.0, failure)


FROM_POOLS = Estimation(shown_in_pools, limits_with_laplace)
FROM_REPORTS = Estimation(shown_in_reports, limits_with_laplace)
FROM_TALLY = Estimation(shown_in_tally, limits_without_noise)
