"""DP-IMED: IMED for private sums (Azize, Wu, Honda, Orabona, Ito, Basu 2025)."""

from __future__ import annotations

import math
from typing import Any, ClassVar

from balaclava._core.kernels import kernel
from balaclava.estimators.kl import private_kl
from balaclava.frames.pools import (
    Pools,
    clipped_mean,
    must_choose,
    silent_arm,
)
from balaclava.policies.base import Kernels, register
from balaclava.policies.bounded.batched import (
    BatchRatio,
    GrowingBatchPolicy,
    begin,
    forget_growing,
    learn_growing,
    play_growing,
)
from balaclava.policies.shown import FROM_POOLS


@kernel(borrows=True)
def choose(params: Any, state: Pools, t: int, context: Any, rng: Any) -> tuple[int, int]:
    if must_choose(state):
        lead = state.lead[0]
        best = silent_arm(state)
        if best < 0:
            top, lowest = clipped_mean(state, lead), math.inf
            for arm in range(params.arms):
                if state.ready[arm] or arm == lead:
                    n = state.weights[arm]
                    mean = clipped_mean(state, arm)
                    index = n * private_kl(mean, top, params.epsilon) + math.log(n)
                    if index < lowest:
                        best, lowest = arm, index
        state.current[0] = best
    return play_growing(params, state, rng)


@register
class DPIMED(GrowingBatchPolicy):
    """IMED in growing batches, with a divergence that allows for the noise of privacy.

    The default for rewards in [0, 1]: the lowest regret of all policies here that protect the
    whole trajectory. Where a single bad run costs more than a good mean saves, take dp-klucb.

    An arm is played for a whole batch. After its m-th batch it has n_m = ceil(first_batch
    batch_ratio^(m-1)) pulls, and S_a grows by the sum of the batch + Lap(1/epsilon). With
    m_a = clip(S_a / n_a), the next batch goes to the arm with the lowest

        n_a d_eps(m_a, max of m) + log n_a,
        d_eps(x, y) = min over z between x and y of  epsilon |z - x| + kl(z, y).

    The paper's rule has first_batch = batch_ratio. With that, the noise of many short batches adds
    up, and a run may lock onto a wrong arm: at epsilon = 0.1, means 0.3, 0.35, ..., 0.7 and 10^6
    rounds, 28 % of 16,896 runs play the best arm in less than a quarter of the rounds with a ratio
    of 1.1, 5 % with 1.5 and 2 % with 2; with the defaults 0.05 %. `GrowingBatchPolicy` has the
    argument. Settings that lock are refused. Bad runs remain: of 67,584 with the defaults 0.4 %
    cost more than five times the median (1.4 % with arms .75 and four .7), at epsilon = 1 0.05 %
    and 0.2 % (`python benchmarks/recommended_default.py --device cuda`).

    Privacy:
        epsilon-differential privacy of the whole trajectory. Each reward enters the sum of one
        batch, of sensitivity 1, which is released once, with noise of scale 1/epsilon, and kept;
        everything else follows from what was released. A batch that the horizon cuts off
        releases nothing.

    Parameters:
        epsilon: privacy loss.
        batch_ratio: growth of an arm's pulls from batch to batch, above 1.
        first_batch: pulls in an arm's first batch, rounded up; 30/epsilon by default.

    Example:
        >>> import balaclava as bl
        >>> agent = bl.policy("dp-imed", arms=2, epsilon=5.0).agent(seed=1)
        >>> pulls = [0, 0]
        >>> for _ in range(1000):
        ...     decision = agent.ask()
        ...     agent.tell(decision, reward=(0.1, 0.9)[decision.arm])
        ...     pulls[decision.arm] += 1
        >>> pulls
        [6, 994]

    References:
        Azize, Wu, Honda, Orabona, Ito, Basu. Optimal regret of Bernoulli bandits under global
        differential privacy. 2025.

    See Also:
        dp-klucb, imed, dp-se
    """

    name = "dp-imed"
    reference = "Azize, Wu, Honda, Orabona, Ito, Basu 2025"
    kernels: ClassVar[Kernels] = Kernels(begin, choose, learn_growing, forget_growing)
    estimation = FROM_POOLS
    most_draws = 8
    batch_ratio: BatchRatio = 1.5
