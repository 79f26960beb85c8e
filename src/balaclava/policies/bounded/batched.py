"""What the policies with one release a batch share: how a batch ends, and batches that grow."""

from __future__ import annotations

import math
from typing import Annotated, Any, ClassVar

from balaclava._core.declared import Epsilon, Range
from balaclava._core.kernels import kernel
from balaclava.frames.batches import Batches, begin_batches, close_batch, take_batch
from balaclava.policies.base import PrivateBoundedPolicy
from balaclava.privacy.laplace import laplace_release

BatchRatio = Annotated[float, Range(1, meaning="growth of an arm's pulls by batch", open_low=True)]
FirstBatch = Annotated[float, Range(1, 2.0**53, "pulls in an arm's first batch, rounded up")]

NOISY_PULLS = 100.0  # over epsilon: until then, noise and not chance is what misleads
NOISY_EPSILON = 3.0  # from here on the noise of a batch is below the chance in a single reward
FIRST_BATCH = 30.0  # over epsilon


@kernel
def begin_single(params: Any) -> Batches:
    """A first batch of one pull."""
    return begin_batches(params.arms, 1)


@kernel(borrows=True)
def learn_episodes(
    params: Any, state: Batches, t: int, arm: int, reward: float, phase: int, rng: Any
) -> None:
    """Release the batch alone; the next one doubles the arm's pulls: 1, 1, 2, 4, 8, ..."""
    if take_batch(state, arm, reward, phase):
        size = state.size[arm]
        released = laplace_release(rng, state.sums[arm], 1.0, params.epsilon)
        close_batch(state, arm, released, size, size if state.number[arm] == 1 else 2 * size)


@kernel(borrows=True)
def learn_lazily(
    params: Any, state: Batches, t: int, arm: int, reward: float, phase: int, rng: Any
) -> None:
    """Release the batch alone; the next one is twice as long: 1, 2, 4, 8, ..."""
    if take_batch(state, arm, reward, phase):
        size = state.size[arm]
        released = laplace_release(rng, state.sums[arm], 1.0, params.epsilon)
        close_batch(state, arm, released, size, 2 * size)


@kernel(borrows=True)
def pulls_after(params: Any, batch: int, before: int) -> int:
    """n_m = ceil(first_batch batch_ratio^(m-1)), and more than n_{m-1}."""
    pulls = params.first_batch * math.pow(params.batch_ratio, batch - 1.0)
    return max(math.ceil(min(pulls, 2.0**53)), before + 1)


@kernel
def begin_growing(params: Any) -> Batches:
    return begin_batches(params.arms, pulls_after(params, 1, 0))


@kernel(borrows=True)
def learn_growing(
    params: Any, state: Batches, t: int, arm: int, reward: float, phase: int, rng: Any
) -> None:
    """Release the batch and add it, noise and all, to what was released before."""
    if take_batch(state, arm, reward, phase):
        before = state.weights[arm]
        pulls = before + state.size[arm]
        released = laplace_release(rng, state.sums[arm], 1.0, params.epsilon)
        total = state.means[arm] * before + released
        close_batch(
            state, arm, total, pulls, pulls_after(params, state.number[arm] + 1, pulls) - pulls
        )


class GrowingBatchPolicy(PrivateBoundedPolicy):
    """Batches of growing size whose released sums, each with its own noise, are added up.

    The indices of these policies allow for the noise of one release, of which the chance that it
    is beyond x falls as exp(-epsilon x). After m batches the sum holds m draws, and theirs falls
    only as exp(-epsilon^2 x^2 / 4m) until x is beyond m/epsilon. If the draws outnumber what the
    index allows for while the arm has few pulls, the best arm may be left with a debt: its sum is
    far below 0, the mean is moved to 0, each further pull raises its index instead of its mean,
    and it is not played again for a time that is exponential in the debt. Another arm is then
    played for good.

    A private policy whose regret is of order log T pulls every arm log(T)/d_eps times, which is
    more than log(T)/epsilon. A first batch of that order is therefore free, and it is what keeps
    the draws few: with 30/epsilon pulls and a ratio of 1.5 an arm has 4 of them by its
    100/epsilon'th pull. Settings with more than `most_draws` by then are refused.
    """

    phased: ClassVar[bool] = True
    most_draws: ClassVar[int]  # above it, more than about one run in a hundred locks
    epsilon: Epsilon
    batch_ratio: BatchRatio
    first_batch: FirstBatch | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.epsilon < NOISY_EPSILON and self.draws > self.most_draws:
            first = self.constants().first_batch
            raise self.refuse(
                "batch_ratio",
                f"with a first batch of {first:g} pulls adds noise {self.draws} times before an "
                f"arm has {NOISY_PULLS:g}/epsilon pulls; with more than {self.most_draws} the "
                f"policy may lock onto a wrong arm. Raise batch_ratio to {self.least_ratio:.2f} "
                f"or more, or first_batch (by default {FIRST_BATCH:g}/epsilon)",
            )

    def constants(self) -> Any:
        first = self.first_batch or max(FIRST_BATCH / self.epsilon, 1.0)
        return super().constants()._replace(first_batch=min(first, 2.0**53))

    @property
    def draws(self) -> int:
        """Noise draws in an arm's sum when it has 100/epsilon pulls."""
        params, target = self.constants(), min(NOISY_PULLS / self.epsilon, 2.0**53)
        batch, pulls = 1, pulls_after(params, 1, 0)
        while pulls < target and batch <= 10_000:
            batch += 1
            pulls = pulls_after(params, batch, pulls)
        return batch

    @property
    def least_ratio(self) -> float:
        """The least ratio that is not refused with this first batch."""
        first = self.constants().first_batch
        return float((NOISY_PULLS / self.epsilon / first) ** (1.0 / (self.most_draws - 1)) + 0.01)
