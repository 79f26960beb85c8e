"""Thompson sampling with Gaussian posteriors (Agrawal, Goyal 2013, Algorithm 2)."""

import math
from typing import Any

from balaclava._core.declared import RadiusScale
from balaclava._core.kernels import kernel
from balaclava.frames.tally import Tally, begin_tally, learn_tally
from balaclava.policies.base import Kernels, Policy, register


@kernel(borrows=True)
def choose(params: Any, state: Tally, t: int, context: Any, rng: Any) -> tuple[int, int]:
    best, highest = 0, -math.inf
    for arm in range(params.arms):
        n = state.pulls[arm] + 1
        spread = params.radius_scale / math.sqrt(n)
        theta = state.sums[arm] / n + spread * rng.standard_normal()
        if theta > highest:
            best, highest = arm, theta
    state.asked[best] += 1
    return best, 0


@register
class ThompsonGauss(Policy):
    """Play the arm with the highest draw from a Gaussian posterior of its mean.

    For real rewards of about unit spread; for another spread set `radius_scale`. For rewards in
    [0, 1] thompson-beta is better. The prior is N(0, 1): if the means lie far from 0, shift the
    rewards first. Not for heavy tails.

    With n rewards of an arm, draw theta ~ N(sum/(n+1), 1/(n+1)) and play the highest.

    Parameters:
        radius_scale: multiplies the standard deviation of the draws.

    Example:
        >>> agent = bl.policy("thompson-gauss", arms=2).agent(seed=0)
        >>> pulls = [0, 0]
        >>> for _ in range(1000):
        ...     decision = agent.ask()
        ...     agent.tell(decision, reward=(0.2, 0.8)[decision.arm])
        ...     pulls[decision.arm] += 1
        >>> pulls
        [21, 979]
    """

    name = "thompson-gauss"
    fixed_arms = ""
    reference = "Agrawal, Goyal 2013"
    see_also = "thompson-beta, dp-ftpl-gauss"
    kernels = Kernels(begin_tally, choose, learn_tally)
    radius_scale: RadiusScale = 1.0
