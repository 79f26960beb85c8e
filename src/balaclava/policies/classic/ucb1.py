"""UCB1 (Auer, Cesa-Bianchi, Fischer 2002, Figure 1)."""

from __future__ import annotations

import math
from typing import Any, ClassVar

from balaclava._declared import RadiusScale
from balaclava._kernel import kernel
from balaclava.estimation.tally import Tally, begin_tally, learn_tally, unknown_arm
from balaclava.policies.base import Kernels, Policy, register


@kernel
def choose(params: Any, state: Tally, t: int, context: Any, rng: Any) -> tuple[int, int]:
    best = unknown_arm(state)
    if best < 0:
        bonus = 2.0 * math.log(t)
        highest = -math.inf
        for arm in range(params.arms):
            n = state.pulls[arm]
            index = state.sums[arm] / n + params.radius_scale * math.sqrt(bonus / n)
            if index > highest:
                best, highest = arm, index
    state.asked[best] += 1
    return best, 0


@register
class UCB1(Policy):
    """Play the arm whose mean could be highest: mean + sqrt(2 log t / n).

    The yardstick that everyone knows. Its bonus is right for rewards in [0, 1] and for any
    1-sub-Gaussian reward; for other scales set `radius_scale`. kl-ucb and imed are better on
    rewards in [0, 1].

    Example:
        >>> import balaclava as bl
        >>> agent = bl.policy("ucb1", arms=2).agent(seed=0)
        >>> for _ in range(100):
        ...     decision = agent.ask()
        ...     agent.tell(decision, reward=float(decision.arm))
        >>> agent.ask().arm
        1

    See Also:
        kl-ucb, imed, thompson-beta
    """

    name = "ucb1"
    reference = "Auer, Cesa-Bianchi, Fischer 2002"
    kernels: ClassVar[Kernels] = Kernels(begin_tally, choose, learn_tally)
    radius_scale: RadiusScale = 1.0

    def regret_bound(self, environment: Any, horizon: int) -> float | None:
        """Theorem 1: sum of 8 log T / gap, plus (1 + pi^2/3) times the sum of gaps."""
        low, high = environment.reward_range
        if self.radius_scale != 1.0 or low < 0.0 or high > 1.0:
            return None
        gaps = environment.gaps[environment.gaps > 0]
        return float((8 * math.log(horizon) / gaps + (1 + math.pi**2 / 3) * gaps).sum())
