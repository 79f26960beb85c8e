"""DP-IMED: IMED for private sums (Azize, Wu, Honda, Orabona, Ito, Basu 2025)."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Annotated, Any, ClassVar, Literal

from balaclava._core.declared import Range
from balaclava._core.kernels import kernel
from balaclava.estimators.kl import private_kl
from balaclava.estimators.noisy_kl import noisy_kl
from balaclava.frames.pools import (
    Pools,
    clipped_mean,
    hand_out,
    must_choose,
    needs_batch,
    next_arm,
    open_batch,
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

Index = Literal["paper", "exact", "careful"]
Batching = Literal["ratio", "need"]

SURE = 6.0  # nats of the exact rate that noise gives once in exp(6) runs
MOST_GROWTH = 4.0  # of an arm's pulls by a batch that is sized by need
AHEAD = 1.0  # nats that such a batch goes beyond log t
_HALVINGS = 12


@kernel(borrows=True)
def paper_rate(n: float, x: float, top: float, epsilon: float, draws: int) -> float:
    """As if there were one draw of noise in the sum."""
    return n * private_kl(min(max(x, 0.0), 1.0), top, epsilon)


@kernel(borrows=True)
def careful_rate(n: float, x: float, top: float, epsilon: float, draws: int) -> float:
    """The exact rate, and from SURE on that of the paper."""
    rate = noisy_kl(n, x, top, epsilon, draws)
    return rate if rate < SURE else paper_rate(n, x, top, epsilon, draws)


def _kernels(rate: Callable[..., Any], by_need: bool) -> Kernels:
    """The policy with a rate and a way to size batches."""

    @kernel(borrows=True)
    def pulls_needed(params: Any, state: Pools, arm: int, t: int) -> int:
        before, top = state.planned[arm], clipped_mean(state, state.lead[0])
        if state.weights[arm] == 0:
            return before + math.ceil(params.first_batch)
        x, draws = state.means[arm], state.draws[arm] + 1
        low = min(params.batch_ratio * before, 2.0**53)
        high = min(max(MOST_GROWTH * before, low), 2.0**53)
        if x >= top:
            high = max(2.0 * before, low)
        for _ in range(_HALVINGS if x < top else 0):
            middle = 0.5 * (low + high)
            index = rate(middle, x, top, params.epsilon, draws) + math.log(middle)
            if index < math.log(t) + AHEAD:
                low = middle
            else:
                high = middle
        return max(math.ceil(high), before + 1)

    @kernel(borrows=True)
    def choose(params: Any, state: Pools, t: int, context: Any, rng: Any) -> tuple[int, int]:
        if must_choose(state):
            lead = state.lead[0]
            best = silent_arm(state)
            if best < 0:
                top, lowest = clipped_mean(state, lead), math.inf
                for arm in range(params.arms):
                    if state.ready[arm] or arm == lead:
                        n, x, draws = state.weights[arm], state.means[arm], state.draws[arm]
                        index = rate(n, x, top, params.epsilon, draws) + math.log(n)
                        if index < lowest:
                            best, lowest = arm, index
            state.current[0] = best
        if not by_need:
            return play_growing(params, state, rng)
        arm = next_arm(params, state, rng)
        if needs_batch(state, arm):
            open_batch(state, arm, pulls_needed(params, state, arm, t) - state.planned[arm])
        return hand_out(state, arm)

    return Kernels(begin, choose, learn_growing, forget_growing)


_RATES = {"paper": paper_rate, "exact": noisy_kl, "careful": careful_rate}
_KERNELS = {
    (index, batches): _kernels(rate, batches == "need")
    for index, rate in _RATES.items()
    for batches in ("ratio", "need")
}


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
        index: "paper" as above. "exact" allows for every draw of noise in S_a, whatever the
            batches are, by the rate of `estimators.noisy_kl` in the place of n_a d_eps. "careful"
            does so where that is below 6 nats and takes the paper's where it is more.
        batches: "ratio" as above. "need": a batch is as long as the arm's index needs, if its mean
            stays as it is, to pass log t + 1, and multiplies its pulls by batch_ratio to 4.

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
    estimation = FROM_POOLS
    most_draws = 8
    batch_ratio: BatchRatio = 1.5
    index: Annotated[Index, Range(meaning="draws of noise that it allows for")] = "paper"
    batches: Annotated[Batching, Range(meaning="what sets the length of a batch")] = "ratio"
    examples: ClassVar[tuple[dict[str, Any], ...]] = (
        {},
        {"index": "careful", "batches": "need", "batch_ratio": 1.25, "first_batch": 6},
    )

    @property
    def kernels(self) -> Kernels:  # type: ignore[override]
        """The functions for the index and the batches."""
        return _KERNELS[self.index, self.batches]

    @property
    def may_lock(self) -> bool:  # type: ignore[override]
        """The exact rate allows for any number of draws."""
        return self.index == "paper"
