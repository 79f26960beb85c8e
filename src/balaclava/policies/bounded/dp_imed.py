"""DP-IMED: IMED for private sums (Azize, Wu, Honda, Orabona, Ito, Basu 2025)."""

import dataclasses
import math
from collections.abc import Callable
from typing import Annotated, Any, Literal, Self

import numpy as np

from balaclava._core.declared import Delta, Horizon, Range
from balaclava._core.kernels import kernel
from balaclava.estimators.gaussian_tail import gaussian_kl, gaussian_tail
from balaclava.estimators.kl import private_kl
from balaclava.estimators.noisy_kl import noisy_kl, noisy_surprisal, noisy_tail
from balaclava.frames.pools import Pools, choose_in_batches, clipped_mean, needs_batch, open_batch
from balaclava.policies.base import Estimation, Kernels, register
from balaclava.policies.bounded import batched, remembering
from balaclava.policies.intervals import FROM_GAUSSIAN_BATCHES
from balaclava.policies.theorem_conditions import unit_gaps
from balaclava.privacy.guarantee import Guarantee
from balaclava.privacy.mechanisms.analytic_gaussian import (
    gaussian_fault,
    gaussian_shift,
    released_deviation,
)
from balaclava.theory.imed_regret import ImedBound, imed_bound

Index = Literal["tail", "exact", "paper", "rechecking"]
Batching = Literal["ratio", "adaptive"]
Noise = Literal["laplace", "gaussian"]
PROVED = ("tail", "exact")  # indices with a clock and with a theorem
# Values that saves of earlier versions hold, by parameter.
RENAMED_VALUES = {"index": {"careful": "rechecking"}, "batches": {"need": "adaptive"}}

# The clock without a horizon: that of a trial of 20,000 rounds with four arms. 20,000 costs a
# tenth more over 20,000 rounds, and over 10^6 has a fifth fewer bad runs (docs/figures.md).
USUAL_CLOCK = 5_000.0
# First batches of all arms take at most this part of a known horizon.
FIRST_PART = 0.125


@kernel(borrows=True)
def paper_rate(params: Any, t: int, n: float, x: float, top: float, draws: int) -> float:
    """The paper's exponent, for one draw of noise in the sum."""
    return n * private_kl(min(max(x, 0.0), 1.0), top, params.epsilon)


@kernel(borrows=True)
def exact_rate(params: Any, t: int, n: float, x: float, top: float, draws: int) -> float:
    """The Chernoff exponent with all draws of noise, less what the clock allows."""
    return max(noisy_kl(n, x, top, params.epsilon, draws) - clock_nats(params, t), 0.0)


@kernel(borrows=True)
def tail_rate(params: Any, t: int, n: float, x: float, top: float, draws: int) -> float:
    """The bound on the tail probability, in nats, less what the clock allows."""
    return max(noisy_tail(n, x, top, params.epsilon, draws) - clock_nats(params, t), 0.0)


@kernel(borrows=True)
def gaussian_exact_rate(params: Any, t: int, n: float, x: float, top: float, draws: int) -> float:
    """As `exact_rate`, for Gaussian noise."""
    rate = gaussian_kl(n, x, top, params.deviation, draws)
    return max(rate - clock_nats(params, t), 0.0)


@kernel(borrows=True)
def gaussian_tail_rate(params: Any, t: int, n: float, x: float, top: float, draws: int) -> float:
    """As `tail_rate`, for Gaussian noise."""
    rate = gaussian_tail(n, x, top, params.deviation, draws)
    return max(rate - clock_nats(params, t), 0.0)


@kernel(borrows=True)
def clock_nats(params: Any, t: int) -> float:
    """Until round t has reached the clock H, the nats by which log t is below log H."""
    return math.log(max(params.horizon / t, 1.0))


@kernel(borrows=True)
def rechecking_rate(params: Any, t: int, n: float, x: float, top: float, draws: int) -> float:
    """The default of earlier versions, with constants found by experiment; nothing is proved.

    The paper's rate, or less while the arm is in doubt: then it is re-checked early.
    """
    rate = paper_rate(params, t, n, x, top, draws)
    surprise = noisy_surprisal(n, x, top, params.epsilon, draws)
    price = max(params.arms - 1.0, 1.0) * n * params.epsilon / (1.0 + params.epsilon)
    if surprise < 12.4 - math.log(price):
        return max(min(rate, surprise) - 5.0 * math.log(max(t / 12_000.0, 1.0)), 0.0)
    return rate


def _listed_pulls(rate: Callable[..., Any]) -> Callable[..., int]:
    """Make `pulls_needed`: an arm's pulls after its next batch, one of the listed sizes."""

    @kernel(borrows=True)
    def pulls_needed(params: Any, state: Pools, arm: int, t: int) -> int:
        """The least size that would take the arm's index to log t."""
        before, top = state.planned[arm], clipped_mean(state, state.lead[0])
        x, draws = state.means[arm], params.noises * (state.draws[arm] + 1)
        low = batched.size_number(params, before)
        high = batched.size_number(params, batched.MOST_GROWTH * before) - 1
        if x >= top:
            low = max(low, high)
        while low < high:
            middle = (low + high) // 2
            n = batched.numbered_size(params, middle)
            if rate(params, t, n, x, top, draws) + math.log(n) < math.log(t):
                low = middle + 1
            else:
                high = middle
        return max(batched.numbered_size(params, low), before + 1)

    return pulls_needed


def _earlier_pulls(rate: Callable[..., Any]) -> Callable[..., int]:
    """Make `pulls_needed` of earlier versions: of any size, half a nat beyond log t."""

    @kernel(borrows=True)
    def pulls_needed(params: Any, state: Pools, arm: int, t: int) -> int:
        before, top = state.planned[arm], clipped_mean(state, state.lead[0])
        x, draws = state.means[arm], params.noises * (state.draws[arm] + 1)
        low = min(params.batch_ratio * before, 2.0**53)
        high = min(max(batched.MOST_GROWTH * before, low), 2.0**53)
        for _ in range(12 if x < top else 0):
            middle = 0.5 * (low + high)
            if rate(params, t, middle, x, top, draws) + math.log(middle) < math.log(t) + 0.5:
                low = middle
            else:
                high = middle
        return max(math.ceil(high), before + 1)

    return pulls_needed


def _rules(
    rate: Callable[..., Any], adaptive: bool, pulls_of: Callable[..., Callable[..., int]]
) -> tuple[Callable[..., Any], ...]:
    """`best_arm`, and the kernels that open a batch: without a memory, and with one."""
    pulls_needed = pulls_of(rate)

    @kernel(borrows=True)
    def best_arm(params: Any, state: Pools, t: int) -> int:
        best, lead, lowest = -1, state.lead[0], math.inf
        top = clipped_mean(state, lead)
        for arm in range(params.arms):
            if state.ready[arm] or arm == lead:
                n, x = state.weights[arm], state.means[arm]
                draws = params.noises * state.draws[arm]
                index = rate(params, t, n, x, top, draws) + math.log(n)
                if index < lowest:
                    best, lowest = arm, index
        return best

    @kernel(borrows=True)
    def adapt_batch(params: Any, state: Pools, arm: int, t: int) -> None:
        if needs_batch(state, arm):
            before = state.planned[arm]
            if state.weights[arm] == 0:
                # With late rewards batches double: otherwise rows for open batches run out.
                after = max(before + math.ceil(params.first_batch), math.ceil(2.0 * before))
            else:
                after = pulls_needed(params, state, arm, t)
            open_batch(state, arm, after - before)

    if adaptive:
        return best_arm, adapt_batch, adapt_batch
    return best_arm, batched.grow_pulls


RATE_KERNELS = {
    "tail": tail_rate,
    "exact": exact_rate,
    "paper": paper_rate,
    "rechecking": rechecking_rate,
}
_KERNELS = {
    (index, batches): remembering.kernels_by_memory(
        *_rules(
            rate, batches == "adaptive", _earlier_pulls if index == "rechecking" else _listed_pulls
        )
    )
    for index, rate in RATE_KERNELS.items()
    for batches in ("ratio", "adaptive")
}


def _with_gaussian(rate: Callable[..., Any], adaptive: bool) -> Kernels:
    best_arm, prepare_batch, *_ = _rules(rate, adaptive, _listed_pulls)
    choose = choose_in_batches(best_arm, prepare_batch)
    return Kernels(batched.begin, choose, batched.learn_with_gaussian, batched.forget_with_gaussian)


_GAUSSIAN_KERNELS = {
    (index, batches): _with_gaussian(rate, batches == "adaptive")
    for index, rate in {"tail": gaussian_tail_rate, "exact": gaussian_exact_rate}.items()
    for batches in ("ratio", "adaptive")
}
# Pulls in the first batch times epsilon, and the ratio, found by experiment
# (`benchmarks/frontier.py`); flat: 30 and 1.25 move along the same curve of mean and bad runs.
_BATCHES = {"ratio": (30.0, 1.5), "adaptive": (40.0, 1.14)}
# A standard deviation of Gaussian noise counts as this much of a scale of Laplace noise there. By
# simulation: .25 to .5 differ by less than a fifth (`benchmarks/many_rewards.py`).
_GAUSSIAN_PULLS = 0.3


@register
class DPIMED(remembering.RememberingPolicy):
    r"""IMED in growing batches, with a divergence that allows for the noise of privacy.

    The default for rewards in [0, 1]. In most settings it has the lowest regret of all policies
    here that protect the whole trajectory, and few bad runs; fewer if it is given the horizon. In
    short runs and at a small epsilon dp-klucb may have less.

    An arm is played for a whole batch. S_a grows by the sum of the batch + Lap(1/epsilon). After m
    batches with n_a pulls let x_a = S_a / n_a and y = max of x. In round t the next batch goes to
    the arm with the lowest

    .. math:: \max\{R_a - \log \max(H/t, 1),\; 0\} + \log n_a,

    where exp(-R_a) bounds the probability of x_a or less if the arm's mean is y, with all m draws
    of noise (`estimators.noisy_tail`). H is a clock, horizon/arms: the rule is IMED's, played as if
    H rounds had passed already. Until round H an arm is tried while R_a is at most about
    log(horizon/(arms n_a)), the level of KL-UCB++ (Menard, Garivier 2017). A longer clock costs
    more at first, and makes it less likely that a wrong arm is played to the end: for fewer bad
    runs give a longer horizon, up to arms times the rounds (docs/figures.md). Without a horizon H
    is 5,000, that of four arms and 20,000 rounds.

    An arm's pulls after a batch are one of the sizes ceil(first_batch batch_ratio^j): the least one
    that would take its index to log t if x_a did not change, and at most twice its pulls.

    `regret_bound` and `tail_bound` are proved for these rewards if they arrive at once
    (`theory.imed_regret`), and wide. The paper's rate

    .. math::
        R_a = n_a d_\varepsilon(x_a, y), \quad
        d_\varepsilon(x, y) = \min_{z \in [x, y]} \varepsilon |z - x| + \mathrm{kl}(z, y),

    allows for one draw of noise, but the sum holds m. So the best arm may be in debt for the rest
    of the run (`GrowingBatchPolicy`).

    With noise="gaussian" sums have Gaussian noise for epsilon and delta. With one reward a
    participant Laplace noise is better. k rewards of a participant in k batches cost what a move
    sqrt(k) times as far does: `guarantee.for_rewards(k, apart=True)`, if at most one of a
    participant's decisions in a batch is learned from. With 25 rewards regret is then less than
    half of that with Laplace noise (docs/figures.md). Intervals are proved for both kinds of noise,
    bounds on regret for Laplace noise.

    Privacy:
        epsilon-differential privacy of the whole trajectory; (epsilon, delta) with Gaussian noise.
        Each reward enters the sum of one batch, of sensitivity 1. The sum is released once, with
        noise, and kept. Everything else, the length of the next batch included, follows from
        released values. A batch that the horizon cuts off releases nothing.

    Parameters:
        horizon: number of rounds planned, for the clock and the first batch; it may be exceeded.
        batch_ratio: ratio of successive sizes, above 1; 1.14 by default, 1.5 for batches="ratio".
        first_batch: pulls in an arm's first batch, rounded up; by default 40/epsilon, 30/epsilon
            for batches="ratio", and at most horizon/(8 arms).
        index: "tail" as above. "exact": R_a is the Chernoff exponent (`estimators.noisy_kl`), with
            a bound of lower order beyond the first. "paper": the paper's R_a, without a clock.
            "rechecking": the default of earlier versions, found by experiment, without a clock;
            nothing is proved for the last two.
        batches: "adaptive" as above. "ratio": after its m-th batch an arm has n_m =
            ceil(first_batch batch_ratio^(m-1)) pulls. The paper's rule is index="paper",
            batches="ratio", first_batch = batch_ratio; settings with which its index locks are
            refused.
        noise: "laplace" (scale 1/epsilon), or "gaussian".
        delta: of Gaussian noise, above 0.

    Example:
        >>> agent = bl.policy("dp-imed", arms=2, epsilon=5.0).agent(seed=1)
        >>> for _ in range(1000):
        ...     decision = agent.ask()
        ...     agent.tell(decision, reward=(0.1, 0.9)[decision.arm])
        >>> [each.decisions for each in agent.estimates()]
        [8, 992]
    """

    name = "dp-imed"
    reference = "Azize, Wu, Honda, Orabona, Ito, Basu 2025"
    see_also = "dp-klucb, imed, dp-se"
    derived_constants = ("noises", "deviation")
    most_draws = 8
    plays_beyond_horizon = True
    horizon: Horizon | None = None
    batch_ratio: batched.BatchRatio | None = None
    index: Annotated[Index, Range(meaning="how the index allows for noise")] = "tail"
    batches: Annotated[Batching, Range(meaning="what sets the length of a batch")] = "adaptive"
    noise: Annotated[Noise, Range(meaning="the noise of released sums")] = "laplace"
    delta: Delta = 0.0
    examples = (
        {},
        {"first_batch": 6},
        {"index": "paper", "batches": "ratio"},
        {"memory": "detect", "first_batch": 6},
        {"noise": "gaussian", "delta": 1e-3, "first_batch": 6},
        {"trust": "split", "first_batch": 6},
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.noise == "laplace":
            if self.delta > 0.0:
                raise self.refuse("delta", 'needs noise="gaussian"; Laplace noise keeps delta = 0')
            return
        if self.delta == 0.0:
            raise self.refuse("delta", 'must be above 0 for noise="gaussian"; such as 1e-6')
        if self.index not in PROVED:
            raise self.refuse("index", 'is for Laplace noise; use "tail" or "exact"')
        if self.memory is not None:
            raise self.refuse(
                "memory", 'is for Laplace noise; leave it out, or use noise="laplace"'
            )
        if self.trust == "split":
            raise self.refuse("trust", 'is for Laplace noise; use noise="laplace"')
        if fault := gaussian_fault(self.epsilon, self.delta, 1):
            raise self.refuse("epsilon", fault)

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
    def by_memory(self) -> remembering.KernelsByMemory:  # type: ignore[override]
        return _KERNELS[self.index, self.batches]

    @property
    def kernels(self) -> Kernels:  # type: ignore[override]
        if self.noise == "gaussian":
            return _GAUSSIAN_KERNELS[self.index, self.batches]
        return super().kernels

    @property
    def estimation(self) -> Estimation | None:  # type: ignore[override]
        return FROM_GAUSSIAN_BATCHES if self.noise == "gaussian" else super().estimation

    @property
    def guarantee(self) -> Guarantee:
        if self.noise == "laplace":
            return super().guarantee
        shift = gaussian_shift(self.epsilon, self.delta)
        return dataclasses.replace(super().guarantee, shift=shift)

    @property
    def deviation(self) -> float:
        """Standard deviation of a draw of Gaussian noise; 0 for Laplace noise."""
        return released_deviation(self.epsilon, self.delta) if self.delta > 0.0 else 0.0

    @property
    def may_lock(self) -> bool:  # type: ignore[override]
        """Whether the index allows for one draw of noise alone."""
        return self.index == "paper" and self.noise == "laplace"

    @property
    def usual_batches(self) -> tuple[float, float]:  # type: ignore[override]
        """Adaptive batches start longer and may grow more slowly; a short horizon shortens them."""
        pulls, ratio = _BATCHES[self.batches]
        if self.noise == "gaussian":
            pulls *= _GAUSSIAN_PULLS * self.deviation * self.epsilon
        if (self.index, self.batches) == ("rechecking", "adaptive"):
            ratio = 1.25
        if self.known_rounds < math.inf and self.index in PROVED:
            pulls = min(pulls, FIRST_PART * self.epsilon * self.known_rounds / self.arms)
        return pulls, ratio

    @property
    def known_rounds(self) -> float:
        """The horizon, or the memory if that is shorter; infinite without either."""
        return min(self.horizon or math.inf, self.remembered)

    @property
    def clock(self) -> float:
        """H, in rounds."""
        return USUAL_CLOCK if self.known_rounds == math.inf else self.known_rounds / self.arms

    def constants(self) -> Any:
        return super().constants()._replace(horizon=self.clock)

    def sizes(self, target: float) -> list[int]:
        """Sizes of an arm's pulls, up to `target` pulls or LISTED_BATCHES sizes."""
        if self.batches == "ratio" or self.index == "rechecking":
            return super().sizes(target)
        params, sizes = self.constants(), [0]
        while sizes[-1] < target and len(sizes) <= batched.LISTED_BATCHES:
            number = batched.size_number(params, sizes[-1])
            sizes.append(batched.numbered_size(params, number))
        return sizes[1:]

    def proved_bound(self, environment: Any, horizon: int) -> float | None:
        theorem = self._theorem(environment, horizon)
        return None if theorem is None else theorem[0].mean() * theorem[1]

    def proved_tail(self, environment: Any, horizon: int, x: float) -> float | None:
        theorem = self._theorem(environment, horizon)
        return None if theorem is None else theorem[0].tail(x / theorem[1])

    def _theorem(self, environment: Any, horizon: int) -> tuple[ImedBound, float] | None:
        """The theorem of `theory.imed_regret`, and the width of the rewards' range."""
        scaled, sizes = unit_gaps(self, environment), self.sizes(horizon)
        if (
            self.noise == "gaussian"
            or self.index not in PROVED
            or self.memory is not None
            or scaled is None
            or sizes[-1] < horizon
        ):
            return None  # or sizes grow too slowly to be listed
        gaps, width = scaled
        best = float(np.max(environment.means) - self.reward_range[0]) / width
        growth = 1.0 if self.batches == "ratio" else batched.MOST_GROWTH
        sharp = self.index == "tail"
        how = growth, horizon, self.epsilon, self.clock, sharp, self.noises
        return imed_bound(tuple(gaps.tolist()), best, tuple(sizes), *how), width
