"""PRAE with central moments (Wu et al. 2023, Algorithms 1 and 3, Theorems 6.10 and 6.12)."""

import math
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from balaclava._core.declared import MeanRange
from balaclava._core.kernels import kernel
from balaclava._core.states import added_later, range_faults, stored_as
from balaclava.frames import epochs as frame
from balaclava.policies.base import Kernels, failure_or_inverse_horizon, register
from balaclava.policies.contaminated import prae
from balaclava.privacy.mechanisms.laplace import laplace_release, private_argmax_histogram
from balaclava.privacy.mechanisms.truncation import truncated_onto
from balaclava.theory.truncation_radius import located_threshold, located_width, mixed_terms

_MOST_BINS = 10**6  # of the histogram: each takes memory and a draw of noise per arm and batch
# From this share of outliers on, they may fill a bin as well as the mean does: `located_width`
# needs o below 1/4.
_BREAKDOWN = 0.25


@added_later("sure", "sure_centre")
@stored_as(has_centre="counted", is_first_fold="locates", second_due="second")
class State(NamedTuple):
    """The batches, each fold a separate epoch; histograms, and the centres they released."""

    batch: prae.PraeState
    counts: np.ndarray  # [arm, row, bin]: raw
    centres: np.ndarray  # [arm]: J, the left end of the fullest bin of its last histogram
    located: np.ndarray  # [arm]: whether it has a centre
    sure: np.ndarray  # [arm]: whether enough rewards located it
    centre: np.ndarray  # [arm, row]: J for a second fold
    has_centre: np.ndarray  # [arm, row]: whether the second fold has a J
    sure_centre: np.ndarray  # [arm, row]: whether enough rewards located it
    is_first_fold: np.ndarray  # [row]
    second_due: np.ndarray  # one element: whether a second fold is due

    def faults(self, decisions: int) -> Iterator[str]:
        yield from range_faults(0, decisions, counts=self.counts)


@kernel
def begin(params: prae.Params) -> State:
    arms = params.arms
    return State(
        batch=prae.begin_elimination(params),
        counts=np.zeros((arms, 2, params.bins), np.int64),
        centres=np.zeros(arms),
        located=np.zeros(arms, np.bool_),
        sure=np.zeros(arms, np.bool_),
        centre=np.zeros((arms, 2)),
        has_centre=np.zeros((arms, 2), np.bool_),
        sure_centre=np.zeros((arms, 2), np.bool_),
        is_first_fold=np.zeros(2, np.bool_),
        second_due=np.zeros(1, np.bool_),
    )


@kernel(borrows=True)
def choose(params: prae.Params, state: State, t: int, context: Any, rng: Any) -> tuple[int, int]:
    batch = state.batch
    if batch.unused_left[0] == 0 and frame.needs_epoch(batch.epochs):
        open_fold(params, state, rng)
    if batch.unused_left[0] > 0:
        return prae.unused_pull(params, batch, rng)
    return frame.next_decision(params, batch.epochs, rng)


@kernel(borrows=True)
def open_fold(params: prae.Params, state: State, rng: Any) -> None:
    """Open the second fold, truncated about the released centres, or the first of a new batch.

    If the first fold still waits for rewards and no centre is known, open another first fold.
    """
    batch = state.batch
    only = batch.epochs.only[frame.epoch_row(batch.epochs, batch.epochs.number[0])]
    if state.second_due[0] and any_located(state, only):
        row = prae.open_batch(params, batch, batch.size[0] // 2, only)
        state.second_due[0] = False
        state.is_first_fold[row] = False
        for arm in range(params.arms):
            state.centre[arm, row] = state.centres[arm]
            state.has_centre[arm, row] = state.located[arm]
            state.sure_centre[arm, row] = state.sure[arm]
        return
    if not state.second_due[0]:
        prae.next_size(params, batch, rng)
    if batch.unused_left[0] == 0:
        only = prae.arm_of_batch(params, batch, rng)
        row = prae.open_batch(params, batch, batch.size[0] // 2, only)
        state.second_due[0] = True
        state.is_first_fold[row] = True


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
def locate(params: prae.Params, state: State, arm: int, row: int, rng: Any) -> None:
    """Release the fullest bin of an arm, and empty its histogram."""
    fullest = private_argmax_histogram(rng, state.counts[arm, row], params.epsilon)
    state.centres[arm] = params.low + fullest * params.width
    state.located[arm] = True
    state.sure[arm] = prae.is_enough(params, state.batch.epochs.rewards_in_epoch[arm, row])
    for j in range(params.bins):
        state.counts[arm, row, j] = 0


@kernel(borrows=True)
def release(params: prae.Params, state: State, arm: int, row: int, rng: Any) -> None:
    """Release an arm's centre after a first fold, its mean after a second."""
    batch, epochs = state.batch, state.batch.epochs
    if state.is_first_fold[row]:
        locate(params, state, arm, row, rng)
        return
    n, M = epochs.rewards_in_epoch[arm, row], batch.level[row]
    total = laplace_release(rng, epochs.sums[arm, row], 2.0 * M, params.epsilon)
    total += n * state.centre[arm, row]
    prae.keep_estimate(params, batch, arm, row, total, state.sure_centre[arm, row])


@kernel(borrows=True)
def finish(params: prae.Params, state: State, row: int) -> None:
    prae.end_batch(params, state.batch, row, not state.is_first_fold[row])


learn_value, forget_decision = frame.epoch_driver(release, finish)


@kernel(borrows=True)
def learn(
    params: prae.Params, state: State, t: int, arm: int, reward: float, phase: int, rng: Any
) -> None:
    epochs = state.batch.epochs
    if not frame.is_learned(epochs, arm, phase):
        return
    row = frame.epoch_row(epochs, phase)
    if state.is_first_fold[row]:
        place = (reward - params.low) / params.width
        if 0.0 <= place < params.bins:  # rewards beyond the histogram are not counted
            state.counts[arm, row, int(place)] += 1
        learn_value(params, state, epochs, arm, 0.0, phase, rng)
    elif state.has_centre[arm, row]:
        offset = reward - state.centre[arm, row]
        value = truncated_onto(offset, state.batch.level[row], state.batch.step[row])
        learn_value(params, state, epochs, arm, value, phase, rng)
    else:  # the arm has no centre yet
        forget_decision(params, state, epochs, arm, phase, rng)


@kernel(borrows=True)
def forget(params: prae.Params, state: State, t: int, arm: int, phase: int, rng: Any) -> None:
    forget_decision(params, state, state.batch.epochs, arm, phase, rng)


@register
class PRAECentral(prae.PraePolicy):
    r"""Elimination in doubling batches that locates each mean, then truncates rewards about it.

    For rewards with a known k-th central moment, k >= 2, about a mean that may be far from 0; a
    share may be arbitrary outliers. A large mean_range lengthens the first phase by its logarithm;
    prae-raw would pay in every radius. If means are near 0, prae-raw is far better: it needs no
    first phase and its radius is several times smaller.

    Batches B = 2^tau below a threshold are spent on one arm each (`first_phase`). From there on
    pull every active arm B times, n = B/2 for each of two folds. In units of moment_bound^(1/k),
    with bins of width r over [-D - r, D + r), D = mean_range, and c = 1 + 2r:

    .. math:: m_a = J + (1/n) \sum (x - J) 1\{|x - J| \le M\} + \mathrm{Lap}(2M/(n \varepsilon)),

    .. math:: M = c \min\{(n \varepsilon / \log(1/\delta))^{1/k},\; \alpha^{-1/k}\},

    summed over the second fold. J is the left end of the bin with the largest share of the first
    fold + Lap(2/(n epsilon)). In M, epsilon counts as at most 4.5 (k - 1); beyond that beta would
    grow again. Remove a if max m - m_a > 2 beta, where beta, which the paper gives up to
    constants, is

    .. math::
        c \sqrt{2 (1 + \alpha (M/c)^2) L / n} + 2 M L / (3n) + c^k M^{1-k} + \alpha (M + c)
        + (2M / (n \varepsilon)) \log(4/\delta), \quad L = \log(8/\delta).

    r = 10^(1/k) without contamination; otherwise r = ((1 - alpha) / (o - alpha))^(1/k) with
    o = (alpha + 1/4)/2. The paper's narrower bins would need millions of rewards. With m bins and
    g = (1 - 4o)/3 (0.2 without contamination) the threshold is

    .. math:: B \ge 2 \max\{(8/g^2) \log(8m/\delta),\; (8/(g \varepsilon)) \log(4m/\delta)\}.

    Each estimate, both steps together, is within beta of its mean with probability 1 - delta. There
    is one for each arm and batch, so all hold with probability 1 - arms log2(T) delta. If rewards
    are late or lost, an arm whose J comes from fewer rewards than the threshold needs is not
    compared.

    Privacy:
        epsilon-differential privacy of the whole trajectory, for the observed rewards, outliers
        included. Each reward enters one fold of one batch: a histogram, in which it moves two
        counts that are each released at epsilon/2, or a sum of sensitivity 2M about an earlier
        released J. M, B and the bins are public; the active set follows from released values. The
        fold of a reward depends on the order of decisions alone. A batch that the horizon cuts off
        decides nothing.

    Parameters:
        moment_bound: bound on E|X - mean|^k of the clean rewards of every arm.
        mean_range: D, the means lie in [-D, D]; at least 2r in the units above.
        contamination: alpha, a bound on the share of outliers, below 1/4.

    Example:
        >>> policy = bl.policy("prae-central", arms=5, epsilon=1.0, moment_order=2, mean_range=100,
        ...                    horizon=10**6)
        >>> round(policy.needed_threshold)
        8034
    """

    name = "prae-central"
    reference = "Wu, Zhou, Tao, Wang 2023"
    see_also = "prae-raw, dpr-batch-ucb"
    pools = "batch.epochs"
    kernels = Kernels(begin, choose, learn, forget)
    assumptions = (
        "a reward further from the located centre than the truncation level counts as the centre",
    )
    mean_range: MeanRange
    examples = (
        dict(horizon=600, moment_order=2, mean_range=7, threshold=0, radius_scale=0.02),
        dict(horizon=600, moment_order=4, moment_bound=16.0, mean_range=10, contamination=0.1)
        | dict(threshold=8, radius_scale=0.02, first_phase="greedy"),
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.contamination >= _BREAKDOWN:
            raise self.refuse(
                "contamination",
                f"is too large: from {_BREAKDOWN:g} on, outliers can fill a bin of the histogram "
                "as well as the mean does; give less, or use prae-raw",
            )
        width, _ = self._bins()
        if self.mean_range < 2 * width:
            raise self.refuse(
                "mean_range",
                f"is below {2 * width:g}, two bins of the histogram; give at least that: a larger "
                "range is always valid",
            )
        if 2 * (self.mean_range + width) / width > _MOST_BINS:
            raise self.refuse(
                "mean_range",
                f"needs more than {_MOST_BINS:,} bins of width {width:.3g}; give a smaller range, "
                "or subtract a rough mean from the rewards",
            )
        self.require_levels()

    def _bins(self) -> tuple[float, float]:
        """r in the unit of the rewards, and the margin g."""
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
        return 2 * located_threshold(
            self.bins, margin, self.epsilon, failure_or_inverse_horizon(self)
        )

    def fill_added(self, state: State) -> None:
        """An earlier version did not note how many rewards located a centre."""
        if self.constants().threshold == 0.0:
            state.sure[:], state.sure_centre[:] = state.located, state.has_centre

    def constants(self) -> prae.Params:
        width, _ = self._bins()
        c = self.moment_bound ** (1.0 / self.moment_order) + 2 * width
        # Half of delta is for the first step.
        terms = mixed_terms(self.contamination, failure_or_inverse_horizon(self) / 2)
        return self.frame(c, terms)._replace(
            folds=2, low=-self.mean_range - width, width=width, bins=self.bins
        )

    @property
    def _largest_mean(self) -> float:
        return self.mean_range
