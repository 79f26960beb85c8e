"""Policies with one release a batch: settling, and batches that grow."""

import functools
import math
from collections.abc import Callable
from typing import Annotated, Any, ClassVar, Literal

from balaclava._core.declared import Epsilon, Range
from balaclava._core.kernels import kernel
from balaclava.frames import pools
from balaclava.policies.base import PrivateBoundedPolicy
from balaclava.policies.intervals import FROM_NOISY_SUMS
from balaclava.policies.pooled_policies import PooledPolicy
from balaclava.privacy.guarantee import SHARED_BY_DEVICES
from balaclava.privacy.mechanisms.analytic_gaussian import gaussian_release
from balaclava.privacy.mechanisms.laplace import laplace_release
from balaclava.privacy.mechanisms.split_laplace import split_laplace_release, two_noises_quantile

BatchRatio = Annotated[float, Range(1, meaning="growth of an arm's pulls by batch", open_low=True)]
Trust = Annotated[
    Literal["central", "split"],
    Range(meaning="who sees rewards: the operator, or neither of two servers"),
]
FirstBatch = Annotated[float, Range(1, 2.0**53, "pulls in an arm's first batch, rounded up")]

# Pulls times epsilon below which noise, not sampling error, dominates an arm's mean. A rule of
# thumb: at 100/epsilon pulls one draw of noise moves the mean by 0.01.
NOISY_PULLS = 100.0
# Epsilon from which the noise of a batch (deviation sqrt(2)/epsilon = 0.47) is below the largest
# deviation of a single reward in [0, 1], 0.5.
NOISY_EPSILON = 3.0
MOST_DOUBLINGS = 53  # of a batch's length: floats count exactly up to 2^53
# A batch of adaptive length at most doubles the arm's pulls, as is usual for batches.
MOST_GROWTH = 2.0
LISTED_BATCHES = 10_001  # most sizes in a list; a ratio near 1 would make it endless


@kernel
def begin(params: Any) -> pools.Pools:
    return pools.begin_pools(params.arms, pools.OPEN_BATCHES_PER_ARM)


@kernel(borrows=True)
def release_sum(params: Any, state: pools.Pools, arm: int, row: int, rng: Any) -> float:
    total = state.sums[arm, row]
    if params.noises == 1:
        released = laplace_release(rng, total, 1.0, params.epsilon)
    else:
        released = split_laplace_release(rng, total, 1.0, params.epsilon)
    pools.close_batch(state, arm, row, released)
    return released


@kernel(borrows=True)
def noise_reach(params: Any, nats: float) -> float:
    """What the noise of a release, times epsilon, exceeds with probability exp(-nats)/2."""
    return nats if params.noises == 1 else two_noises_quantile(nats)


@kernel(borrows=True)
def double_pulls(params: Any, state: pools.Pools, arm: int, t: int) -> None:
    """Open batches that double the arm's pulls: 1, 1, 2, 4, 8, ..."""
    if pools.needs_batch(state, arm):
        pools.open_batch(
            state, arm, 2 ** min(max(pools.batch_ordinal(state, arm) - 2, 0), MOST_DOUBLINGS)
        )


@kernel(borrows=True)
def play_lazily(params: Any, state: pools.Pools, rng: Any) -> tuple[int, int]:
    """The next decision. Each batch is twice as long as the one before: 1, 2, 4, 8, ..."""
    arm = pools.next_arm(params, state, rng)
    if pools.needs_batch(state, arm):
        pools.open_batch(state, arm, 2 ** min(pools.batch_ordinal(state, arm) - 1, MOST_DOUBLINGS))
    return pools.assign_decision(state, arm)


@functools.cache
def highest_index(index: Callable[..., float]) -> Callable[..., int]:
    """Make `best_arm`: the highest index among the leader and the arms that do not wait.

    `index` is a kernel of (params, state, arm, log t).
    """

    @kernel(borrows=True)
    def best_arm(params: Any, state: pools.Pools, t: int) -> int:
        best, lead, log_t, highest = -1, state.lead[0], math.log(t), -math.inf
        for arm in range(params.arms):
            if state.ready[arm] or arm == lead:
                upper = index(params, state, arm, log_t)
                if best < 0 or upper > highest:
                    best, highest = arm, upper
        return best

    return best_arm


@kernel(borrows=True)
def release_alone(params: Any, state: pools.Pools, arm: int, row: int, rng: Any) -> None:
    """Release the batch and use its mean alone, unless a larger, later batch settled first."""
    weight = pools.rewards_in_batch(state, arm, row)
    released = release_sum(params, state, arm, row, rng)
    if weight >= state.weights[arm]:
        pools.use_mean(state, arm, released / weight, weight)


learn_alone, forget_alone = pools.learn_in_batches(release_alone)


@kernel(borrows=True)
def pulls_after(params: Any, batch: int, before: int) -> int:
    """n_m = ceil(first_batch batch_ratio^(m-1)), and more than n_{m-1}."""
    pulls = params.first_batch * math.pow(params.batch_ratio, batch - 1.0)
    return max(math.ceil(min(pulls, 2.0**53)), before + 1)


@kernel(borrows=True)
def numbered_size(params: Any, number: int) -> int:
    """Size number 0, 1, ... of an arm's pulls: ceil(first_batch batch_ratio^number)."""
    return math.ceil(min(params.first_batch * math.pow(params.batch_ratio, number), 2.0**53))


@kernel(borrows=True)
def size_number(params: Any, pulls: int) -> int:
    """Number of the least size above `pulls`, or of the largest size."""
    number = 0
    if pulls > params.first_batch:
        steps = math.log(min(pulls / params.first_batch, 2.0**53)) / math.log(params.batch_ratio)
        number = max(int(steps) - 1, 0)  # at most the number, rounding included
    while numbered_size(params, number) <= min(pulls, 2.0**53 - 1.0):
        number += 1
    return number


@kernel(borrows=True)
def grow_pulls(params: Any, state: pools.Pools, arm: int, t: int) -> None:
    """Open batches after which the arm has n_m pulls."""
    if pools.needs_batch(state, arm):
        before = state.planned[arm]
        pools.open_batch(
            state, arm, pulls_after(params, pools.batch_ordinal(state, arm), before) - before
        )


@kernel(borrows=True)
def release_growing(params: Any, state: pools.Pools, arm: int, row: int, rng: Any) -> None:
    """Release the batch and add it, noise included, to the arm's earlier releases."""
    release_sum(params, state, arm, row, rng)
    pools.use_mean(state, arm, state.pooled[arm], state.rewards[arm])


learn_growing, forget_growing = pools.learn_in_batches(release_growing)


@kernel(borrows=True)
def release_with_gaussian(params: Any, state: pools.Pools, arm: int, row: int, rng: Any) -> None:
    """As `release_growing`, with Gaussian noise."""
    total = state.sums[arm, row]
    released = gaussian_release(rng, total, 1.0, params.epsilon, params.delta)
    pools.close_batch(state, arm, row, released)
    pools.use_mean(state, arm, state.pooled[arm], state.rewards[arm])


learn_with_gaussian, forget_with_gaussian = pools.learn_in_batches(release_with_gaussian)


class ReleasedBatchPolicy(PooledPolicy, PrivateBoundedPolicy):
    """A policy for rewards in a range that releases the sum of each batch of an arm.

    Privacy:
        epsilon-differential privacy of the whole trajectory. Each reward enters the sum of one
        batch, of sensitivity 1. The sum is released once, with noise of scale 1/epsilon, and kept.
        Everything else follows from released values. A batch that the horizon cuts off releases
        nothing. With trust="split" it covers all that one of two servers sees, and each adds that
        noise (docs/split.md).
    """

    fixed_arms = ""
    estimation = FROM_NOISY_SUMS
    derived_constants: ClassVar[tuple[str, ...]] = ("noises",)
    epsilon: Epsilon
    trust: Trust = "central"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.trust == "split":
            if self.model == "local":
                raise self.refuse("trust", "is not needed: devices add the noise; leave it out")
            object.__setattr__(self, "model", "split")
            object.__setattr__(self, "scope", "view")
            object.__setattr__(self, "assumptions", (*self.assumptions, *SHARED_BY_DEVICES))

    def _about_outside(self) -> tuple[str, ...]:
        if self.trust == "central":
            return super()._about_outside()
        low, high = self.accepts
        return (f"devices clip rewards to [{low:g}, {high:g}]; servers cannot check it",)

    @property
    def noises(self) -> int:  # type: ignore[override]
        """Draws of noise in a release: one of each server."""
        return 2 if self.trust == "split" else 1


class GrowingBatchPolicy(ReleasedBatchPolicy):
    """Batches of growing size whose released sums, each with its own noise, are added up.

    The indices of these policies allow for the noise of one release, whose tail beyond x falls as
    exp(-epsilon x). After m batches the sum holds m draws of noise, and their tail falls only as
    exp(-epsilon^2 x^2 / 4m) until x is beyond m/epsilon. With too many draws while the arm has few
    pulls, the best arm may be in debt: its sum is far below 0 and its mean is clipped to 0. Further
    pulls then raise its index instead of its mean. It is not played again for a time that is
    exponential in the debt: the policy has locked onto another arm.

    A private policy whose regret is of order log T pulls every arm log(T)/d_eps times, which is
    more than log(T)/epsilon. So a first batch of that order is free, and it keeps the draws few:
    with 30/epsilon pulls and a ratio of 1.5 an arm has 4 of them by pull 100/epsilon. Settings
    with more than `most_draws` by then are refused.
    """

    most_draws: ClassVar[int]  # above it, more than about one run in a hundred locks
    may_lock: ClassVar[bool] = True  # if the index allows for the noise of one release alone
    # Pulls in the first batch times epsilon, and the ratio (`benchmarks/recommended_default.py`).
    usual_batches: ClassVar[tuple[float, float]] = (30.0, 1.25)
    batch_ratio: BatchRatio | None = None
    first_batch: FirstBatch | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.may_lock and self.epsilon < NOISY_EPSILON and self.draws > self.most_draws:
            params = self.constants()
            raise self.refuse(
                "first_batch" if self.batch_ratio is None else "batch_ratio",
                f"is not allowed: a first batch of {params.first_batch:g} pulls and a ratio of "
                f"{params.batch_ratio:g} add noise {self.draws} times before an arm has "
                f"{NOISY_PULLS:g}/epsilon pulls; with more than {self.most_draws} the policy may "
                f"lock onto a wrong arm. Raise batch_ratio to {self.least_ratio:.2f} or more, or "
                "first_batch",
            )

    def constants(self) -> Any:
        first, ratio = self.usual_batches
        pulls = min(self.first_batch or max(first / self.epsilon, 1.0), 2.0**53)
        params = super().constants()
        return params._replace(first_batch=pulls, batch_ratio=self.batch_ratio or ratio)

    @property
    def draws(self) -> int:
        """Noise draws in an arm's sum when it has 100/epsilon pulls."""
        return self.noises * len(self.sizes(min(NOISY_PULLS / self.epsilon, 2.0**53)))

    def sizes(self, target: float) -> list[int]:
        """An arm's pulls after each batch, up to `target` pulls or LISTED_BATCHES batches."""
        params, pulls = self.constants(), [0]
        while pulls[-1] < target and len(pulls) <= LISTED_BATCHES:
            pulls.append(pulls_after(params, len(pulls), pulls[-1]))
        return pulls[1:]

    @property
    def least_ratio(self) -> float:
        """The least ratio that is not refused with this first batch."""
        first = self.constants().first_batch
        batches = self.most_draws // self.noises
        return float((NOISY_PULLS / self.epsilon / first) ** (1.0 / (batches - 1)) + 0.01)
