"""Private and robust arm elimination (Wu, Zhou, Tao, Wang 2023, Algorithm 1).

The frame of prae-raw and prae-central, which differ in how the mean of a batch is estimated.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Annotated, Any, ClassVar, Literal, NamedTuple, get_args

import numpy as np

from balaclava._core.declared import (
    Contamination,
    Epsilon,
    FailureProbability,
    Horizon,
    MomentBound,
    RadiusScale,
    Range,
)
from balaclava._core.kernels import kernel
from balaclava.frames.phases import (
    SPARE,
    Phases,
    begin_phases,
    choose_in_phases,
    drop_behind,
    open_phase,
)
from balaclava.policies.base import PrivateRealPolicy, failure_probability_of
from balaclava.policies.moments import meets_moment_bound
from balaclava.privacy.truncation import exact_step
from balaclava.theory.elimination import elimination_regret, worst_elimination_regret
from balaclava.theory.truncation_radius import (
    RadiusTerms,
    level_ratio,
    truncation_level,
    truncation_radius,
)

FirstPhase = Literal["uniform", "each-round", "greedy", "half-greedy"]
UNIFORM, EACH_ROUND, GREEDY, HALF_GREEDY = range(len(get_args(FirstPhase)))
_SMALLEST, _LARGEST = 1e-200, 1e200
Order = Annotated[float, Range(2, meaning="order of the known moment, k")]
Threshold = Annotated[float, Range(0, meaning="batches with fewer pulls remove no arm")]


class Params(NamedTuple):
    """What the kernels see."""

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
    folds: int  # parts of a batch, of which the last is averaged
    low: float  # where the histogram begins, if there is one
    width: float  # of a bin
    bins: int


class Elimination(NamedTuple):
    """The current batch. Scalars are arrays of one element."""

    phases: Phases
    level: np.ndarray  # its truncation level, M
    step: np.ndarray  # of the grid on which a sum of its rewards is exact
    first: np.ndarray  # whether it is one of the first phase
    only: np.ndarray  # then: the arm it is for, -1 while that is open
    means: np.ndarray  # the last released estimate of each arm; inf: none yet


@kernel
def begin_elimination(params: Params) -> Elimination:
    """All arms active; the first batch is open unless there is nothing to choose."""
    state = Elimination(
        begin_phases(params),
        np.zeros(1),
        np.zeros(1),
        np.zeros(1, np.bool_),
        np.zeros(1, np.int64),
        np.full(params.arms, math.inf),
    )
    if params.arms > 1:
        open_batch(params, state)
    return state


@kernel(borrows=True)
def open_batch(params: Params, state: Elimination) -> None:
    """B = 2, 4, 8, ... pulls: of one arm below the threshold, of every active arm above it."""
    phases = state.phases
    size = max(2 * phases.length[0], 2)
    open_phase(phases, size, True)
    state.level[0] = level_of(params, size)
    state.step[0] = exact_step(state.level[0], float(size))
    state.first[0] = size < params.threshold
    if state.first[0]:
        phases.waiting[0] = size
        state.only[0] = -1


@kernel(borrows=True)
def level_of(params: Params, size: int) -> float:
    """M of a batch."""
    unit = truncation_level(size // params.folds, params.order, params.level_ratio, params.most)
    return params.scale * unit


@kernel(borrows=True)
def radius_of(params: Params, size: int) -> float:
    """beta of a batch: the radius of its estimates, and what rounding to a grid can add."""
    level = level_of(params, size)
    radius = truncation_radius(
        level / params.scale, size // params.folds, params.order, params.epsilon, params.terms
    )
    return params.radius_scale * (params.scale * radius + exact_step(level, float(size)))


@kernel(borrows=True)
def choose_in_batches(
    params: Params, state: Elimination, t: int, context: Any, rng: Any
) -> tuple[int, int]:
    """`choose`: the next pull of the batch."""
    phases = state.phases
    if not state.first[0]:
        return choose_in_phases(params, phases, t, context, rng)
    if state.only[0] < 0 or params.first_phase == EACH_ROUND:
        state.only[0] = first_arm(params, state, rng)
    arm = state.only[0]
    if params.first_phase <= EACH_ROUND:  # nothing is learned, so nothing is waited for
        phases.waiting[0] -= 1
        if phases.waiting[0] == 0:
            open_batch(params, state)
        return arm, SPARE
    if phases.asked[arm] >= phases.length[0]:
        return arm, SPARE
    phases.asked[arm] += 1
    return arm, phases.number[0]


@kernel(borrows=True)
def first_arm(params: Params, state: Elimination, rng: Any) -> int:
    """The arm of a batch of the first phase: by chance, or by what was released."""
    if params.first_phase <= EACH_ROUND or (
        params.first_phase == HALF_GREEDY and rng.random() < 0.5
    ):
        return math.floor(rng.random() * params.arms)
    best = 0
    for arm in range(params.arms):
        if state.means[arm] > state.means[best]:
            best = arm
    return best


@kernel(borrows=True)
def end_batch(params: Params, state: Elimination) -> None:
    """Once the estimates are in `means`: remove the arms that are 2 beta behind, and go on."""
    phases = state.phases
    several = True
    if not state.first[0]:
        for arm in range(params.arms):
            phases.sums[arm] = state.means[arm]
        several = drop_behind(phases, 2.0 * radius_of(params, phases.length[0]))
    if several:
        open_batch(params, state)


@kernel(borrows=True)
def in_batch(state: Elimination, arm: int) -> bool:
    """Whether the current batch has rewards of this arm."""
    if state.first[0]:
        return arm == state.only[0]
    return state.phases.active[arm]


class EliminationPolicy(PrivateRealPolicy):
    """What prae-raw and prae-central share: their parameters, and a bound on their regret."""

    phased: ClassVar[bool] = True
    central_moments: ClassVar[bool] = False  # whether moment_bound is about |X - mean|
    epsilon: Epsilon
    moment_order: Order
    moment_bound: MomentBound = 1.0
    contamination: Contamination = 0.0
    horizon: Horizon | None = None
    failure_probability: FailureProbability | None = None
    radius_scale: RadiusScale = 1.0
    threshold: Threshold | None = None
    first_phase: Annotated[FirstPhase, Range(meaning="who gets batches below it")] = "uniform"

    def __post_init__(self) -> None:
        super().__post_init__()
        failure_probability_of(self)

    def require_levels(self) -> None:
        """Refuse parameters whose truncation levels leave no room for grids and noise."""
        params = self.constants()
        if not all(_SMALLEST < level_of(params, size) < _LARGEST for size in (2, 2**60)):
            raise self.refuse(
                "moment_bound",
                "gives truncation levels that 64-bit floats cannot hold; rescale the rewards, or "
                "raise epsilon",
            )

    @property
    def needed_threshold(self) -> float:
        """The fewest pulls in a batch for which the radius is proved."""
        raise NotImplementedError

    def frame(self, scale: float, terms: RadiusTerms) -> Params:
        """The constants that both policies have."""
        alpha, delta = self.contamination, failure_probability_of(self)
        return Params(
            self.arms,
            self.epsilon,
            self.moment_order,
            scale,
            alpha ** (-1.0 / self.moment_order) if alpha else math.inf,
            level_ratio(self.moment_order, self.epsilon, delta),
            terms,
            self.radius_scale,
            self.needed_threshold if self.threshold is None else self.threshold,
            get_args(FirstPhase).index(self.first_phase),
            folds=1,
            low=0.0,
            width=0.0,
            bins=0,
        )

    def batches(self, rounds: int) -> Iterator[tuple[int, float]]:
        """Size and radius of the batches that remove arms, as far as `rounds` rounds go."""
        params, size = self.constants(), 2
        while size <= rounds:
            if size >= params.threshold:
                yield size, float(radius_of(params, size))
            size *= 2

    def proved_bound(self, environment: Any, horizon: int) -> float | None:
        """From the radii, with their constants, by walking through the batches.

        An arm is dropped at the end of the first batch whose 4 beta is below its gap; under
        contamination there may be no such batch, and then its regret is linear. All estimates,
        one for each arm and batch, hold together with probability at least
        1 - failure_probability * (arms * batches). None where the environment breaks what the
        policy was told of it, and where radius_scale or threshold is below what is proved.
        """
        if not self._is_proved_for(environment):
            return None
        gaps, wasted = environment.gaps, self._rounds_below_the_threshold(horizon)
        cost = gaps.mean() if self.constants().first_phase <= EACH_ROUND else gaps.max()
        phases = list(self.batches(horizon))
        failure = failure_probability_of(self) * self.arms * len(phases)
        later = elimination_regret(gaps, phases, horizon - wasted, failure)
        return float(wasted * cost + later)

    def worst_case_bound(self, horizon: int) -> float | None:
        """The same whatever the gaps are, for rewards as the policy was told; None if unproved.

        The upper bounds of Theorems 6.2, 6.10 and 6.12, with constants.
        """
        if not self._is_proved:
            return None
        wasted, largest = self._rounds_below_the_threshold(horizon), 2.0 * self._largest_mean
        phases = list(self.batches(horizon))
        pulls = np.cumsum([float(size) for size, _ in phases]).tolist()
        steps = [(4.0 * beta, total) for (_, beta), total in zip(phases, pulls, strict=True)]
        failure = failure_probability_of(self) * self.arms * len(phases)
        later = worst_elimination_regret(self.arms, steps, horizon - wasted, failure, largest)
        return float(wasted * largest + later)

    @property
    def _largest_mean(self) -> float:
        """Up to its sign: |mean|^k <= E|X|^k."""
        return float(self.moment_bound ** (1.0 / self.moment_order))

    def _rounds_below_the_threshold(self, horizon: int) -> int:
        """2 + 4 + ... rounds, in which no arm is removed."""
        threshold, wasted = self.constants().threshold, 0
        while wasted + 2 < threshold and wasted < horizon:
            wasted += wasted + 2
        return min(wasted, horizon) if self.arms > 1 else 0

    @property
    def _is_proved(self) -> bool:
        """Whether the constants are those of the proof, or larger."""
        known = self.threshold is None or self.threshold >= self.needed_threshold
        return self.radius_scale >= 1.0 and known

    def _is_proved_for(self, environment: Any) -> bool:
        if not self._is_proved or environment.rounds is not None:  # a given table is no law
            return False
        if environment.share_of_outliers > self.contamination + 1e-12:
            return False
        return meets_moment_bound(self, environment, rounding=1e-9)
