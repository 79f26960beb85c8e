"""DP-UCB-BOUND: DP-UCB that allows for its noise (Tossou and Dimitrakakis 2016)."""

import math
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from balaclava._core.declared import Epsilon, RadiusScale
from balaclava._core.kernels import kernel
from balaclava._core.states import range_faults, stored_as
from balaclava.frames.tally import unknown_arm
from balaclava.policies.base import Estimation, Kernels, PrivateBoundedPolicy, register
from balaclava.policies.bounded import dp_ucb


@stored_as(sums="known")
class State(NamedTuple):
    """Private sums, and the scale of their noise."""

    sums: dp_ucb.State
    spread: np.ndarray  # [arms]: nu_a in units of sqrt(8) log(4 t^4) / epsilon

    def faults(self, decisions: int) -> Iterator[str]:
        yield from range_faults(0.0, math.inf, spread=self.spread)


@kernel
def begin(params: Any) -> State:
    return State(dp_ucb.begin(params), np.ones(params.arms))


@kernel(borrows=True)
def choose(params: Any, state: State, t: int, context: Any, rng: Any) -> tuple[int, int]:
    tally = state.sums.indices.tally
    best = unknown_arm(tally)
    if best < 0:
        bonus = 2.0 * math.log(t)
        # log(4 t^4), times sqrt(8) / epsilon
        noise = math.sqrt(8.0) / params.epsilon * (math.log(4.0) + 4.0 * math.log(t))
        highest = -math.inf
        for arm in range(params.arms):
            n = tally.pulls[arm]
            radius = math.sqrt(bonus / n) + noise * state.spread[arm] / n
            index = tally.sums[arm] / n + params.radius_scale * radius
            if best < 0 or index > highest:
                best, highest = arm, index
    tally.asked[best] += 1
    return best, 0


@kernel(borrows=True)
def learn(params: Any, state: State, t: int, arm: int, reward: float, phase: int, rng: Any) -> None:
    dp_ucb.learn(params, state.sums, t, arm, reward, phase, rng)
    n = state.sums.indices.tally.pulls[arm]
    # At a power of two the counter's sum has no tree part.
    state.spread[arm] = 1.0 if n & (n - 1) == 0 else 1.0 + math.log(n)


@kernel(borrows=True)
def read_mean(params: Any, state: State, arm: int) -> tuple[int, float, float]:
    return dp_ucb.read_mean(params, state.sums, arm)


@register
class DPUCBBound(PrivateBoundedPolicy):
    r"""DP-UCB with a second bonus for the noise of its counters.

    The sound form of dp-ucb, with a proved regret of order K log T log log T / epsilon. The bonus
    is several times the noise it covers. It is lowest when n_a is a power of two, so arms are left
    only at powers of two. For low regret prefer dp-imed or dp-klucb.

    After one pull of each arm, play the arm with the largest

    .. math:: s_a / n_a + \sqrt{2 \log t / n_a} + \nu_a / n_a,

    s_a the private sum of the arm's n_a rewards, by a hybrid counter. If n_a is a power of two,
    nu_a = sqrt(8) log(4 t^4) / epsilon; otherwise it is 1 + log n_a times as large.

    Privacy:
        epsilon-differential privacy of the whole trajectory, as for dp-ucb: a reward enters one
        hybrid counter, once. The second bonus depends on numbers of rewards only.

    Example:
        >>> agent = bl.policy("dp-ucb-bound", arms=3, epsilon=1.0).agent(seed=1)
        >>> for _ in range(1000):
        ...     decision = agent.ask()
        ...     agent.tell(decision, reward=[0.2, 0.5, 0.9][decision.arm])
        >>> [each.decisions for each in agent.estimates()]
        [232, 256, 512]
    """

    name = "dp-ucb-bound"
    fixed_arms = ""
    reference = "Tossou, Dimitrakakis 2016"
    see_also = "dp-ucb, dp-ucb-int, private-ucb"
    kernels = Kernels(begin, choose, learn)
    estimation = Estimation(read_mean, dp_ucb.limits)
    epsilon: Epsilon
    radius_scale: RadiusScale = 1.0
