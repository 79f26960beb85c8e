"""DP-UCB: UCB on private running sums (Tossou and Dimitrakakis 2016)."""

import math
from typing import Any, NamedTuple

from balaclava._core.declared import Epsilon, RadiusScale
from balaclava._core.kernels import kernel
from balaclava.frames.tally import learn_tally
from balaclava.policies.base import Estimation, Kernels, PrivateBoundedPolicy, register
from balaclava.policies.classic import ucb1
from balaclava.privacy.mechanisms import counters
from balaclava.theory.confidence_sequences import laplace_scale, mean_interval


class State(NamedTuple):
    """Private indices, and the counters behind them."""

    indices: ucb1.Indices  # their sums are the counters' private sums
    counters: counters.Hybrid


@kernel
def begin(params: Any) -> State:
    return State(ucb1.begin(params), counters.begin_hybrid(params.arms))


@kernel(borrows=True)
def choose(params: Any, state: State, t: int, context: Any, rng: Any) -> tuple[int, int]:
    tally = state.indices.tally
    for arm in range(params.arms):
        pulls = tally.asked[arm]
        if params.added_after[arm] > 0 and pulls * params.arms < t and is_noisy(params, pulls, t):
            tally.asked[arm] += 1
            return arm, 0
    return ucb1.choose(params, state.indices, t, context, rng)


@kernel(borrows=True)
def is_noisy(params: Any, pulls: int, t: int) -> bool:
    """Whether the deviation of a counter's noise is above half the bonus of so many pulls.

    Of m levels, m noises of scale 2/epsilon count, and half of m with m times that scale.
    """
    levels = counters.tree_levels(pulls)
    variance = 4.0 * levels * (levels**2 + 2.0) / params.epsilon**2
    return bool(variance > 0.25 * pulls * 2.0 * math.log(t))


@kernel(borrows=True)
def learn(params: Any, state: State, t: int, arm: int, reward: float, phase: int, rng: Any) -> None:
    counters.hybrid_insert(rng, state.counters, arm, reward, 1.0, params.epsilon)
    tally = state.indices.tally
    learn_tally(params, tally, t, arm, 0.0, phase, rng)  # counts; the next line sets the sum
    tally.sums[arm] = counters.hybrid_sum(state.counters, arm)
    ucb1.renew(state.indices, arm)


@kernel(borrows=True)
def read_mean(params: Any, state: State, arm: int) -> tuple[int, float, float]:
    """Rewards up to the last power of two: few releases, with far less noise than a tree."""
    whole = state.counters.whole
    n, draws = 0, counters.tree_levels(whole.items[arm])
    if draws > 0:
        n = 1 << (draws - 1)
    return n, whole.released[arm] / max(n, 1), draws


@kernel(borrows=True)
def limits(
    params: Any, rewards: int, mean: float, draws: float, failure: float
) -> tuple[float, float]:
    """Intervals for these releases, which have half of epsilon."""
    return mean_interval(mean, rewards, int(draws), laplace_scale(0.5 * params.epsilon), failure)


@register
class DPUCB(PrivateBoundedPolicy):
    r"""UCB1 on running sums that a hybrid counter keeps private.

    A simple baseline that needs no horizon and no tuning. It does not allow for its own noise: at
    epsilon = 1 or less it often abandons a good arm after a bad first draw. dp-ucb-bound fixes
    that; for low regret prefer dp-imed or dp-klucb.

    After one pull of each arm, play the arm with the largest

    .. math:: s_a / n_a + \sqrt{2 \log t / n_a},

    s_a the private sum of the arm's n_a rewards. An arm that is added is first pulled until the
    deviation of its noise is at most half of this bonus, or it has 1/K of all decisions: the noise
    of the others has averaged out, so without that it is nearly always abandoned. An arm's counter
    sees that arm's rewards only. One published implementation feeds every counter in every round,
    with 0 for the arms that were not pulled: as private, but noisier.

    Privacy:
        epsilon-differential privacy of the whole trajectory. A reward enters the hybrid counter of
        one arm, once. All releases of a counter together cost epsilon (Chan, Shi, Song 2011), and
        the counters of different arms hold different rewards. Noise is drawn when a reward
        arrives, and kept. Decisions depend on private sums and numbers of rewards only.

    Example:
        >>> agent = bl.policy("dp-ucb", arms=3, epsilon=2.0).agent(seed=1)
        >>> for _ in range(1000):
        ...     decision = agent.ask()
        ...     agent.tell(decision, reward=[0.2, 0.5, 0.9][decision.arm])
        >>> [each.decisions for each in agent.estimates()]
        [20, 9, 971]
    """

    name = "dp-ucb"
    fixed_arms = ""
    derived_constants = ("added_after",)
    reference = "Tossou, Dimitrakakis 2016"
    cites = "Tossou, Dimitrakakis 2016; Chan, Shi, Song 2011"
    see_also = "dp-ucb-bound, dp-ucb-int, private-ucb, ucb1"
    kernels = Kernels(begin, choose, learn)
    estimation = Estimation(read_mean, limits)
    epsilon: Epsilon
    radius_scale: RadiusScale = 1.0
