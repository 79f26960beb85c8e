"""DP-FTPL-New: the leader under truncated Laplace perturbation (Wang and Zhu 2024, Algorithm 3)."""

import math
from typing import Any, NamedTuple

import numpy as np

from balaclava._core.declared import Delta, EpsilonOrZero, Horizon
from balaclava._core.kernels import kernel
from balaclava.frames.tally import Tally, begin_tally, learn_tally, unknown_arm
from balaclava.policies.base import Kernels, PrivateBoundedPolicy, register
from balaclava.policies.theorem_conditions import unit_gaps
from balaclava.privacy.mechanisms.perturbed_index import IndexLaw
from balaclava.privacy.mechanisms.truncated_laplace import (
    TruncatedLaplaceLaw,
    exceeded_with,
    truncated_laplace_release,
)


class Params(NamedTuple):
    arms: int
    reward_range: tuple[float, float]
    epsilon: float
    delta: float
    log_horizon: float
    noise_reach: float  # n c: the noise of a sum is below -n c with probability 1/T


@kernel(borrows=True)
def choose(params: Params, state: Tally, t: int, context: Any, rng: Any) -> tuple[int, int]:
    best = unknown_arm(state)
    if best < 0:
        best, highest = 0, -math.inf
        for arm in range(params.arms):
            n = state.pulls[arm]
            total = truncated_laplace_release(
                rng, state.sums[arm], 1.0, params.epsilon, params.delta
            )
            theta = (total + params.noise_reach + math.sqrt(params.log_horizon * n)) / n
            if theta > highest:
                best, highest = arm, theta
    state.asked[best] += 1
    return best, 0


@register
class DPFTPLNew(PrivateBoundedPolicy):
    r"""Play the highest upper bound under truncated Laplace noise: each decision is private.

    The best of the policies that protect single decisions: no start phase, and epsilon = 0 or
    delta = 0 is allowed. To protect a whole run use dp-imed or dp-klucb.

    Pull each arm once. Then, in each round and for each arm with n rewards of mean m, draw

    .. math:: \theta = m + \sqrt{\log T / n} + c + w / n,

    .. math:: c = \log((T E + 2 T \delta) / (2 E + 2 T \delta)) / (n \varepsilon),

    with E = exp(epsilon) - 1 and truncated Laplace noise w of sensitivity 1, and play the highest.
    The noise is below -n c with probability 1/T. In the limits c = log(T/2) / (n epsilon) for
    delta = 0, and c = (1 - 2/T) / (2 n delta) for epsilon = 0.

    Privacy:
        (epsilon, delta)-differential privacy of each decision (Theorem 16). A reward moves one
        arm's sum by at most 1, and each round uses the sum through one truncated Laplace release.
        Each round draws new noise, so the losses of decisions add up: the run as a whole is not
        protected.

    Parameters:
        epsilon: privacy loss of a decision; 0 is allowed if delta is above 0.
        horizon: T, the rounds that will be played; at least 2.

    Example:
        >>> policy = bl.policy("dp-ftpl-new", arms=9, epsilon=1.0, delta=0.01, horizon=10**6)
        >>> round(policy.constants().noise_reach, 6)
        4.464748
    """

    name = "dp-ftpl-new"
    fixed_arms = ""
    reference = "Wang, Zhu 2024"
    see_also = "dp-ftpl-gauss, gdp-elim-new, dp-imed"
    scope = "decision"
    kernels = Kernels(begin_tally, choose, learn_tally)
    epsilon: EpsilonOrZero
    delta: Delta = 0.0
    horizon: Horizon
    examples = (
        {"delta": 0.01},
        {"epsilon": 0.0, "delta": 0.2},
        {"epsilon": 2.0, "reward_range": (-1.0, 3.0)},
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.epsilon == 0.0 and self.delta == 0.0:
            raise self.refuse(
                "delta", "with epsilon = 0 allows no learning; raise delta or epsilon"
            )
        if self.horizon < 2:
            raise self.refuse("horizon", "is too short; give at least 2")

    def constants(self) -> Params:
        reach = float(exceeded_with(2.0 / self.horizon, self.epsilon, self.delta))
        return self.fill(Params, log_horizon=math.log(self.horizon), noise_reach=reach)

    def index_law(self, pulls: int, total: float) -> IndexLaw:
        params = self.constants()
        bonus = params.noise_reach + math.sqrt(params.log_horizon * pulls)
        return TruncatedLaplaceLaw((total + bonus) / pulls, 1.0 / pulls, self.epsilon, self.delta)

    def proved_bound(self, environment: Any, horizon: int) -> float | None:
        """Theorem 16: sum of max{16 log T / gap, 4 n c} over the worse arms, plus 4 an arm."""
        scaled = unit_gaps(self, environment)
        if scaled is None or horizon > self.horizon:
            return None
        gaps, width = scaled
        params = self.constants()
        lost = np.maximum(16.0 * params.log_horizon / gaps[gaps > 0], 4.0 * params.noise_reach)
        return width * float(lost.sum() + 4.0 * self.arms)
