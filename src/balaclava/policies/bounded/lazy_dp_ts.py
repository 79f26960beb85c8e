"""Lazy-DP-TS: Thompson sampling on lazily released means (Hu and Hegde 2022)."""

import math
from typing import Any

from balaclava._core.kernels import kernel
from balaclava.frames.pools import Pools, arm_without_rewards
from balaclava.policies.base import Kernels, register
from balaclava.policies.bounded import batched


@kernel(borrows=True)
def choose(params: Any, state: Pools, t: int, context: Any, rng: Any) -> tuple[int, int]:
    if not state.first_pulls[0]:
        lead = state.lead[0]
        offset = batched.noise_reach(params, 3.0 * math.log(t)) / params.epsilon
        best = arm_without_rewards(state)
        if best < 0:
            highest = -1.0
            for arm in range(params.arms):
                if state.ready[arm] or arm == lead:
                    pulls = float(state.weights[arm])
                    successes = min(max(state.means[arm] * pulls + offset, 0.0), pulls)
                    theta = rng.beta(successes + 1.0, pulls - successes + 1.0)
                    if best < 0 or theta > highest:
                        best, highest = arm, theta
        state.current[0] = best
    return batched.play_lazily(params, state, rng)


@register
class LazyDPTS(batched.ReleasedBatchPolicy):
    r"""Thompson sampling on an arm's rewards, released one private batch at a time.

    It chooses in every round, so it spreads its pulls and handles late rewards well, and it needs
    no horizon. One Beta draw per arm and round makes it slow with many arms. It discards all but an
    arm's last batch: for low regret prefer dp-imed.

    An arm's r-th batch has O = 2^r rewards, r = 0, 1, ... When it is full, m_a is its mean plus
    Lap(1/(epsilon O)), and the rewards are discarded. In every round draw

    .. math:: \theta_a \sim \mathrm{Beta}(c_a O_a + 1, (1 - c_a) O_a + 1),

    .. math:: c_a = \mathrm{clip}(m_a + 3 \log t / (\varepsilon O_a))

    and play the highest; clip moves into [0, 1]. Rewards between 0 and 1 are used unchanged.

    Example:
        >>> agent = bl.policy("lazy-dp-ts", arms=2, epsilon=5.0).agent(seed=1)
        >>> for _ in range(1000):
        ...     decision = agent.ask()
        ...     agent.tell(decision, reward=(0.1, 0.9)[decision.arm])
        >>> [each.decisions for each in agent.estimates()]
        [17, 983]
    """

    name = "lazy-dp-ts"
    reference = "Hu, Hegde 2022"
    see_also = "lazy-dp-ucb, dp-imed, thompson-beta"
    kernels = Kernels(batched.begin, choose, batched.learn_alone, batched.forget_alone)

    def propensity(self, state: Any, arm: int) -> None:
        """None: the chance that an arm's Beta draw is the largest has no closed form."""
        return None
