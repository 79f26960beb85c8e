"""Lazy-DP-UCB: UCB on lazily released means (Hu, Huang, Mehta 2021, Anytime-Lazy-UCB)."""

import math
from typing import Any

from balaclava._core.declared import RadiusScale
from balaclava._core.kernels import kernel
from balaclava.frames.pools import Pools, arm_without_rewards
from balaclava.policies.base import Kernels, register
from balaclava.policies.bounded import batched


@kernel(borrows=True)
def choose(params: Any, state: Pools, t: int, context: Any, rng: Any) -> tuple[int, int]:
    if not state.first_pulls[0]:
        lead, log_term = state.lead[0], 3.0 * math.log(t)
        best = arm_without_rewards(state)
        if best < 0:
            sampling = params.radius_scale * math.sqrt(log_term)
            noise = params.radius_scale * batched.noise_reach(params, log_term) / params.epsilon
            highest = -math.inf
            for arm in range(params.arms):
                if state.ready[arm] or arm == lead:
                    spread = state.spreads[arm]  # 1/sqrt(O), kept to spare a root
                    index = state.means[arm] + (sampling + noise * spread) * spread
                    if best < 0 or index > highest:
                        best, highest = arm, index
        state.current[0] = best
    return batched.play_lazily(params, state, rng)


@register
class LazyDPUCB(batched.ReleasedBatchPolicy):
    r"""UCB on an arm's rewards, released one private batch at a time.

    It needs no horizon, and its regret has the best possible order. It chooses in every round, so
    it handles late rewards well. But it explores for the worst case and discards all but an arm's
    last batch: for low regret prefer dp-imed.

    An arm's r-th batch has O = 2^r rewards, r = 0, 1, ... When it is full, m_a is its mean plus
    Lap(1/(epsilon O)), and the rewards are discarded. In every round play the arm with the largest

    .. math:: m_a + \sqrt{3 \log t / O_a} + 3 \log t / (\varepsilon O_a).

    Example:
        >>> agent = bl.policy("lazy-dp-ucb", arms=2, epsilon=5.0).agent(seed=1)
        >>> for _ in range(1000):
        ...     decision = agent.ask()
        ...     agent.tell(decision, reward=(0.1, 0.9)[decision.arm])
        >>> [each.decisions for each in agent.estimates()]
        [63, 937]
    """

    name = "lazy-dp-ucb"
    reference = "Hu, Huang, Mehta 2021"
    see_also = "lazy-dp-ts, adap-ucb, dp-imed"
    kernels = Kernels(batched.begin, choose, batched.learn_alone, batched.forget_alone)
    radius_scale: RadiusScale = 1.0
