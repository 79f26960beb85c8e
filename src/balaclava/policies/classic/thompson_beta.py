"""Thompson sampling with Beta posteriors (Agrawal, Goyal 2012, Algorithms 1 and 2)."""

from typing import Any

from balaclava._core.kernels import kernel
from balaclava.frames.tally import Tally, begin_tally, learn_tally
from balaclava.policies.base import BoundedPolicy, Kernels, register
from balaclava.policies.intervals import FROM_TALLY


@kernel(borrows=True)
def choose(params: Any, state: Tally, t: int, context: Any, rng: Any) -> tuple[int, int]:
    best, highest = 0, -1.0
    for arm in range(params.arms):
        successes = state.sums[arm]
        theta = rng.beta(successes + 1.0, state.pulls[arm] - successes + 1.0)
        if theta > highest:
            best, highest = arm, theta
    state.asked[best] += 1
    return best, 0


@kernel(borrows=True)
def learn(params: Any, state: Tally, t: int, arm: int, reward: float, phase: int, rng: Any) -> None:
    success = 1.0 if rng.random() < reward else 0.0
    learn_tally(params, state, t, arm, success, phase, rng)


@register
class ThompsonBeta(BoundedPolicy):
    """Play each arm with the posterior probability that it is best, under a uniform prior.

    Asymptotically optimal for rewards 0 and 1, and hard to beat there. Its random choices suit late
    rewards. Rewards between 0 and 1 become coin flips first, which raises its regret; kl-ucb and
    imed use them unchanged.

    Draw theta ~ Beta(S+1, F+1) for each arm with S successes and F failures and play the highest.
    A reward x counts as a success with probability x, otherwise as a failure.

    Example:
        >>> agent = bl.policy("thompson-beta", arms=2).agent(seed=0)
        >>> for _ in range(1000):
        ...     decision = agent.ask()
        ...     agent.tell(decision, reward=(0.2, 0.8)[decision.arm])
        >>> [each.decisions for each in agent.estimates()]
        [6, 994]
    """

    name = "thompson-beta"
    fixed_arms = ""
    reference = "Agrawal, Goyal 2012"
    see_also = "thompson-gauss, dp-ftpl-beta, lazy-dp-ts"
    kernels = Kernels(begin_tally, choose, learn)
    estimation = FROM_TALLY
