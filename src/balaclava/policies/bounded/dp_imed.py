"""DP-IMED: IMED for private sums (Azize, Wu, Honda, Orabona, Ito, Basu 2025)."""

import math
from collections.abc import Callable
from typing import Annotated, Any, Literal, Self

import numpy as np

from balaclava._core.declared import Range
from balaclava._core.kernels import kernel
from balaclava.estimators.kl import private_kl
from balaclava.estimators.noisy_kl import noisy_kl, noisy_surprisal
from balaclava.frames.pools import Pools, choose_in_batches, clipped_mean, needs_batch, open_batch
from balaclava.policies.base import Kernels, register
from balaclava.policies.bounded import batched
from balaclava.policies.intervals import FROM_BATCHES
from balaclava.policies.theorem_conditions import unit_gaps
from balaclava.theory.imed_regret import imed_pulls

Index = Literal["paper", "exact", "rechecking"]
Batching = Literal["ratio", "adaptive"]
# Values that saves of earlier versions hold, by parameter.
RENAMED_VALUES = {"index": {"careful": "rechecking"}, "batches": {"need": "adaptive"}}

# Found by experiment (`benchmarks/frontier.py`, table in `benchmarks/gpu.md`).
DOUBT = 12.4  # nats; below it, less the log of the price of a re-check, an arm is in doubt
SHORT = 12_000.0  # rounds; shorter runs do not pay for early re-checks
HASTE = 5.0  # nats per unit of log(t / SHORT) by which longer runs re-check arms earlier
# Nats that an adaptive batch takes the index beyond log t. Found by experiment with the above.
BATCH_MARGIN = 0.5
# Halvings in the search for a batch's length: its error is below 2^-12 of the arm's pulls.
BISECTIONS = 12


@kernel(borrows=True)
def paper_rate(params: Any, t: int, n: float, x: float, top: float, draws: int) -> float:
    """The paper's exponent, for one draw of noise in the sum."""
    return n * private_kl(min(max(x, 0.0), 1.0), top, params.epsilon)


@kernel(borrows=True)
def exact_rate(params: Any, t: int, n: float, x: float, top: float, draws: int) -> float:
    """The Chernoff exponent with all draws of noise."""
    return noisy_kl(n, x, top, params.epsilon, draws)


@kernel(borrows=True)
def rechecking_rate(params: Any, t: int, n: float, x: float, top: float, draws: int) -> float:
    """The paper's rate, or less while the arm is in doubt: then it is re-checked early.

    Re-checking an arm costs more as its pulls and the number of arms grow. Locking onto a wrong
    arm costs the rest of the run, which the length of the run so far predicts.
    """
    rate = paper_rate(params, t, n, x, top, draws)
    surprise = noisy_surprisal(n, x, top, params.epsilon, draws)
    price = max(params.arms - 1.0, 1.0) * n * params.epsilon / (1.0 + params.epsilon)
    if surprise < DOUBT - math.log(price):
        return max(min(rate, surprise) - HASTE * math.log(max(t / SHORT, 1.0)), 0.0)
    return rate


def _kernels(rate: Callable[..., Any], adaptive: bool) -> Kernels:

    @kernel(borrows=True)
    def pulls_needed(params: Any, state: Pools, arm: int, t: int) -> int:
        before, top = state.planned[arm], clipped_mean(state, state.lead[0])
        if state.weights[arm] == 0:
            # With late rewards batches double: otherwise rows for open batches run out.
            return max(before + math.ceil(params.first_batch), math.ceil(2.0 * before))
        x, draws = state.means[arm], state.draws[arm] + 1
        low = min(params.batch_ratio * before, 2.0**53)
        high = min(max(batched.MOST_GROWTH * before, low), 2.0**53)
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
    def best_arm(params: Any, state: Pools, t: int) -> int:
        best, lead, lowest = -1, state.lead[0], math.inf
        top = clipped_mean(state, lead)
        for arm in range(params.arms):
            if state.ready[arm] or arm == lead:
                n, x, draws = state.weights[arm], state.means[arm], state.draws[arm]
                index = rate(params, t, n, x, top, draws) + math.log(n)
                if index < lowest:
                    best, lowest = arm, index
        return best

    @kernel(borrows=True)
    def adapt_batch(params: Any, state: Pools, arm: int, t: int) -> None:
        if needs_batch(state, arm):
            open_batch(state, arm, pulls_needed(params, state, arm, t) - state.planned[arm])

    choose = choose_in_batches(best_arm, adapt_batch if adaptive else batched.grow_pulls)
    return Kernels(batched.begin, choose, batched.learn_growing, batched.forget_growing)


RATE_KERNELS = {"paper": paper_rate, "exact": exact_rate, "rechecking": rechecking_rate}
_KERNELS = {
    (index, batches): _kernels(rate, batches == "adaptive")
    for index, rate in RATE_KERNELS.items()
    for batches in ("ratio", "adaptive")
}
# Pulls in the first batch times epsilon, and the ratio, found by experiment as above.
_BATCHES = {"ratio": (30.0, 1.5), "adaptive": (40.0, 1.25)}


@register
class DPIMED(batched.GrowingBatchPolicy):
    r"""IMED in growing batches, with a divergence that allows for the noise of privacy.

    The default for rewards in [0, 1]. In most settings it has the lowest regret of all policies
    here that protect the whole trajectory, and few bad runs. In short runs and at a small epsilon
    dp-klucb may have less.

    An arm is played for a whole batch. S_a grows by the sum of the batch + Lap(1/epsilon). After m
    batches with n_a pulls let x_a = S_a / n_a and y = max of x. The next batch goes to the arm with
    the lowest

    .. math:: R_a + \log n_a,

    where R_a measures how unlikely x_a is if the arm's mean is y. In the paper

    .. math::
        R_a = n_a d_\varepsilon(x_a, y), \quad
        d_\varepsilon(x, y) = \min_{z \in [x, y]} \varepsilon |z - x| + \mathrm{kl}(z, y),

    which allows for one draw of noise, but the sum holds m. So the best arm may be in debt for the
    rest of the run (`GrowingBatchPolicy`). By default R_a is the paper's, but

    .. math:: \max\{\min\{Q_a, n_a d_\varepsilon(x_a, y)\} - 5 \log \max(t/12000, 1),\; 0\}

    while Q_a < 12.4 - log((arms - 1) n_a epsilon/(1 + epsilon)). Here Q_a = -log(2 P(x_a or less))
    for rewards of mean y and all m draws (`estimators.noisy_surprisal`). An arm is in doubt while
    Q_a is small. Re-checking it costs more as its pulls and the number of arms grow. Locking onto a
    wrong arm costs the rest of the run, so long runs re-check arms in doubt earlier. In short runs
    that would cost more than it saves. A batch is long enough for R_a + log n_a to pass log t + 0.5
    if x_a does not change. It multiplies the arm's pulls by 1.25 to 2.

    Q_a approximates a tail probability by a saddle point, to within 0.2 nats. The rule around it
    was found by experiment: no bound on the regret of the default is proved here. A bound is proved
    for index="exact", batches="ratio" and prompt rewards (`theory.imed_regret`). An arm's pulls
    over log T are in the limit at most batch_ratio times the least possible, for Bernoulli arms
    with a best mean below 1. R_a is then a Chernoff exponent (`estimators.noisy_kl`), and the pulls
    after each batch are fixed in advance. `regret_bound` holds for every T, and is wide.

    Privacy:
        epsilon-differential privacy of the whole trajectory. Each reward enters the sum of one
        batch, of sensitivity 1. The sum is released once, with noise of scale 1/epsilon, and kept.
        Everything else, the length of the next batch included, follows from released values. A
        batch that the horizon cuts off releases nothing.

    Parameters:
        batch_ratio: least growth of an arm's pulls from batch to batch, above 1; 1.25 by default,
            1.5 for batches="ratio".
        first_batch: pulls in an arm's first batch, rounded up; 40/epsilon by default, 30/epsilon
            for batches="ratio".
        index: "rechecking" as above; "paper", the paper's R_a, or "exact", the exponent, always.
        batches: "adaptive" as above. "ratio": after its m-th batch an arm has n_m =
            ceil(first_batch batch_ratio^(m-1)) pulls. The paper's rule is index="paper",
            batches="ratio", first_batch = batch_ratio; settings with which its index locks are
            refused.

    Example:
        >>> agent = bl.policy("dp-imed", arms=2, epsilon=5.0).agent(seed=1)
        >>> for _ in range(1000):
        ...     decision = agent.ask()
        ...     agent.tell(decision, reward=(0.1, 0.9)[decision.arm])
        >>> [each.decisions for each in agent.estimates()]
        [8, 992]

    See Also:
        dp-klucb, imed, dp-se
    """

    name = "dp-imed"
    reference = "Azize, Wu, Honda, Orabona, Ito, Basu 2025"
    estimation = FROM_BATCHES
    most_draws = 8
    batch_ratio: batched.BatchRatio | None = None
    index: Annotated[Index, Range(meaning="how the index allows for noise")] = "rechecking"
    batches: Annotated[Batching, Range(meaning="what sets the length of a batch")] = "adaptive"
    examples = (
        {},
        {"first_batch": 6},
        {"index": "paper", "batches": "ratio"},
    )

    @classmethod
    def create(cls, parameters: dict[str, Any]) -> Self:
        """Accept also the values that earlier versions saved under other names."""
        renamed = {
            name: RENAMED_VALUES[name].get(value, value)
            for name, value in parameters.items()
            if name in RENAMED_VALUES and isinstance(value, str)
        }
        return super().create(parameters | renamed)

    @property
    def kernels(self) -> Kernels:  # type: ignore[override]
        return _KERNELS[self.index, self.batches]

    @property
    def may_lock(self) -> bool:  # type: ignore[override]
        """Whether the index allows for one draw of noise alone."""
        return self.index == "paper"

    def proved_bound(self, environment: Any, horizon: int) -> float | None:
        """The theorem of `theory.imed_regret`, for index="exact" and batches="ratio"."""
        scaled = unit_gaps(self, environment)
        if (self.index, self.batches) != ("exact", "ratio") or scaled is None:
            return None
        sizes = self.sizes(horizon)
        if sizes[-1] < horizon:
            return None  # batches grow too slowly to be listed
        gaps, width = scaled
        best = float(np.max(environment.means) - self.reward_range[0]) / width
        return width * sum(
            gap * imed_pulls(best - gap, best, sizes, horizon, self.epsilon)
            for gap in gaps[gaps > 0.0].tolist()
        )

    @property
    def usual_batches(self) -> tuple[float, float]:  # type: ignore[override]
        """Adaptive batches start longer and may grow more slowly."""
        return _BATCHES[self.batches]
