"""LDP-UCB-L: UCB on rewards reported with Laplace noise (Ren, Zhou, Liu, Shroff 2020)."""

import math
from typing import Any

from balaclava._core.declared import Epsilon, RadiusScale
from balaclava._core.kernels import kernel
from balaclava.frames.tally import Tally, begin_tally, is_held_back, learn_tally
from balaclava.policies.base import Kernels, register
from balaclava.policies.intervals import FROM_REPORTS
from balaclava.policies.local_policies import LocalBoundedPolicy, unit_laplace_report


@kernel(borrows=True)
def choose(params: Any, state: Tally, t: int, context: Any, rng: Any) -> tuple[int, int]:
    enough = 4.0 * math.log(t + 1.0)  # positive, so no arm without reports gets an index
    # sqrt(2 log t / n) + sqrt(32 log t / (epsilon^2 n)) = (1 + 4 / epsilon) sqrt(2 log t / n)
    scale = params.radius_scale * (1.0 + 4.0 / params.epsilon)
    bonus = 2.0 * math.log(t)
    rare, best = -1, 0
    highest = -math.inf
    for arm in range(params.arms):
        n = state.pulls[arm]
        if n <= enough:
            if rare < 0 or state.asked[arm] < state.asked[rare]:
                rare = arm
        elif not is_held_back(params, state, arm, t):
            index = state.sums[arm] / n + scale * math.sqrt(bonus / n)
            if index > highest:
                best, highest = arm, index
    if rare >= 0:
        best = rare
    state.asked[best] += 1
    return best, 0


@kernel(borrows=True)
def learn(params: Any, state: Tally, t: int, arm: int, reward: float, phase: int, rng: Any) -> None:
    learn_tally(params, state, t, arm, unit_laplace_report(params, reward, 1.0, rng), phase, rng)


@register
class LDPUCBLaplace(LocalBoundedPolicy):
    r"""UCB1 on rewards that each participant reports with Laplace noise.

    For rewards that only the participant's device may see, if reports must be unbiased: the mean of
    an arm's reports estimates the mean of its rewards. ldp-ucb-bernoulli has lower regret.

    A device with reward x in [0, 1] reports y = x + Lap(1/epsilon). If some arm has
    n <= 4 log(t + 1) reports, play the least often asked of these. Otherwise play the arm with the
    largest

    .. math:: \mathrm{mean}(y) + \sqrt{2 \log t / n} + \sqrt{32 \log t / (\varepsilon^2 n)}.

    An arm that is added gets at most its part 1/arms of the decisions since then, until its mean is
    the highest.

    Privacy:
        epsilon-local differential privacy of each report, hence epsilon-differential privacy of
        the whole trajectory: a report has sensitivity 1.

    Example:
        >>> agent = bl.policy("ldp-ucb-laplace", arms=3, epsilon=1.0).agent(seed=1)
        >>> for _ in range(1000):
        ...     decision = agent.ask()
        ...     agent.tell(decision, reward=[0.2, 0.5, 0.9][decision.arm])
        >>> [each.decisions for each in agent.estimates()]
        [187, 262, 551]
    """

    name = "ldp-ucb-laplace"
    fixed_arms = ""
    derived_constants = ("added_after",)
    reference = "Ren, Zhou, Liu, Shroff 2020"
    see_also = "ldp-ucb-bernoulli, ldpr-se, ucb1"
    report_kernel = staticmethod(unit_laplace_report)
    learn_report = staticmethod(learn_tally)
    kernels = Kernels(begin_tally, choose, learn)
    estimation = FROM_REPORTS
    epsilon: Epsilon
    radius_scale: RadiusScale = 1.0
