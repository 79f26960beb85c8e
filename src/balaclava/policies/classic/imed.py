"""IMED: indexed minimum empirical divergence (Honda, Takemura 2015, Algorithm 1)."""

import math
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from balaclava._core.kernels import kernel
from balaclava.estimators.kl import entropy
from balaclava.frames.tally import Tally, begin_tally, learn_tally, unknown_arm
from balaclava.policies.base import BoundedPolicy, Kernels, register
from balaclava.policies.intervals import FROM_TALLY


class State(NamedTuple):
    """A tally, and the parts of each arm's index that change only with its own rewards."""

    asked: np.ndarray
    pulls: np.ndarray
    sums: np.ndarray
    unknown: np.ndarray
    means: np.ndarray
    entropies: np.ndarray  # of the means
    logs: np.ndarray  # log n

    def faults(self, decisions: int) -> Iterator[str]:
        yield from Tally(*self[:4]).faults(decisions)


@kernel
def begin(params: Any) -> State:
    arms, (asked, pulls, sums, unknown) = params.arms, begin_tally(params)
    return State(
        asked=asked,
        pulls=pulls,
        sums=sums,
        unknown=unknown,
        means=np.zeros(arms),
        entropies=np.zeros(arms),
        logs=np.zeros(arms),
    )


@kernel(borrows=True)
def choose(params: Any, state: State, t: int, context: Any, rng: Any) -> tuple[int, int]:
    best = unknown_arm(state)
    if best < 0:
        best = lowest_index(state)
    state.asked[best] += 1
    return best, 0


@kernel(borrows=True)
def learn(params: Any, state: State, t: int, arm: int, reward: float, phase: int, rng: Any) -> None:
    learn_tally(params, state, t, arm, reward, phase, rng)
    state.means[arm] = state.sums[arm] / state.pulls[arm]
    state.entropies[arm] = entropy(state.means[arm])
    state.logs[arm] = math.log(state.pulls[arm])


@kernel(borrows=True)
def lowest_index(state: State) -> int:
    """The first arm with the lowest index.

    kl(p, q) is -p log q - (1-p) log(1-q) less the entropy of p, so a round needs two logarithms.
    Rounding moves n kl by n 2^-52, which affects only ties.
    """
    leader, top = 0, -math.inf
    for arm in range(state.pulls.size):
        if state.means[arm] > top:
            leader, top = arm, state.means[arm]
    best, lowest = leader, state.logs[leader]
    log_top = math.log(top) if top > 0.0 else -math.inf
    log_rest = math.log(1.0 - top) if top < 1.0 else -math.inf
    for arm in range(state.pulls.size):
        mean = state.means[arm]
        index = state.logs[arm]
        if mean < top:
            cross = -mean * log_top - (1.0 - mean) * log_rest
            index += state.pulls[arm] * max(cross - state.entropies[arm], 0.0)
        if index < lowest or (index == lowest and arm < best):
            best, lowest = arm, index
    return best


@register
class IMED(BoundedPolicy):
    r"""Play the arm with the least evidence against it: n kl(mean, best mean) + log n.

    Asymptotically optimal for rewards 0 and 1, like kl-ucb, but without root finding or parameters:
    the baseline to beat on rewards in [0, 1]. Not for unbounded rewards.

    After one pull of each arm, play the arm with the lowest

    .. math:: n_a\, \mathrm{kl}(m_a, \max m) + \log n_a,

    m_a the mean of its n_a rewards. The paper writes it for any distribution on a bounded support;
    this is the Bernoulli form, valid for all rewards in [0, 1] and exact for 0 and 1.

    Example:
        >>> agent = bl.policy("imed", arms=2).agent(seed=0)
        >>> for _ in range(1000):
        ...     decision = agent.ask()
        ...     agent.tell(decision, reward=(0.2, 0.8)[decision.arm])
        >>> [each.decisions for each in agent.estimates()]
        [7, 993]
    """

    name = "imed"
    fixed_arms = ""
    reference = "Honda, Takemura 2015"
    see_also = "kl-ucb, dp-imed"
    kernels = Kernels(begin, choose, learn)
    estimation = FROM_TALLY
