"""Private and robust arm elimination (Wu, Zhou, Tao, Wang 2023, Algorithm 1).

Shared by prae-raw and prae-central, which differ in their estimate of a batch's mean.
"""

import math
from collections.abc import Iterator
from typing import Annotated, Any, Literal, NamedTuple, get_args

import numpy as np

from balaclava._core import declared
from balaclava._core.kernels import kernel
from balaclava._core.states import MOST_PLANNED, range_faults, stored_as
from balaclava.frames import epochs as frame
from balaclava.frames.blocks import block_is_over
from balaclava.frames.pools import UNLEARNED
from balaclava.policies.base import PrivateRealPolicy, failure_or_inverse_horizon
from balaclava.policies.pooled_policies import SAME_EPOCHS, PooledPolicy
from balaclava.policies.theorem_conditions import moments_hold, require_levels
from balaclava.privacy.mechanisms.truncation import exact_step
from balaclava.theory.elimination_regret import elimination_regret, worst_elimination_regret
from balaclava.theory.truncation_radius import (
    RadiusTerms,
    level_ratio,
    truncation_level,
    truncation_radius,
)

FirstPhase = Literal["uniform", "each-round", "greedy", "half-greedy"]
_UNIFORM_PHASE, EACH_ROUND, _GREEDY_PHASE, HALF_GREEDY = range(len(get_args(FirstPhase)))
Order = Annotated[float, declared.Range(2, meaning="order of the known moment, k")]
Threshold = Annotated[float, declared.Range(0, meaning="least pulls in a batch that removes arms")]


class Params(NamedTuple):
    arms: int
    epsilon: float
    order: float  # k
    scale: float  # the unit in which a k-th moment is at most 1
    most: float  # alpha_1^(-1/k), the largest level, in that unit
    level_ratio: float  # epsilon / log(1/delta)
    terms: RadiusTerms
    radius_scale: float
    threshold: float
    first_phase: int
    folds: int  # parts of a batch; the last part is averaged
    low: float  # lower end of the histogram, if there is one
    width: float  # of a bin
    bins: int
    explore: float
    holdout: float


@stored_as(below_threshold="first", unused_left="rest", unused_arm="pick")
class PraeState(NamedTuple):
    """The open batches, each an epoch; by row, the values fixed when each opened."""

    epochs: frame.Epochs
    level: np.ndarray  # [row]: the truncation level, M
    step: np.ndarray  # [row]: of the grid on which a sum of its rewards is exact
    below_threshold: np.ndarray  # [row]: whether the batch is below the threshold
    size: np.ndarray  # one element: B of the newest batch
    unused_left: np.ndarray  # one element: decisions left whose rewards are not used
    unused_arm: np.ndarray  # one element: the arm of these decisions
    means: np.ndarray  # [arm]: the last released estimate; inf: none yet

    def faults(self, decisions: int) -> Iterator[str]:
        yield from range_faults(0, MOST_PLANNED, size=self.size, unused_left=self.unused_left)
        yield from range_faults(0, self.means.size - 1, unused_arm=self.unused_arm)
        yield from range_faults(-math.inf, math.inf, means=self.means)
        yield from range_faults(0.0, math.inf, level=self.level, step=self.step)


@kernel
def begin_elimination(params: Params, rows: int = 2) -> PraeState:
    """All arms active, no batch open; at most `rows` batches may be open."""
    return PraeState(
        epochs=frame.begin_epochs(params.arms, rows),
        level=np.zeros(rows),
        step=np.zeros(rows),
        below_threshold=np.zeros(rows, np.bool_),
        size=np.zeros(1, np.int64),
        unused_left=np.zeros(1, np.int64),
        unused_arm=np.zeros(1, np.int64),
        means=np.full(params.arms, math.inf),
    )


@kernel(borrows=True)
def next_size(params: Params, state: PraeState, rng: Any) -> None:
    """Start the next size: B = 2, 4, 8, ... In the first phase rewards may go unused."""
    state.size[0] = max(2 * state.size[0], 2)
    if state.size[0] < params.threshold and params.first_phase <= EACH_ROUND:
        state.unused_left[0] = state.size[0]
        state.unused_arm[0] = -1


@kernel(borrows=True)
def open_batch(params: Params, state: PraeState, length: int, only: int) -> int:
    """Open the epoch of the batch, with `length` pulls of each of its arms; returns its row."""
    row = frame.open_epoch(state.epochs, length, only)
    state.below_threshold[row] = state.size[0] < params.threshold
    state.level[row] = level_of(params, state.size[0])
    state.step[row] = exact_step(state.level[row], frame.capacity(length))
    return row


@kernel(borrows=True)
def unused_pull(params: Params, state: PraeState, rng: Any) -> tuple[int, int]:
    """A decision of the first phase whose reward is not used."""
    state.unused_left[0] -= 1
    state.epochs.chance[0] = 1.0
    state.epochs.equally_likely[0] = 1
    if state.unused_arm[0] < 0 or params.first_phase == EACH_ROUND:
        state.unused_arm[0] = int(rng.random() * params.arms)
        state.epochs.equally_likely[0] = params.arms
    return state.unused_arm[0], UNLEARNED


@kernel(borrows=True)
def level_of(params: Params, size: int) -> float:
    """M of a batch."""
    unit = truncation_level(size // params.folds, params.order, params.level_ratio, params.most)
    return params.scale * unit


@kernel(borrows=True)
def radius_with(params: Params, level: float, step: float, n: int) -> float:
    """beta of a mean of n rewards at a level, plus the largest error of rounding to a grid."""
    radius = truncation_radius(level / params.scale, n, params.order, params.epsilon, params.terms)
    return float(params.radius_scale * (params.scale * radius + step))


@kernel(borrows=True)
def is_enough(params: Params, rewards: int) -> bool:
    """Whether so many rewards of an arm, in one fold of a batch, reach the threshold.

    The threshold is one of rewards: if some are lost, a larger batch may not reach it.
    """
    return bool(params.folds * rewards >= params.threshold)


@kernel(borrows=True)
def keep_estimate(
    params: Params, state: PraeState, arm: int, row: int, total: float, proved: bool
) -> None:
    """Keep the released sum of a batch; the arm is compared only if its radius is proved."""
    epochs = state.epochs
    n = epochs.rewards_in_epoch[arm, row]
    radius = radius_with(params, state.level[row], state.step[row], n)
    frame.keep_release(epochs, arm, row, total, radius)
    state.means[arm] = epochs.means[arm]
    if not proved:
        epochs.radii[arm] = math.inf


@kernel(borrows=True)
def radius_of(params: Params, size: int) -> float:
    """beta of a full batch."""
    level, n = level_of(params, size), size // params.folds
    return radius_with(params, level, exact_step(level, frame.capacity(n)), n)


@kernel(borrows=True)
def choose_in_batches(
    params: Params, state: PraeState, t: int, context: Any, rng: Any
) -> tuple[int, int]:
    if state.unused_left[0] == 0 and frame.needs_epoch(state.epochs):
        next_size(params, state, rng)
        if state.unused_left[0] == 0:
            open_batch(params, state, state.size[0], arm_of_batch(params, state, rng))
    if state.unused_left[0] > 0:
        return unused_pull(params, state, rng)
    return frame.next_decision(params, state.epochs, rng)


@kernel(borrows=True)
def arm_of_batch(params: Params, state: PraeState, rng: Any) -> int:
    """The only arm of a batch in the first phase, at random or by released means; otherwise -1.

    An arm that waits in an earlier batch is not asked again, unless all wait.
    """
    epochs = state.epochs
    if state.size[0] >= params.threshold:
        return -1
    if params.first_phase == HALF_GREEDY and rng.random() < 0.5:
        return int(rng.random() * params.arms)
    best = -1
    for arm in range(params.arms):
        waits = False
        for row in range(epochs.left.size):
            waits = waits or frame.awaited(epochs, arm, row) > 0
        if not waits and (best < 0 or state.means[arm] > state.means[best]):
            best = arm
    return best if best >= 0 else int(np.argmax(state.means))


@kernel(borrows=True)
def end_batch(params: Params, state: PraeState, row: int, compare: bool) -> None:
    """Remove the arms that are 2 beta behind, and end the batch.

    A batch that opened while this one waited covers all decisions made since, rounded up to a power
    of two.
    """
    epochs = state.epochs
    if compare and not state.below_threshold[row]:
        frame.eliminate_arms(epochs)
    asked = epochs.blocks_done[0] + (0 if block_is_over(epochs.blocks) else 1)
    length = epochs.length[0]
    if epochs.number[0] > epochs.oldest[0]:
        while length < asked:
            length *= 2
            state.size[0] *= 2
    frame.end_epoch(epochs, length)


class PraePolicy(PooledPolicy, PrivateRealPolicy):
    """Parameters and regret bounds of prae-raw and prae-central.

    Parameters:
        failure_probability: delta, of one estimate; 1/horizon by default.
        radius_scale: multiplies beta; privacy and batch sizes are unaffected.
        threshold: batches with fewer pulls remove no arm; by default what the radius needs.
        first_phase: the arm of these batches. "uniform": drawn for the batch; "each-round": drawn
            for each round; the rewards of both go unused. "greedy": the arm with the highest
            released estimate; "half-greedy": that arm or a random one, with equal chance.
    """

    pools = "epochs"
    fixed_arms = SAME_EPOCHS
    epsilon: declared.Epsilon
    moment_order: Order
    moment_bound: declared.MomentBound = 1.0
    contamination: declared.Contamination = 0.0
    horizon: declared.Horizon | None = None
    failure_probability: declared.FailureProbability | None = None
    radius_scale: declared.RadiusScale = 1.0
    threshold: Threshold | None = None
    first_phase: Annotated[FirstPhase, declared.Range(meaning="arm of smaller batches")] = "uniform"

    def propensity(self, state: Any, arm: int) -> float | None:
        """None in a half-greedy first phase: the draw of a batch's arm has no recorded chance."""
        batch = getattr(state, "batch", state)  # prae-central has it inside its own state
        first = batch.size[0] < self.constants().threshold
        half = self.first_phase == "half-greedy"
        return None if first and half else super().propensity(state, arm)

    def __post_init__(self) -> None:
        super().__post_init__()
        failure_or_inverse_horizon(self)

    def require_levels(self) -> None:
        params = self.constants()
        require_levels(self, level_of(params, 2), level_of(params, 2**60))

    @property
    def needed_threshold(self) -> float:
        """The least pulls in a batch for which the radius is proved."""
        raise NotImplementedError

    def frame(self, scale: float, terms: RadiusTerms) -> Params:
        alpha, delta = self.contamination, failure_or_inverse_horizon(self)
        return self.fill(
            Params,
            order=self.moment_order,
            scale=scale,
            most=alpha ** (-1.0 / self.moment_order) if alpha else math.inf,
            level_ratio=level_ratio(self.moment_order, self.epsilon, delta),
            terms=terms,
            threshold=self.needed_threshold if self.threshold is None else self.threshold,
            first_phase=get_args(FirstPhase).index(self.first_phase),
            **{"folds": 1, "low": 0.0, "width": 0.0, "bins": 0},
        )

    def batches(self, rounds: int) -> Iterator[tuple[int, float]]:
        """Size and radius of the batches that remove arms within `rounds` rounds."""
        params, size = self.constants(), 2
        while size <= rounds:
            if size >= params.threshold:
                yield size, float(radius_of(params, size))
            size *= 2

    def proved_bound(self, environment: Any, horizon: int) -> float | None:
        """From the radii, with their constants, batch by batch.

        An arm is dropped at the end of the first batch whose 4 beta is below its gap. Under
        contamination there may be no such batch, and the regret is then linear. All estimates, one
        for each arm and batch, hold together with probability at least
        1 - failure_probability * (arms * batches). None if the environment violates the policy's
        assumptions, or if radius_scale or threshold is below the proved values.
        """
        if not (self._is_proved and moments_hold(self, environment, rounding=1e-9)):
            return None
        gaps, wasted = environment.gaps, self._rounds_below_the_threshold(horizon)
        cost = gaps.mean() if self.constants().first_phase <= EACH_ROUND else gaps.max()
        phases = list(self.batches(horizon))
        failure = failure_or_inverse_horizon(self) * self.arms * len(phases)
        later = elimination_regret(gaps, phases, horizon - wasted, failure)
        return float(wasted * cost + later)

    def worst_case_bound(self, horizon: int) -> float | None:
        """The same bound for all gaps, for rewards that satisfy the assumptions; None if unproved.

        The upper bounds of Theorems 6.2, 6.10 and 6.12, with constants.
        """
        if not self._is_proved or self.draws_evenly:
            return None
        wasted, largest = self._rounds_below_the_threshold(horizon), 2.0 * self._largest_mean
        phases = list(self.batches(horizon))
        pulls = np.cumsum([float(size) for size, _ in phases]).tolist()
        steps = [(4.0 * beta, total) for (_, beta), total in zip(phases, pulls, strict=True)]
        failure = failure_or_inverse_horizon(self) * self.arms * len(phases)
        later = worst_elimination_regret(self.arms, steps, horizon - wasted, failure, largest)
        return float(wasted * largest + later)

    @property
    def _largest_mean(self) -> float:
        """Bound on |mean|, since |mean|^k <= E|X|^k."""
        return float(self.moment_bound ** (1.0 / self.moment_order))

    def _rounds_below_the_threshold(self, horizon: int) -> int:
        """2 + 4 + ... rounds, during which no arm is removed."""
        threshold, wasted = self.constants().threshold, 0
        while wasted + 2 < threshold and wasted < horizon:
            wasted += wasted + 2
        return min(wasted, horizon) if self.arms > 1 else 0

    @property
    def _is_proved(self) -> bool:
        """Whether the constants are at least those of the proof."""
        known = self.threshold is None or self.threshold >= self.needed_threshold
        return self.radius_scale >= 1.0 and known
