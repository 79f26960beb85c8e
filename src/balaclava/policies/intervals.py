"""Kernels that read released means, their intervals and the best arm."""

import functools
import math
import types
from collections.abc import Callable
from typing import Any

import numpy as np

from balaclava._core.kernels import kernel
from balaclava.errors import EstimateError
from balaclava.frames.pools import Pools
from balaclava.frames.tally import Tally
from balaclava.policies.base import Estimation, Policy
from balaclava.theory.confidence_sequences import laplace_scale, mean_interval, pair_evidence

NO_WINNER = -1  # in place of an arm


@kernel(borrows=True)
def read_batches(params: Any, state: Pools, arm: int) -> tuple[int, float, float]:
    """Pools: the mean of the releases in order."""
    return state.rewards_in_order[arm], state.in_order[arm], state.draws_in_order[arm]


@kernel(borrows=True)
def read_noisy_sums(params: Any, state: Pools, arm: int) -> tuple[int, float, float]:
    """As `read_batches`, for releases with `noises` draws of noise each."""
    return (
        state.rewards_in_order[arm],
        state.in_order[arm],
        params.noises * state.draws_in_order[arm],
    )


@kernel(borrows=True)
def read_pools(params: Any, state: Any, arm: int) -> tuple[int, float, float]:
    """Pools or epochs: the mean of all releases. Epochs are released in order."""
    return state.rewards[arm], state.pooled[arm], state.draws[arm]


@functools.cache
def reader_inside(
    read: Callable[..., tuple[int, float, float]], path: str
) -> Callable[..., tuple[int, float, float]]:
    """Make `read` for a state that has the pools or epochs at this path, as "batch.epochs"."""
    name, _, rest = path.partition(".")
    inner = reader_inside(read, rest) if rest else read

    def read_inside(params: Any, state: Any, arm: int) -> tuple[int, float, float]:
        return inner(params, state.pools, arm)

    # Numba compiles getattr(state, name) in some callers only, so the field is set in the code.
    code = read_inside.__code__
    names = tuple(name if each == "pools" else each for each in code.co_names)
    code = code.replace(co_names=names)
    reader = types.FunctionType(code, globals(), closure=read_inside.__closure__)
    return kernel(borrows=True)(reader)


@kernel(borrows=True)
def read_tally(params: Any, state: Tally, arm: int) -> tuple[int, float, float]:
    """A tally of rewards without noise."""
    n = state.pulls[arm]
    return n, state.sums[arm] / max(n, 1), 0


@kernel(borrows=True)
def read_reports(params: Any, state: Tally, arm: int) -> tuple[int, float, float]:
    """A tally of reports: each has its own draw of noise."""
    n = state.pulls[arm]
    return n, state.sums[arm] / max(n, 1), n


@kernel(borrows=True)
def limits_with_laplace(
    params: Any, rewards: int, mean: float, draws: float, failure: float
) -> tuple[float, float]:
    """Limits for draws of Laplace noise of scale 1/epsilon."""
    return mean_interval(mean, rewards, int(draws), laplace_scale(params.epsilon), failure)


@kernel(borrows=True)
def limits_without_noise(
    params: Any, rewards: int, mean: float, draws: float, failure: float
) -> tuple[float, float]:
    return mean_interval(mean, rewards, 0, 0.0, failure)


@kernel(borrows=True)
def limits_within_radius(
    params: Any, rewards: int, mean: float, radius: float, failure: float
) -> tuple[float, float]:
    """Limits from the policy's own radius; see `require_radii`."""
    if rewards < 1:
        return -math.inf, math.inf
    return mean - radius, mean + radius


@kernel(borrows=True)
def laplace_law(params: Any, mean: float, draws: float) -> tuple[float, int, float]:
    return mean, int(draws), laplace_scale(params.epsilon)


@kernel(borrows=True)
def limits_with_gaussian(
    params: Any, rewards: int, mean: float, draws: float, failure: float
) -> tuple[float, float]:
    """Limits for draws of Gaussian noise."""
    return mean_interval(mean, rewards, int(draws), -params.deviation, failure)


@kernel(borrows=True)
def gaussian_noise_law(params: Any, mean: float, draws: float) -> tuple[float, int, float]:
    return mean, int(draws), -params.deviation


@kernel(borrows=True)
def exact_law(params: Any, mean: float, draws: float) -> tuple[float, int, float]:
    """The law of a mean without noise."""
    return mean, 0, 0.0


@functools.cache
def winner_by_pairs(law: Callable[..., tuple[float, int, float]]) -> Callable[..., int]:
    """Make `winner(params, released, joint, failure)`: the best arm, or NO_WINNER.

    `released` has a row of rewards, mean and noise for each arm. The arm with the highest mean wins
    if it beats each other arm, each at `failure` over the number of other arms.
    """

    @kernel(borrows=True)
    def winner(params: Any, released: np.ndarray, joint: float, failure: float) -> int:
        arms = released.shape[0]
        lead = 0
        for arm in range(1, arms):
            if released[arm, 1] > released[lead, 1]:
                lead = arm
        mean, draws, scale = law(params, released[lead, 1], released[lead, 2])
        better = mean, int(released[lead, 0]), draws
        for arm in range(arms):
            if arm != lead:
                mean, draws, scale = law(params, released[arm, 1], released[arm, 2])
                worse = mean, int(released[arm, 0]), draws
                evidence = pair_evidence(worse, better, scale, joint)
                if evidence < math.log((arms - 1.0) / failure):
                    return NO_WINNER
        return lead

    return winner


@functools.cache
def winner_by_intervals(limits: Callable[..., tuple[float, float]]) -> Callable[..., int]:
    """Make `winner(params, released, joint, failure)`: the arm whose interval is above all others.

    See `winner_by_pairs`; `joint` is not used. NO_WINNER if there is no such arm.
    """

    @kernel(borrows=True)
    def winner(params: Any, released: np.ndarray, joint: float, failure: float) -> int:
        arms = released.shape[0]
        lead, highest, upper, others = NO_WINNER, -math.inf, -math.inf, -math.inf
        for arm in range(arms):
            rewards, mean, noise = released[arm]
            low, high = limits(params, int(rewards), mean, noise, failure / arms)
            if low > highest:
                others = max(others, upper)
                lead, highest, upper = arm, low, high
            else:
                others = max(others, high)
        return lead if highest > others else NO_WINNER

    return winner


def winner_kernel(estimation: Estimation) -> Callable[..., int]:
    """`(params, released, joint, failure) -> arm`, which names the best arm; a kernel or a test."""
    if estimation.winner is not None:
        return estimation.winner
    if estimation.law is None:
        return winner_by_intervals(estimation.limits)
    return winner_by_pairs(estimation.law)


def require_radii(policy: Policy, proved: bool, fails: float, failure: float) -> None:
    """Refuse intervals that the radii do not prove; `fails` is their failure probability."""
    if not proved:
        raise EstimateError(
            f"{policy.name} offers no estimates with these parameters: its radii are smaller than "
            "proved; set radius_scale = 1, or see its docstring"
        )
    if fails > failure:
        raise EstimateError(
            f"{policy.name} has radii that fail with probability {fails:.3g} an arm, but this "
            f"confidence allows {failure:.3g}; lower the confidence, or make the policy with a "
            "lower failure_probability"
        )


POOL_READERS = (read_batches, read_noisy_sums, read_pools)  # of pools that are the whole state
FROM_BATCHES = Estimation(read_batches, limits_with_laplace, laplace_law, in_order=True)
FROM_NOISY_SUMS = FROM_BATCHES._replace(read=read_noisy_sums)
FROM_GAUSSIAN_BATCHES = Estimation(
    read_batches, limits_with_gaussian, gaussian_noise_law, in_order=True
)
FROM_EPOCHS = Estimation(read_pools, limits_with_laplace, laplace_law, in_order=True)
FROM_POOLS = Estimation(read_pools, limits_with_laplace, laplace_law)  # in the order of settling
FROM_REPORTS = Estimation(read_reports, limits_with_laplace, laplace_law, from_tally=read_reports)
FROM_TALLY = Estimation(read_tally, limits_without_noise, exact_law, from_tally=read_tally)
