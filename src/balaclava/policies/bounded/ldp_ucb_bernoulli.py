"""LDP-UCB-B: UCB on rewards reported as coin flips (Ren, Zhou, Liu, Shroff 2020)."""

import math
from typing import Any

from balaclava._core.declared import Epsilon, RadiusScale
from balaclava._core.kernels import kernel
from balaclava.frames.tally import Tally
from balaclava.policies.base import Estimation, Kernels, register
from balaclava.policies.classic.ucb1 import Indices, begin, choose
from balaclava.policies.classic.ucb1 import learn as learn_ucb1
from balaclava.policies.local_policies import LocalBoundedPolicy, unit_bit_report
from balaclava.theory.confidence_sequences import mean_interval


@kernel(borrows=True)
def learn(
    params: Any, state: Indices, t: int, arm: int, reward: float, phase: int, rng: Any
) -> None:
    learn_ucb1(params, state, t, arm, unit_bit_report(params, reward, 1.0, rng), phase, rng)


@kernel(borrows=True)
def mean_behind(params: Any, chance: float) -> float:
    """The mean of the rewards, given the mean of their reports."""
    return 0.5 + (chance - 0.5) / math.tanh(0.5 * params.epsilon)


@kernel(borrows=True)
def read_bits(params: Any, tally: Tally, arm: int) -> tuple[int, float, float]:
    n = tally.pulls[arm]
    return n, mean_behind(params, tally.sums[arm] / max(n, 1)), 0


@kernel(borrows=True)
def read_mean(params: Any, state: Indices, arm: int) -> tuple[int, float, float]:
    return read_bits(params, state.tally, arm)


@kernel(borrows=True)
def report_law(params: Any, mean: float, draws: float) -> tuple[float, int, float]:
    """The mean of the reports: they are bits, without further noise."""
    return 0.5 + (mean - 0.5) * math.tanh(0.5 * params.epsilon), 0, 0.0


@kernel(borrows=True)
def limits(
    params: Any, rewards: int, mean: float, draws: float, failure: float
) -> tuple[float, float]:
    """The interval for the mean of the reports, mapped back to rewards."""
    chance, _, _ = report_law(params, mean, draws)
    low, high = mean_interval(chance, rewards, 0, 0.0, failure)
    low, high = mean_behind(params, low), mean_behind(params, high)
    return min(max(low, 0.0), 1.0), min(max(high, 0.0), 1.0)


@register
class LDPUCBBernoulli(LocalBoundedPolicy):
    r"""UCB1 on rewards that each participant reports as a coin flip.

    For rewards that only the participant's device may see. The better of the two local policies for
    rewards in a range: the noise of a coin flip is bounded. If a trusted server holds the rewards,
    the central policies have far lower regret.

    A device with reward x in [0, 1] reports y = 1 with probability

    .. math:: (x e^\varepsilon + 1 - x) / (1 + e^\varepsilon),

    otherwise y = 0. After one pull of each arm, play the arm with the largest

    .. math:: \mathrm{mean}(y) + \sqrt{2 \log t / n}.

    Reports shrink the gaps between the arms by (e^epsilon - 1) / (e^epsilon + 1) and keep their
    order.

    Privacy:
        epsilon-local differential privacy of each report, hence epsilon-differential privacy of
        the whole trajectory. For every x both probabilities lie between 1 / (1 + e^epsilon) and
        e^epsilon / (1 + e^epsilon).

    Example:
        >>> policy = bl.policy("ldp-ucb-bernoulli", arms=3, epsilon=1.0)
        >>> policy.report(0.3) in (0.0, 1.0)
        True
        >>> agent = policy.agent(seed=1)
        >>> for _ in range(1000):
        ...     decision = agent.ask()
        ...     agent.tell(decision, reward=[0.2, 0.5, 0.9][decision.arm])
        >>> [each.decisions for each in agent.estimates()]
        [81, 163, 756]
    """

    name = "ldp-ucb-bernoulli"
    fixed_arms = ""
    reference = "Ren, Zhou, Liu, Shroff 2020"
    see_also = "ldp-window-klucb, ldp-ucb-laplace, ldpr-se, ucb1"
    report_kernel = staticmethod(unit_bit_report)
    learn_report = staticmethod(learn_ucb1)
    reports = (0.0, 1.0)
    kernels = Kernels(begin, choose, learn)
    estimation = Estimation(read_mean, limits, report_law, from_tally=read_bits)
    epsilon: Epsilon
    radius_scale: RadiusScale = 1.0
