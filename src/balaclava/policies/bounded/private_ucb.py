"""Private-UCB: UCB on tree counters (Mishra and Thakurta 2015)."""

import math
from typing import Any, NamedTuple

import numpy as np

from balaclava._core.declared import Epsilon, FailureProbability, Horizon, RadiusScale
from balaclava._core.kernels import kernel
from balaclava.frames.tally import Tally, begin_tally, is_held_back, learn_tally, unknown_arm
from balaclava.policies.base import Estimation, Kernels, PrivateBoundedPolicy, register
from balaclava.privacy.mechanisms import counters
from balaclava.theory.confidence_sequences import laplace_scale, mean_interval


class Params(NamedTuple):
    arms: int
    reward_range: tuple[float, float]
    horizon: int
    tree_epsilon: float
    noise_margin: float
    radius_scale: float
    added_after: np.ndarray  # [arm]: decisions before it was added


class State(NamedTuple):
    """Private sums, and the trees behind them."""

    tally: Tally  # its sums are the trees' private sums
    trees: counters.Trees


@kernel
def begin(params: Params) -> State:
    return State(
        begin_tally(params), counters.begin_trees(params.arms, counters.tree_levels(params.horizon))
    )


@kernel(borrows=True)
def choose(params: Params, state: State, t: int, context: Any, rng: Any) -> tuple[int, int]:
    tally = state.tally
    best = unknown_arm(tally)
    if best < 0:
        bonus = 2.0 * math.log(t)
        best, highest = 0, -math.inf
        for arm in range(params.arms):
            if is_held_back(params, tally, arm, t):
                continue
            n = tally.pulls[arm]
            radius = math.sqrt(bonus / n) + params.noise_margin / n
            index = tally.sums[arm] / n + params.radius_scale * radius
            if index > highest:
                best, highest = arm, index
    tally.asked[best] += 1
    return best, 0


@kernel(borrows=True)
def learn(
    params: Params, state: State, t: int, arm: int, reward: float, phase: int, rng: Any
) -> None:
    if state.tally.pulls[arm] == params.horizon:
        return  # the tree has no room for more
    counters.tree_insert(rng, state.trees, arm, reward, 1.0, params.tree_epsilon)
    learn_tally(params, state.tally, t, arm, 0.0, phase, rng)  # counts; the next line sets the sum
    state.tally.sums[arm] = counters.tree_sum(state.trees, arm)


@kernel(borrows=True)
def read_mean(params: Params, state: State, arm: int) -> tuple[int, float, float]:
    """The mean of the largest node, which holds the first 2^j rewards."""
    levels = counters.tree_levels(state.trees.items[arm])
    if levels == 0:
        return 0, 0.0, 0
    n = 1 << (levels - 1)
    return n, state.trees.noisy[arm, levels - 1] / n, 1


@kernel(borrows=True)
def limits(
    params: Params, rewards: int, mean: float, draws: float, failure: float
) -> tuple[float, float]:
    """Nodes share rewards, so each has its own share of the failure: 1/((j+1)(j+2)).

    For a fixed n the evidence has mean at most 1, so Markov's inequality replaces Ville's.
    """
    nodes = counters.tree_levels(rewards)
    share = failure / (nodes * (nodes + 1.0)) if nodes > 0 else failure
    node_epsilon = params.tree_epsilon / counters.tree_levels(params.horizon)
    return mean_interval(mean, rewards, int(draws), laplace_scale(node_epsilon), share)


@register
class PrivateUCB(PrivateBoundedPolicy):
    r"""UCB1 on running sums that a tree counter keeps private, with a bonus for their noise.

    The first private bandit policy of this kind, and a baseline. Its bonus for the noise is so
    large that it plays nearly uniformly until each arm has thousands of pulls. dp-ucb-bound needs
    no horizon and has lower regret; that of dp-imed and dp-klucb is far lower still.

    After one pull of each arm, play the arm with the largest

    .. math:: s_a / n_a + \sqrt{2 \log t / n_a} + G / n_a,

    .. math:: G = (\log T)^2 \log(K T \log T / g) / \varepsilon,

    s_a the private sum of the arm's n_a rewards, T the horizon, K the number of arms and g the
    failure probability. The paper divides epsilon among the arms, which makes G K times as large.
    That is not needed, since a reward enters one tree only; `split_epsilon` restores it. An arm
    that is added gets at most its part 1/K of the decisions since then, until its private mean is
    the highest.

    Privacy:
        epsilon-differential privacy of the whole trajectory. A reward enters the tree of one arm,
        in one node of each of the floor(log2 T) + 1 levels. Each level has an equal share of
        epsilon. With `split_epsilon` the run costs at most epsilon / K. Rewards after an arm's T-th
        are dropped.

    Parameters:
        failure_probability: g, the probability that the noise bonus is too small.
        split_epsilon: give each arm's tree epsilon / K, as in the paper.

    Example:
        >>> policy = bl.policy("private-ucb", arms=9, epsilon=1.0, horizon=10**6)
        >>> round(policy.noise_margin, 1)
        3997.0
    """

    name = "private-ucb"
    fixed_arms = ""
    reference = "Mishra, Thakurta 2015"
    see_also = "dp-ucb, dp-ucb-bound, ucb1"
    kernels = Kernels(begin, choose, learn)
    estimation = Estimation(read_mean, limits)
    epsilon: Epsilon
    horizon: Horizon
    failure_probability: FailureProbability = 0.1
    split_epsilon: bool = False
    radius_scale: RadiusScale = 1.0
    examples = ({}, {"split_epsilon": True})

    @property
    def tree_epsilon(self) -> float:
        """Privacy loss of all releases of one arm's tree."""
        return self.epsilon / self.arms if self.split_epsilon else self.epsilon

    @property
    def noise_margin(self) -> float:
        """G: a bound on the noise of a private sum."""
        log_horizon = math.log(self.horizon)
        if log_horizon == 0:
            return 0.0  # with one round no index is used
        events = self.arms * self.horizon * log_horizon / self.failure_probability
        return log_horizon**2 * math.log(events) / self.tree_epsilon

    def constants(self) -> Params:
        return self.fill(Params)
