"""Robust-UCB (Bubeck, Cesa-Bianchi, Lugosi 2013, Bandits with heavy tail), three estimators."""

import math
from collections.abc import Callable, Iterator
from typing import Annotated, Any, Literal, NamedTuple

import numpy as np

from balaclava._core.declared import Horizon, MomentBound, RadiusScale, Range
from balaclava._core.kernels import kernel
from balaclava._core.states import range_faults
from balaclava.estimators import median_of_means, truncated_mean
from balaclava.estimators.catoni import begin_catoni, catoni_mean, is_due, learn_catoni
from balaclava.estimators.sample_pool import append
from balaclava.policies.base import Kernels, Policy, register
from balaclava.policies.theorem_conditions import moments_hold


class State(NamedTuple):
    """Counts, estimates, and the estimator's own state."""

    asked: np.ndarray  # decisions handed out, by arm
    pulls: np.ndarray  # rewards told, n
    estimates: np.ndarray
    shrinkage: np.ndarray  # n^(-v/(1+v)): how the bonus falls with n
    estimator: Any

    def faults(self, decisions: int) -> Iterator[str]:
        yield from range_faults(0, decisions, asked=self.asked, pulls=self.pulls)


@kernel(borrows=True)
def clock(params: Any, t: int) -> float:
    """log t, with t at least 2 and at most the horizon."""
    return math.log(max(min(t, params.horizon), 2))


@kernel(borrows=True)
def short_arm(state: State, least: int) -> int:
    """Of the arms with fewer than `least` rewards, the one asked least often; or -1."""
    pick = -1
    for arm in range(state.pulls.size):
        if state.pulls[arm] < least and (pick < 0 or state.asked[arm] < state.asked[pick]):
            pick = arm
    return pick


@kernel(borrows=True)
def highest_index(params: Any, state: State, width: float) -> int:
    """The arm with the highest estimate + bonus, bonus = radius_scale * width * n^(-v/(1+v))."""
    best, highest = 0, -math.inf
    for arm in range(params.arms):
        index = state.estimates[arm] + params.radius_scale * width * state.shrinkage[arm]
        if index > highest:
            best, highest = arm, index
    return best


def robust_kernels(
    begin_estimator: Callable[..., Any],
    first_pulls: tuple[float, float],
    refresh: Callable[..., None],
    width: Callable[..., float],
    keep: Callable[..., None],
) -> Kernels:
    """The policy's kernels with one estimator, given as kernels.

    Args:
        begin_estimator: of (arms, horizon): the estimator's empty state.
        first_pulls: (a, b): each arm needs a + b log T rewards before any index counts.
        refresh: of (params, state, log t): bring all estimates up to date.
        width: of (params, log t): the bonus without its shrinkage.
        keep: of (params, state, t, arm, reward): store a reward.
    """
    fixed, per_log = first_pulls

    @kernel
    def begin(params: Any) -> State:
        arms = params.arms
        return State(
            asked=np.zeros(arms, np.int64),
            pulls=np.zeros(arms, np.int64),
            estimates=np.zeros(arms),
            shrinkage=np.zeros(arms),
            estimator=begin_estimator(arms, params.horizon),
        )

    @kernel(borrows=True)
    def choose(params: Any, state: State, t: int, context: Any, rng: Any) -> tuple[int, int]:
        arm = short_arm(state, math.ceil(fixed + per_log * clock(params, params.horizon)))
        if arm < 0:
            log_t = clock(params, t)
            refresh(params, state, log_t)
            arm = highest_index(params, state, width(params, log_t))
        state.asked[arm] += 1
        return arm, 0

    @kernel(borrows=True)
    def learn(
        params: Any, state: State, t: int, arm: int, reward: float, phase: int, rng: Any
    ) -> None:
        if t <= params.horizon:
            keep(params, state, t, arm, reward)
            state.pulls[arm] += 1
            state.shrinkage[arm] = float(state.pulls[arm]) ** (1.0 / params.moment_order - 1.0)

    return Kernels(begin, choose, learn)


@kernel(borrows=True)
def refresh_truncated_means(params: Any, state: State, log_t: float) -> None:
    level = truncated_mean.truncation_level(log_t, params.moment_order)
    for arm in range(params.arms):
        state.estimates[arm] = (
            truncated_mean.truncated_sum(state.estimator, arm, level) / state.pulls[arm]
        )


@kernel(borrows=True)
def truncated_mean_width(params: Any, log_t: float) -> float:
    """4 u^(1/(1+v)) (log t^2)^(v/(1+v))."""
    inverse = 1.0 / params.moment_order
    return 4.0 * math.pow(params.moment_bound, inverse) * math.pow(2.0 * log_t, 1.0 - inverse)


@kernel(borrows=True)
def keep_truncated(params: Any, state: State, t: int, arm: int, reward: float) -> None:
    order = params.moment_order
    truncated_mean.learn_truncation(
        state.estimator,
        arm,
        state.pulls[arm],
        reward,
        params.moment_bound,
        order,
        truncated_mean.truncation_level(clock(params, t + 1), order),
        truncated_mean.truncation_level(clock(params, params.horizon), order),
    )


@kernel(borrows=True)
def most_blocks(log_t: float) -> int:
    """floor(1 + 16 log t)."""
    return int(1.0 + 16.0 * log_t)


@kernel
def begin_medians(arms: int, horizon: int) -> Any:
    most = most_blocks(math.log(max(horizon, 2)))
    return median_of_means.begin_median_of_means(arms, horizon, most)


@kernel(borrows=True)
def refresh_medians(params: Any, state: State, log_t: float) -> None:
    blocks = most_blocks(log_t)
    for arm in range(params.arms):
        n = state.pulls[arm]
        if median_of_means.has_new_blocks(state.estimator, arm, n, blocks):
            state.estimates[arm] = median_of_means.median_of_means(state.estimator, arm, n, blocks)


@kernel(borrows=True)
def median_of_means_width(params: Any, log_t: float) -> float:
    """(12 w)^(1/(1+v)) (32 log t + 2)^(v/(1+v))."""
    inverse = 1.0 / params.moment_order
    moment = math.pow(12.0 * params.moment_bound, inverse)
    return moment * math.pow(32.0 * log_t + 2.0, 1.0 - inverse)


@kernel(borrows=True)
def keep_sample(params: Any, state: State, t: int, arm: int, reward: float) -> None:
    append(state.estimator.samples, arm, state.pulls[arm], reward)


@kernel(borrows=True)
def refresh_catoni_means(params: Any, state: State, log_t: float) -> None:
    for arm in range(params.arms):
        n = state.pulls[arm]
        if is_due(state.estimator, arm, n, log_t, params.refresh):
            state.estimates[arm] = catoni_mean(
                state.estimator, arm, n, log_t, params.moment_bound, state.estimates[arm]
            )


@kernel(borrows=True)
def catoni_width(params: Any, log_t: float) -> float:
    """sqrt(8 w log t)."""
    return math.sqrt(8.0 * params.moment_bound * log_t)


@kernel(borrows=True)
def keep_for_catoni(params: Any, state: State, t: int, arm: int, reward: float) -> None:
    learn_catoni(state.estimator, arm, state.pulls[arm], reward)


ROBUST_KERNELS = {
    "truncated-mean": robust_kernels(
        truncated_mean.begin_truncation,
        (1.0, 0.0),
        refresh_truncated_means,
        truncated_mean_width,
        keep_truncated,
    ),
    "median-of-means": robust_kernels(
        begin_medians, (2.0, 0.0), refresh_medians, median_of_means_width, keep_sample
    ),
    # Catoni's estimate needs more than 4 log t rewards, its bonus 8 log t.
    "catoni": robust_kernels(
        begin_catoni, (0.0, 8.0), refresh_catoni_means, catoni_width, keep_for_catoni
    ),
}


@register
class RobustUCB(Policy):
    """UCB for heavy tails: a robust estimate of each mean plus the bonus that fits it.

    For rewards with a known finite moment of order 1 + v, v in (0, 1], where single rewards distort
    a plain mean. The constants are those of the proofs and explore for long. A `radius_scale` below
    1 helps, within limits: truncated-mean counts the first rewards of an arm as 0, and without the
    bonus such an arm is abandoned. With bounded or sub-Gaussian rewards use ucb1 or kl-ucb.

    Play the arm with the highest estimate + radius_scale * bonus, where

    - truncated-mean counts reward s of an arm as 0 unless `|X_s| <= (u s / log t^2)^(1/(1+v))` at
      the current t; bonus 4 u^(1/(1+v)) (log t^2 / n)^(v/(1+v)). Cheap in time and memory.
    - median-of-means takes the median over floor(min(1 + 16 log t, n/2)) blocks; bonus
      (12 w)^(1/(1+v)) ((32 log t + 2) / n)^(v/(1+v)). Each arm is first pulled twice, as published.
      An arm with very bad first rewards may never be pulled again, and no bound is proved.
    - catoni (v = 1) takes the root m of sum psi(a (X_i - m)) = 0, where
      `psi(x) = sign(x) log(1 + |x| + x^2/2)` and
      a = sqrt(4 log t / (n (w + 4 w log t / (n - 4 log t)))); bonus sqrt(8 w log t / n), the
      smallest of the three. Each arm is first pulled ceil(8 log T) times in turn.

    The last two keep every reward. Rewards of decisions after the horizon are dropped, and the arm
    that was best at the horizon is played.

    Parameters:
        estimator: "truncated-mean", "median-of-means" or "catoni".
        moment_order: 1 + v in (1, 2]; 2 for catoni.
        moment_bound: on the raw moment E|X|^(1+v) for truncated-mean (u), on the central moment
            E|X - mean|^(1+v) for median-of-means (w), on the variance for catoni (w).
        refresh: for catoni only. 0 solves for every arm in every round, as in the paper, at a
            cost that grows with t. Above 0, an arm keeps its estimate until its number of rewards
            or log t has grown by this share. Use 0.01 for long runs.

    Example:
        >>> policy = bl.policy("robust-ucb", arms=2, horizon=1000, moment_order=2, moment_bound=1)
        >>> agent, pulls = policy.agent(seed=0), [0, 0]
        >>> for _ in range(1000):
        ...     decision = agent.ask()
        ...     agent.tell(decision, reward=float(decision.arm))
        ...     pulls[decision.arm] += 1
        >>> pulls
        [101, 899]
    """

    name = "robust-ucb"
    fixed_arms = "its estimators keep single rewards, in memory that the arms share"
    reference = "Bubeck, Cesa-Bianchi, Lugosi 2013"
    cites = "Bubeck, Cesa-Bianchi, Lugosi 2013; Catoni 2012"
    see_also = "ucb1, dpr-ucb, dpr-se"
    examples = (
        {"estimator": "truncated-mean"},
        {"estimator": "median-of-means"},
        {"estimator": "catoni", "moment_order": 2.0},
    )

    horizon: Horizon
    moment_order: Annotated[float, Range(1, 2, "order of the known moment", open_low=True)]
    moment_bound: MomentBound
    estimator: Literal["truncated-mean", "median-of-means", "catoni"] = "truncated-mean"
    radius_scale: RadiusScale = 1.0
    refresh: Annotated[float, Range(0, meaning="growth of n or log t between estimates")] = 0.0

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.estimator == "catoni" and self.moment_order != 2.0:
            raise self.refuse(
                "moment_order",
                "does not go with estimator 'catoni', which needs a variance; give 2",
            )
        if self.estimator != "catoni" and self.refresh != 0.0:
            raise self.refuse(
                "refresh", f"is for estimator 'catoni', not {self.estimator!r}; give 0"
            )

    @property
    def kernels(self) -> Kernels:  # type: ignore[override]
        return ROBUST_KERNELS[self.estimator]

    @property
    def central_moments(self) -> bool:
        return self.estimator != "truncated-mean"

    def proved_bound(self, environment: Any, horizon: int) -> float | None:
        """A proved bound; None if the rewards violate the assumptions or a constant differs.

        An arm is pulled again only while twice its bonus is above its gap, or if its estimate or
        that of the best arm fails. In round t an estimate of n rewards fails with probability at
        most t^-2, for each n < t: 2/t for the two arms, and 2 log T pulls in all. The published
        constants use once the bonus, and have 5 for 1 + 2 log T (errata, Bubeck 1).

        None for median-of-means, whose estimate of fewer than 32 log t + 2 rewards fails more
        often (errata, Bubeck 2).
        """
        if self.estimator == "median-of-means" or not moments_hold(self, environment):
            return None
        if horizon > self.horizon or self.radius_scale != 1.0 or self.refresh != 0.0:
            return None
        gaps = environment.gaps[environment.gaps > 0]
        inverse, u = 1.0 / (self.moment_order - 1.0), self.moment_bound
        log, start = math.log(horizon), 0.0
        if self.estimator == "truncated-mean":
            once = 8.0 * (4.0 * u / gaps) ** inverse * log
        else:
            once = 8.0 * u / gaps * log
            start = 8.0 * math.log(max(self.horizon, 2)) + 1.0  # pulls of each arm in turn
        failures = 1.0 + 2.0 * log
        return float((2.0 ** (1.0 + inverse) * once + (start + failures) * gaps).sum())
