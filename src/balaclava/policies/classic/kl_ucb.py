"""KL-UCB (Garivier, Cappé 2011, Algorithm 1)."""

import math
from typing import Annotated, Any

from balaclava._core.declared import Range
from balaclava._core.kernels import kernel
from balaclava.estimators.kl import kl_exceeds, kl_upper
from balaclava.frames.tally import Tally, begin_tally, learn_tally, unknown_arm
from balaclava.policies.base import BoundedPolicy, Kernels, register
from balaclava.policies.intervals import FROM_TALLY

Exploration = Annotated[float, Range(0, meaning="weight of log log t in the confidence level")]


@kernel(borrows=True)
def choose(params: Any, state: Tally, t: int, context: Any, rng: Any) -> tuple[int, int]:
    best = unknown_arm(state)
    if best < 0:
        level = math.log(t)
        if params.c > 0.0:
            level += params.c * math.log(max(level, 1.0))  # log log t is not positive for t < 3
        best = highest_index(state, level)
    state.asked[best] += 1
    return best, 0


@kernel(borrows=True)
def highest_index(state: Any, level: float) -> int:
    """The first arm with the highest index.

    Start from the arm pulled most often, and find a root only for arms that kl(mean, highest) does
    not rule out. The result is the same as with all roots.
    """
    best = 0
    for arm in range(state.pulls.size):
        if state.pulls[arm] > state.pulls[best]:
            best = arm
    first, n = best, state.pulls[best]
    highest = kl_upper(state.sums[best] / n, level / n)
    for arm in range(state.pulls.size):
        n = state.pulls[arm]
        mean = state.sums[arm] / n
        # The margin is far above the error of a root, so a tied arm is not ruled out.
        if arm == first or (mean < highest and kl_exceeds(mean, highest, 1.000001 * level / n)):
            continue
        index = kl_upper(mean, level / n)
        if index > highest or (index == highest and arm < best):
            best, highest = arm, index
    return best


@register
class KLUCB(BoundedPolicy):
    r"""Play the arm whose mean could be highest, by the exact confidence bound of 0/1 rewards.

    The best of the optimistic policies on rewards in [0, 1], and asymptotically optimal when they
    are 0 or 1; imed matches it at less cost. For unbounded rewards use ucb1 or robust-ucb.

    After one pull of each arm, play the arm with the highest

    .. math:: \max\{q : n_a\, \mathrm{kl}(m_a, q) \le \log t + c \log \log t\},

    m_a the mean of its n_a rewards.

    Parameters:
        c: 3 in the proofs; 0 by default, since more exploration costs more than it saves.

    Example:
        >>> agent = bl.policy("kl-ucb", arms=2).agent(seed=0)
        >>> for _ in range(1000):
        ...     decision = agent.ask()
        ...     agent.tell(decision, reward=(0.2, 0.8)[decision.arm])
        >>> [each.decisions for each in agent.estimates()]
        [7, 993]
    """

    name = "kl-ucb"
    fixed_arms = ""
    reference = "Garivier, Cappé 2011"
    see_also = "imed, ucb1, adap-klucb, dp-klucb"
    kernels = Kernels(begin_tally, choose, learn_tally)
    estimation = FROM_TALLY
    examples = ({}, {"c": 3.0})
    c: Exploration = 0.0
