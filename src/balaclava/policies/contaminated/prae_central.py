"""PRAE with central moments (Wu et al. 2023, Algorithms 1 and 3, Theorems 6.10 and 6.12)."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any, ClassVar, NamedTuple

import numpy as np

from balaclava._core.declared import MeanRange
from balaclava._core.kernels import kernel
from balaclava._core.states import range_faults
from balaclava.frames.epochs import (
    add_reward,
    epoch_row,
    give_up,
    is_learned,
    is_settled,
    keep_release,
    needs_epoch,
    next_decision,
)
from balaclava.policies.base import Kernels, failure_probability_of, register
from balaclava.policies.contaminated.prae import (
    Params,
    PraePolicy,
    PraeState,
    arm_of_batch,
    begin_elimination,
    end_batch,
    next_size,
    open_batch,
    radius_with,
    unused_pull,
)
from balaclava.privacy.mechanisms.laplace import laplace_release, private_argmax_histogram
from balaclava.privacy.mechanisms.truncation import truncated_onto
from balaclava.theory.truncation_radius import located_threshold, located_width, mixed_terms

_MOST_BINS = 10**6  # a noisy count for each of them, arm and batch
_BREAKDOWN = 0.25  # from this share of outliers on they may fill a bin as well as the mean does


class State(NamedTuple):
    """The batches, each fold an epoch of its own; histograms, and what they showed."""

    batch: PraeState
    counts: np.ndarray  # [arm, row, bin]: raw
    centres: np.ndarray  # [arm]: J, the left end of the fullest bin of its last histogram
    located: np.ndarray  # [arm]: whether there is one
    centre: np.ndarray  # [arm, row]: the J that a second fold is truncated about
    counted: np.ndarray  # [arm, row]: whether it has one
    locates: np.ndarray  # [row]: whether the epoch is a first fold
    second: np.ndarray  # one element: whether a second fold is due

    def faults(self, decisions: int) -> Iterator[str]:
        """What cannot be after so many decisions."""
        yield from range_faults(0, decisions, counts=self.counts)


@kernel
def begin(params: Params) -> State:
    arms = params.arms
    return State(
        batch=begin_elimination(params),
        counts=np.zeros((arms, 2, params.bins), np.int64),
        centres=np.zeros(arms),
        located=np.zeros(arms, np.bool_),
        centre=np.zeros((arms, 2)),
        counted=np.zeros((arms, 2), np.bool_),
        locates=np.zeros(2, np.bool_),
        second=np.zeros(1, np.bool_),
    )


@kernel(borrows=True)
def choose(params: Params, state: State, t: int, context: Any, rng: Any) -> tuple[int, int]:
    batch = state.batch
    if batch.rest[0] == 0 and needs_epoch(batch.epochs):
        open_fold(params, state, rng)
    if batch.rest[0] > 0:
        return unused_pull(params, batch, rng)
    return next_decision(params, batch.epochs, rng)


@kernel(borrows=True)
def open_fold(params: Params, state: State, rng: Any) -> None:
    """The second fold, truncated about the centres known by now; or the first of a new batch.

    While no centre is known, as the first fold waits for its rewards, another first fold goes on.
    """
    batch = state.batch
    only = batch.epochs.only[epoch_row(batch.epochs, batch.epochs.number[0])]
    if state.second[0] and any_located(state, only):
        row = open_batch(params, batch, batch.size[0] // 2, only)
        state.second[0] = False
        state.locates[row] = False
        for arm in range(params.arms):
            state.centre[arm, row] = state.centres[arm]
            state.counted[arm, row] = state.located[arm]
        return
    if not state.second[0]:
        next_size(params, batch, rng)
    if batch.rest[0] == 0:
        only = arm_of_batch(params, batch, rng)
        row = open_batch(params, batch, batch.size[0] // 2, only)
        state.second[0] = True
        state.locates[row] = True


@kernel(borrows=True)
def any_located(state: State, only: int) -> bool:
    """Whether the arm, or any active one, has a centre."""
    if only >= 0:
        return bool(state.located[only])
    located = False
    for arm in range(state.located.size):
        located = located or (state.located[arm] and state.batch.epochs.active[arm])
    return located


@kernel(borrows=True)
def settle(params: Params, state: State, rng: Any) -> None:
    """Release what has settled, once: a centre for each arm, or its mean; drop who is behind."""
    batch, epochs = state.batch, state.batch.epochs
    while is_settled(epochs):
        row = epoch_row(epochs, epochs.oldest[0])
        M = batch.level[row]
        for arm in range(params.arms):
            n = epochs.rewards_in_epoch[arm, row]
            if epochs.active[arm] and n > 0:
                if state.locates[row]:
                    locate(params, state, arm, row, rng)
                else:
                    total = laplace_release(rng, epochs.sums[arm, row], 2.0 * M, params.epsilon)
                    radius = radius_with(params, M, batch.step[row], n)
                    keep_release(epochs, arm, row, total + n * state.centre[arm, row], radius)
                    batch.means[arm] = epochs.means[arm]
        end_batch(params, batch, row, not state.locates[row])


@kernel(borrows=True)
def learn(
    params: Params, state: State, t: int, arm: int, reward: float, phase: int, rng: Any
) -> None:
    epochs = state.batch.epochs
    if not is_learned(epochs, arm, phase):
        return
    row = epoch_row(epochs, phase)
    if state.locates[row]:
        count_in_bin(params, state, arm, row, reward)
        add_reward(epochs, arm, 0.0, phase)
    elif state.counted[arm, row]:
        offset = reward - state.centre[arm, row]
        M, step = state.batch.level[row], state.batch.step[row]
        add_reward(epochs, arm, truncated_onto(offset, M, step), phase)
    else:  # nobody knows yet where the arm is
        give_up(epochs, arm, phase)
    settle(params, state, rng)


@kernel(borrows=True)
def forget(params: Params, state: State, t: int, arm: int, phase: int, rng: Any) -> None:
    if is_learned(state.batch.epochs, arm, phase):
        give_up(state.batch.epochs, arm, phase)
        settle(params, state, rng)


@kernel(borrows=True)
def count_in_bin(params: Params, state: State, arm: int, row: int, reward: float) -> None:
    """Count a reward in its bin; beyond the histogram it counts nowhere."""
    place = (reward - params.low) / params.width
    if 0.0 <= place < params.bins:
        state.counts[arm, row, int(place)] += 1


@kernel(borrows=True)
def locate(params: Params, state: State, arm: int, row: int, rng: Any) -> None:
    """Release the fullest bin of an arm, and empty its histogram."""
    fullest = private_argmax_histogram(rng, state.counts[arm, row], params.epsilon)
    state.centres[arm] = params.low + fullest * params.width
    state.located[arm] = True
    for j in range(params.bins):
        state.counts[arm, row, j] = 0


@register
class PRAECentral(PraePolicy):
    """Elimination in doubling batches, with means first located and then truncated about there.

    For rewards that vary little about a mean that may be far from 0: the k-th central moment is
    known, k >= 2, and a share may be arbitrary outliers. The price of a large mean_range is a
    longer first phase, by its logarithm; prae-raw would pay in every radius. Where means are near
    0, prae-raw is better by far: it needs no first phase and its radius is several times smaller.

    Batches B = 2^tau below a threshold are spent on one arm each (`first_phase`). From there on
    pull every active arm B times, n = B/2 for each of two folds. In units of moment_bound^(1/k),
    with bins of width r over [-D - r, D + r), D = mean_range, and c = 1 + 2r:

        J   = left end of the bin with the largest (count in the first fold)/n + Lap(2/(n epsilon)),
        m_a = J + (1/n) sum over the second fold of (x - J) 1{|x - J| <= M} + Lap(2M/(n epsilon)),
        M   = c min{(n epsilon / log(1/delta))^(1/k), alpha^(-1/k)}

    (in M no epsilon counts as more than 4.5 (k - 1): from there on beta would grow again). Remove
    a if max m - m_a > 2 beta, where beta, which the paper gives up to constants, is

        c sqrt(2 (1 + alpha (M/c)^2) L / n) + 2 M L / (3n) + c^k M^(1-k) + alpha (M + c)
            + (2M / (n epsilon)) log(4/delta),                     L = log(8/delta).

    r = 10^(1/k) without contamination; otherwise r = ((1 - alpha) / (o - alpha))^(1/k) with
    o = (alpha + 1/4)/2, wider than the paper's, which would need millions of rewards. With m bins
    and g = (1 - 4o)/3 (0.2 without contamination) the threshold is

        B >= 2 max{(8/g^2) log(8m/delta), (8/(g epsilon)) log(4m/delta)}.

    Each estimate is within beta of its mean with probability 1 - delta, both steps together; there
    is one for each arm and batch, so that all hold with probability 1 - arms log2(T) delta.

    Privacy:
        epsilon-differential privacy of the whole trajectory, for the rewards as they were
        observed, outliers included. Each reward enters one fold of one batch: a histogram, in
        which it moves two counts that are each released at epsilon/2, or a sum of sensitivity 2M
        about a J that is known by then. M, B and the bins are public, the active set follows from
        what was released. Which fold a reward enters depends on the order of decisions alone. A
        batch that the horizon cuts off decides nothing.

    Parameters:
        epsilon: privacy loss.
        moment_order: k, at least 2.
        moment_bound: bound on E|X - mean|^k of the clean rewards of every arm.
        mean_range: D, the means lie in [-D, D]; at least 2r in the units above.
        contamination: alpha, a bound on the share of outliers, below 1/4.
        horizon: T, rounds that will be played; sets failure_probability.
        failure_probability: delta, of one estimate; 1/horizon by default.
        radius_scale: multiplies beta; privacy is untouched. Batches are powers of two and stay so.
        threshold: batches with fewer pulls remove no arm; by default as above.
        first_phase: what these are spent on: an arm drawn for the batch ("uniform") or for each
            round ("each-round"), their rewards unused; or the arm with the highest released
            estimate ("greedy"), or it or any arm with equal chance ("half-greedy").

    Example:
        >>> import balaclava as bl
        >>> policy = bl.policy("prae-central", arms=5, epsilon=1.0, moment_order=2, mean_range=100,
        ...                    horizon=10**6)
        >>> round(policy.needed_threshold)
        8034

    References:
        Wu, Zhou, Tao, Wang. On private and robust bandits. NeurIPS 2023.

    See Also:
        prae-raw, dpr-batch-ucb
    """

    name = "prae-central"
    reference = "Wu, Zhou, Tao, Wang 2023"
    central_moments: ClassVar[bool] = True
    pools: ClassVar[str] = "batch.epochs"
    kernels: ClassVar[Kernels] = Kernels(begin, choose, learn, forget)
    assumptions: ClassVar[tuple[str, ...]] = (
        "a reward further from the located centre than the truncation level counts as the centre",
    )
    mean_range: MeanRange
    examples = (
        {
            "horizon": 600,
            "moment_order": 2,
            "mean_range": 7,
            "threshold": 0,
            "radius_scale": 0.02,
        },
        {
            "horizon": 600,
            "moment_order": 4,
            "moment_bound": 16.0,
            "mean_range": 10,
            "contamination": 0.1,
            "threshold": 8,
            "radius_scale": 0.02,
            "first_phase": "greedy",
        },
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.contamination >= _BREAKDOWN:
            raise self.refuse(
                "contamination",
                f"is not below {_BREAKDOWN:g}, from where on outliers can fill a bin of the "
                "histogram as well as the mean does; give less, or take prae-raw",
            )
        width, _ = self._bins()
        if self.mean_range < 2 * width:
            raise self.refuse(
                "mean_range",
                f"is below 2r = {2 * width:g}, r the width of the bins; give at least that: a "
                "larger range holds as well",
            )
        if 2 * (self.mean_range + width) / width > _MOST_BINS:
            raise self.refuse(
                "mean_range",
                f"makes more than {_MOST_BINS:,} bins of width {width:.3g}; give a smaller range, "
                "or subtract a rough mean from the rewards",
            )
        self.require_levels()

    def _bins(self) -> tuple[float, float]:
        """r in the units of the rewards, and the margin g."""
        width, margin = located_width(self.moment_order, self.contamination)
        return width * self.moment_bound ** (1.0 / self.moment_order), margin

    @property
    def bins(self) -> int:
        """m, the bins that cover [-D - r, D + r)."""
        width, _ = self._bins()
        return math.ceil(2 * (self.mean_range + width) / width)

    @property
    def needed_threshold(self) -> float:
        _, margin = self._bins()
        return 2 * located_threshold(self.bins, margin, self.epsilon, failure_probability_of(self))

    def constants(self) -> Params:
        width, _ = self._bins()
        c = self.moment_bound ** (1.0 / self.moment_order) + 2 * width
        # Half of delta is for the first step.
        terms = mixed_terms(self.contamination, failure_probability_of(self) / 2)
        return self.frame(c, terms)._replace(
            folds=2, low=-self.mean_range - width, width=width, bins=self.bins
        )

    @property
    def _largest_mean(self) -> float:
        return self.mean_range

    def _is_proved_for(self, environment: Any) -> bool:
        if not super()._is_proved_for(environment):
            return False
        return bool(np.abs(environment.means).max() <= self.mean_range)
