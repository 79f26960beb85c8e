"""DP-IMED: IMED for private sums (Azize, Wu, Honda, Orabona, Ito, Basu 2025)."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Annotated, Any, ClassVar, Literal

import numpy as np

from balaclava._core.declared import Range
from balaclava._core.kernels import kernel
from balaclava.estimators.kl import private_kl
from balaclava.estimators.noisy_kl import noisy_kl, noisy_surprise
from balaclava.frames.pools import (
    Pools,
    clipped_mean,
    go_on,
    goes_on,
    hand_out_batch,
    must_choose,
    needs_batch,
    next_arm,
    open_batch,
    silent_arm,
)
from balaclava.policies.base import Kernels, register
from balaclava.policies.bounded._gaps import unit_gaps
from balaclava.policies.bounded.batched import (
    BatchRatio,
    GrowingBatchPolicy,
    begin,
    forget_growing,
    learn_growing,
    play_growing,
)
from balaclava.policies.intervals import FROM_POOLS
from balaclava.theory.imed import imed_pulls

Index = Literal["paper", "exact", "careful"]
Batching = Literal["ratio", "need"]

DOUBT = 12.4  # nats: an arm is in doubt below this, less log((arms - 1) n epsilon/(1 + epsilon))
SHORT = 12_000.0  # rounds that do not pay for looking at arms in doubt earlier than they are due
HASTE = 5.0  # nats, of log(t / SHORT), by which such arms are due earlier in longer runs
MOST_GROWTH = 2.0  # of an arm's pulls by a batch that is sized by need
BATCH_MARGIN = 0.5  # nats that such a batch goes beyond log t
BISECTIONS = 12


@kernel(borrows=True)
def paper_rate(params: Any, t: int, n: float, x: float, top: float, draws: int) -> float:
    """As if there were one draw of noise in the sum."""
    return n * private_kl(min(max(x, 0.0), 1.0), top, params.epsilon)


@kernel(borrows=True)
def exact_rate(params: Any, t: int, n: float, x: float, top: float, draws: int) -> float:
    """With all draws of noise."""
    return noisy_kl(n, x, top, params.epsilon, draws)


@kernel(borrows=True)
def careful_rate(params: Any, t: int, n: float, x: float, top: float, draws: int) -> float:
    """The paper's; while the arm is in doubt the surprise, if that is less, and less with time.

    To look at an arm again costs the more the more pulls it has, and is paid for each arm but the
    best, while locking onto a wrong arm is paid once: doubt falls with pulls and arms. Locking
    costs the rest of the run, which is the longer the longer the run has been.
    """
    rate = paper_rate(params, t, n, x, top, draws)
    surprise = noisy_surprise(n, x, top, params.epsilon, draws)
    price = max(params.arms - 1.0, 1.0) * n * params.epsilon / (1.0 + params.epsilon)
    if surprise < DOUBT - math.log(price):
        return max(min(rate, surprise) - HASTE * math.log(max(t / SHORT, 1.0)), 0.0)
    return rate


def _kernels(rate: Callable[..., Any], by_need: bool) -> Kernels:
    """The policy with a rate and a way to size batches."""

    @kernel(borrows=True)
    def pulls_needed(params: Any, state: Pools, arm: int, t: int) -> int:
        before, top = state.planned[arm], clipped_mean(state, state.lead[0])
        if state.weights[arm] == 0:
            # Where rewards are late, batches double: rows for those under way would run out.
            return max(before + math.ceil(params.first_batch), math.ceil(2.0 * before))
        x, draws = state.means[arm], state.draws[arm] + 1
        low = min(params.batch_ratio * before, 2.0**53)
        high = min(max(MOST_GROWTH * before, low), 2.0**53)
        if x >= top:
            high = max(2.0 * before, low)
        for _ in range(BISECTIONS if x < top else 0):
            middle = 0.5 * (low + high)
            index = rate(params, t, middle, x, top, draws) + math.log(middle)
            if index < math.log(t) + BATCH_MARGIN:
                low = middle
            else:
                high = middle
        return max(math.ceil(high), before + 1)

    @kernel(borrows=True)
    def choose(params: Any, state: Pools, t: int, context: Any, rng: Any) -> tuple[int, int]:
        if goes_on(state):
            return go_on(state)
        if must_choose(state):
            lead = state.lead[0]
            best = silent_arm(state)
            if best < 0:
                top, lowest = clipped_mean(state, lead), math.inf
                for arm in range(params.arms):
                    if state.ready[arm] or arm == lead:
                        n, x, draws = state.weights[arm], state.means[arm], state.draws[arm]
                        index = rate(params, t, n, x, top, draws) + math.log(n)
                        if index < lowest:
                            best, lowest = arm, index
            state.current[0] = best
        if not by_need:
            return play_growing(params, state, rng)
        arm = next_arm(params, state, rng)
        if needs_batch(state, arm):
            open_batch(state, arm, pulls_needed(params, state, arm, t) - state.planned[arm])
        return hand_out_batch(state, arm)

    return Kernels(begin, choose, learn_growing, forget_growing)


RATE_KERNELS = {"paper": paper_rate, "exact": exact_rate, "careful": careful_rate}
_KERNELS = {
    (index, batches): _kernels(rate, batches == "need")
    for index, rate in RATE_KERNELS.items()
    for batches in ("ratio", "need")
}
_BATCHES = {"ratio": (30.0, 1.5), "need": (40.0, 1.25)}  # first times epsilon, ratio


@register
class DPIMED(GrowingBatchPolicy):
    """IMED in growing batches, with a divergence that allows for the noise of privacy.

    The default for rewards in [0, 1]: in most settings the lowest regret of all policies here that
    protect the whole trajectory, and few bad runs. In short runs and at a small epsilon dp-klucb
    may have less (`benchmarks/short_trials.py`).

    An arm is played for a whole batch. S_a grows by the sum of the batch + Lap(1/epsilon); after m
    batches with n_a pulls, x_a = S_a / n_a and y = max of x, the next batch goes to the arm with
    the lowest

        R_a + log n_a,

    where R_a says how unlikely x_a is if the arm's mean is y. The paper's R_a = n_a d_eps(x_a, y),
    d_eps(x, y) = min over z between x and y of epsilon |z - x| + kl(z, y), allows for one draw of
    noise; the sum holds m. Its best arm may be so far in debt that it is not played again for the
    rest of the run (`GrowingBatchPolicy`). By default R_a is the paper's, but

        min(Q_a, n_a d_eps(x_a, y)) - 5 log max(t/12000, 1), at least 0,
            while Q_a < 12.4 - log((arms - 1) n_a epsilon/(1 + epsilon)),

    with Q_a = -log(2 P(x_a or less)) for rewards of mean y and all m draws
    (`estimators.noisy_surprise`). An arm is in doubt while Q_a is small. To look at it again costs
    the more the more pulls and arms there are; to have locked onto a wrong arm costs the rest of
    the run, so arms in doubt are looked at earlier in long runs, and not in short ones, which could
    not pay for it. A batch is as long as it takes, if x_a stays as it is, for R_a + log n_a to pass
    log t + 0.5, and multiplies the arm's pulls by 1.25 to 2.

    In 10^6 rounds on six problems with 5 to 101 arms, at most 4 runs in 10,000 cost more than five
    times the median of the paper's rule with long first batches at epsilon 3, 1, 0.3 and 0.1; that
    rule has up to 5, 16, 77 and 156. Its mean is at most 0.92, 1.03, 1.22 and 1.25 times that
    rule's, and mostly below it on the problems where that rule locks. Over 20,000 rounds it is up
    to 1.08, 1.18, 1.36 and 1.42 times. With two or three arms five medians are little, and lost
    before 12,000 rounds in up to 38 runs in 10,000 (`benchmarks/frontier.py`, `benchmarks/gpu.md`).

    Q_a is an approximation (of a tail, by a saddle point, to 0.2), and the rule around it was found
    by experiment: no bound on the regret of the default is proved here. What is proved is for
    index="exact", batches="ratio" and rewards that come at once: pulls of an arm over log T are in
    the limit at most batch_ratio times the least that is possible (`theory.imed`). R_a is a
    Chernoff exponent then (`estimators.noisy_kl`), and pulls after each batch are fixed in advance.
    `regret_bound` holds for every T, and is wide: nine arms of means .3 to .7 lose at most 4,626 in
    10^6 rounds at epsilon 1 by the theorem, and 318 ± 5 on average in 400 runs.

    Privacy:
        epsilon-differential privacy of the whole trajectory. Each reward enters the sum of one
        batch, of sensitivity 1, which is released once, with noise of scale 1/epsilon, and kept;
        everything else, the length of the next batch too, follows from what was released. A batch
        that the horizon cuts off releases nothing.

    Parameters:
        epsilon: privacy loss.
        batch_ratio: least growth of an arm's pulls from batch to batch, above 1; 1.25 by default,
            1.5 for batches by ratio.
        first_batch: pulls in an arm's first batch, rounded up; 40/epsilon by default, 30/epsilon
            for batches by ratio.
        index: "careful" as above; "paper", the paper's R_a, and "exact", the exponent, throughout.
        batches: "need" as above. "ratio": after its m-th batch an arm has n_m = ceil(first_batch
            batch_ratio^(m-1)) pulls. The paper's rule is index="paper", batches="ratio",
            first_batch = batch_ratio; settings with which its index locks are refused.

    Example:
        >>> import balaclava as bl
        >>> agent = bl.policy("dp-imed", arms=2, epsilon=5.0).agent(seed=1)
        >>> pulls = [0, 0]
        >>> for _ in range(1000):
        ...     decision = agent.ask()
        ...     agent.tell(decision, reward=(0.1, 0.9)[decision.arm])
        ...     pulls[decision.arm] += 1
        >>> pulls
        [8, 992]

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
    batch_ratio: BatchRatio | None = None
    index: Annotated[Index, Range(meaning="draws of noise that it allows for")] = "careful"
    batches: Annotated[Batching, Range(meaning="what sets the length of a batch")] = "need"
    examples: ClassVar[tuple[dict[str, Any], ...]] = (
        {},
        {"first_batch": 6},
        {"index": "paper", "batches": "ratio"},
    )

    @property
    def kernels(self) -> Kernels:  # type: ignore[override]
        """The functions for the index and the batches."""
        return _KERNELS[self.index, self.batches]

    @property
    def may_lock(self) -> bool:  # type: ignore[override]
        """The exact rate allows for any number of draws."""
        return self.index == "paper"

    def proved_bound(self, environment: Any, horizon: int) -> float | None:
        """The theorem of `theory.imed`, for the exact index and sizes that are fixed in advance."""
        scaled = unit_gaps(self, environment)
        if (self.index, self.batches) != ("exact", "ratio") or scaled is None:
            return None
        sizes = self.sizes(horizon)
        if sizes[-1] < horizon:
            return None  # batches grow so slowly that they are not counted
        gaps, width = scaled
        best = float(np.max(environment.means) - self.reward_range[0]) / width
        return width * sum(
            gap * imed_pulls(best - gap, best, sizes, horizon, self.epsilon)
            for gap in gaps[gaps > 0.0].tolist()
        )

    @property
    def usual_batches(self) -> tuple[float, float]:  # type: ignore[override]
        """By need, the first batch is longer, and later ones may be shorter."""
        return _BATCHES[self.batches]
