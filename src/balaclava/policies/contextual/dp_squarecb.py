"""DP-SquareCB: inverse-gap weighting on private moments (after Foster, Rakhlin 2020, Algorithm 1).

Proof: `dp_squarecb.proof.md` beside this file.
"""

import dataclasses
import math
from collections.abc import Iterator, Sequence
from typing import Annotated, Any, ClassVar, NamedTuple

import numpy as np

from balaclava._core.declared import Delta, Epsilon, Range
from balaclava._core.kernels import kernel
from balaclava._core.states import range_faults
from balaclava.errors import EstimateError
from balaclava.frames import pending
from balaclava.frames.moments import (
    Moments,
    add_moment,
    begin_moments,
    entries_of,
    give_up_moment,
    join_batch,
    keep_moments,
    overdue_row,
    unpack_moments,
    widest_move,
)
from balaclava.frames.pools import NO_ROW, UNLEARNED
from balaclava.frames.ridge import dot, factorise_if_definite, solve_factor, solve_transposed
from balaclava.policies.base import ArmRelease, Estimation, Kernels, register
from balaclava.policies.base import PrivateBoundedPolicy as PrivateBounded
from balaclava.policies.contextual import linear_context
from balaclava.privacy.exact_noise import grid_step
from balaclava.privacy.guarantee import JOINT_NEIGHBOURS, Guarantee
from balaclava.privacy.mechanisms.analytic_gaussian import (
    gaussian_fault,
    gaussian_shift,
    gaussian_vector_release,
)

# k: weight of r x beside x x'. From 1.4 to 2.8 the regret on tables is flat; the matrix needs the
# larger share, as its noise stands against its smallest eigenvalues.
REWARD_WEIGHT = 2.0
# Decisions of the first batch, in features times standard deviations of the noise at sensitivity 1.
# Flat from 0.5 to 3 on tables.
FIRST_BATCH = 1.0
# Shift of the matrix, in bounds on the eigenvalues of its noise; flat from 0.5 to 1 on tables.
SHIFT = 0.7

FirstBatch = Annotated[int, Range(1, 2**53, "decisions of the first batch")]
BatchGrowth = Annotated[
    float, Range(1, 1e6, "growth of the decisions in all batches", open_low=True)
]
Greed = Annotated[float, Range(0, 1e12, "how fast arms with a lower estimate get rare")]

FEATURES_ARE_OWN = (
    "a participant's features, reward, arrival and request do not depend on the features or the "
    "reward of another, except through released values"
)
DECISION_IS_OWN = (
    "a participant's own decision, and its propensity, are shown to that participant and to the "
    "operator alone: lists and counts of decisions are not protected"
)


class Params(NamedTuple):
    arms: int
    features: int
    disjoint: bool
    reward_range: tuple[float, float]
    feature_bound: float
    outstanding: int
    epsilon: float
    delta: float
    first_batch: int
    growth: float
    greed: float
    weight: float
    sensitivity: float
    step: float  # grid step of an entry
    deviation: float  # of the noise in each entry


class State(NamedTuple):
    """The moments, and the coefficients fitted to their releases."""

    moments: Moments
    theta: np.ndarray  # [block, d]
    chances: np.ndarray  # [arm]: of the last decision
    # Scratch space
    matrix: np.ndarray  # [d, d]
    factor: np.ndarray  # [d, d]
    work: np.ndarray  # [d]

    def faults(self, decisions: int) -> Iterator[str]:
        yield from range_faults(0.0, 1.0 + 1e-9, chances=self.chances)
        if not np.isfinite(self.theta).all():
            yield "a coefficient is not finite"


@kernel
def begin(params: Params) -> State:
    blocks, d = params.arms if params.disjoint else 1, params.features
    return State(
        moments=begin_moments(blocks, d, params.outstanding),
        theta=np.zeros((blocks, d)),
        chances=np.full(params.arms, 1.0 / params.arms),
        matrix=np.zeros((d, d)),
        factor=np.zeros((d, d)),
        work=np.zeros(d),
    )


@kernel(borrows=True)
def choose(params: Params, state: State, t: int, context: np.ndarray, rng: Any) -> tuple[int, int]:
    weigh_by_gap(params, state, context)
    left, chosen = rng.random(), params.arms - 1
    for arm in range(params.arms):
        left -= state.chances[arm]
        if left < 0.0:
            chosen = arm
            break
    return chosen, note_decision(params, state, chosen, context)


@kernel(borrows=True)
def weigh_by_gap(params: Params, state: State, context: np.ndarray) -> None:
    """p(a) = 1 / (K + gamma gap(a)), the rest to the arm with the highest estimate."""
    best, highest, chances = 0, -math.inf, state.chances
    for arm in range(params.arms):
        block = linear_context.coefficient_block(state.theta.shape[0], arm)
        x = context[linear_context.context_row(context, arm)]
        chances[arm] = dot(state.theta[block], x) / params.feature_bound
        if chances[arm] > highest:
            best, highest = arm, chances[arm]
    gamma = params.greed * math.sqrt(state.moments.rewards[0] * params.arms / params.features)
    rest = 1.0
    for arm in range(params.arms):
        if arm != best:
            chances[arm] = 1.0 / (params.arms + gamma * (highest - chances[arm]))
            rest -= chances[arm]
    chances[best] = rest


@kernel(borrows=True)
def weigh(params: Params, state: State, context: np.ndarray, chances: np.ndarray) -> None:
    weigh_by_gap(params, state, context)
    for arm in range(params.arms):
        chances[arm] = state.chances[arm]


@kernel(borrows=True)
def note_decision(params: Params, state: State, arm: int, context: np.ndarray) -> int:
    """Keep the row of a decision until its reward comes; UNLEARNED if too many are open."""
    free = pending.free_note(state.moments.pending)
    if free == pending.FORGOTTEN:
        return UNLEARNED
    note = state.moments.pending.notes[free]
    linear_context.copy_features(params, context[linear_context.context_row(context, arm)], note)
    for i in range(params.features):
        note[i] /= params.feature_bound
    return join_batch(state.moments, params.first_batch, params.growth)


@kernel(borrows=True)
def release_batch(params: Params, state: State, row: int, rng: Any) -> None:
    """Release the vector of a settled batch, and fit all coefficients again."""
    if row == NO_ROW:
        return
    moments = state.moments
    gaussian_vector_release(
        rng, moments.sums[row], params.sensitivity, params.epsilon, params.delta,
        moments.last_release,
    )  # fmt: skip
    keep_moments(moments, row)
    for block in range(state.theta.shape[0]):
        fit_block(params, state, block)


@kernel(borrows=True)
def fit_block(params: Params, state: State, block: int) -> None:
    """theta = (G + shift I)^-1 b / k. The shift grows until the matrix is positive definite.

    The noise of G is symmetric, with variance s^2 m on the diagonal and half of that off it, for m
    releases: its eigenvalues are at most about s sqrt(2 d m).
    """
    theta, factor = state.theta[block], state.factor
    unpack_moments(state.moments.released, block, state.matrix, theta)
    bound = params.deviation * math.sqrt(2.0 * theta.size * state.moments.draws[0])
    least = max(SHIFT * bound, 1.0)
    shift = least
    while not factorise_if_definite(state.matrix, factor, shift - 0.25 * least):
        shift += 0.5 * least
    factorise_if_definite(state.matrix, factor, shift)
    solve_factor(factor, theta, state.work)
    solve_transposed(factor, state.work, theta)
    for i in range(theta.size):
        theta[i] /= params.weight


@kernel(borrows=True)
def release_overdue(params: Params, state: State, rng: Any) -> None:
    """Release batches at their deadlines, before a reward that comes after them is added."""
    row = overdue_row(state.moments)
    while row != NO_ROW:
        release_batch(params, state, row, rng)
        row = overdue_row(state.moments)


@kernel(borrows=True)
def learn(
    params: Params, state: State, t: int, arm: int, reward: float, phase: int, rng: Any
) -> None:
    block = linear_context.coefficient_block(state.theta.shape[0], arm)
    release_overdue(params, state, rng)
    row = add_moment(state.moments, block, phase, reward, params.weight, params.step)
    release_batch(params, state, row, rng)


@kernel(borrows=True)
def forget(params: Params, state: State, t: int, arm: int, phase: int, rng: Any) -> None:
    release_overdue(params, state, rng)
    release_batch(params, state, give_up_moment(state.moments, phase), rng)


class JointPolicy(linear_context.ContextualPolicy, PrivateBounded):
    """A policy that protects features and rewards from all but the participant: scope "joint"."""

    scope: ClassVar[Any] = "joint"

    @property
    def guarantee(self) -> Guarantee:
        """The guarantee, whose neighbours differ in one participant's features and reward."""
        joint = dataclasses.replace(super().guarantee, neighbours=JOINT_NEIGHBOURS)
        if self.long_features == "clip":
            return joint
        refused = (
            f"all rows of features are at most {self.feature_bound:g} long: a longer one is "
            "refused, and that it was refused is not hidden"
        )
        return dataclasses.replace(joint, assumptions=(*joint.assumptions, refused))


@register
class DPSquareCB(JointPolicy):
    r"""Draw the arm by inverse-gap weights, from noisy moments of features and rewards.

    The policy whose participants' features are confidential, such as a diagnosis: what all other
    participants see says almost nothing about the features or the reward of one. If features may be
    public, dp-kernel-ucb has a lower regret.

    Decisions are in batches of all arms together; all batches up to the j-th have n_1 g^(j-1)
    decisions. When all rewards of a batch are in, at the latest after as many decisions again, the
    sums of x x' and of (r - 1/2) x of every coefficient vector
    are released at once with Gaussian noise, and added to those before. With the sums G and b, fit

    .. math:: \theta = (G + \lambda I)^{-1} b,

    where lambda follows the noise, and grows until the matrix is clearly positive definite. The
    estimate of an arm is 1/2 + <theta, x>. With the gap of each arm to the highest of K estimates,
    draw an arm with probability

    .. math:: p_a = \frac{1}{K + \gamma \, gap_a}, \quad \gamma = g' \sqrt{K n / d},

    and the arm with the highest estimate otherwise; n rewards are in the releases, g' is `greed`.
    The chance of each decision is known. Before the first release arms are drawn evenly.

    Privacy:
        (epsilon, delta)-joint differential privacy: the decisions of all other participants, and
        all releases, hide the features and the reward of one. Its own decision is computed from its
        own features and is not covered, so a decision must not be shown to others. Each
        participant is in one vector of sums, which is released once, by the Gaussian mechanism.

    Parameters:
        delta: probability outside it, above 0.
        feature_bound: features are divided by it.
        first_batch: n_1; by default d times the standard deviation of the noise at sensitivity 1.
        batch_growth: g.
        greed: g'.

    Example:
        >>> world = bl.environment("linear", arms=5, theta=[0.7, 0.3, -0.4])
        >>> policy = bl.policy("dp-squarecb", arms=5, features=3, epsilon=1.0, delta=1e-5)
        >>> results = bl.simulate(policy, world, horizon=5_000, repetitions=10, seed=1)
        >>> round(float(results.final_regret("dp-squarecb").mean()))
        100
    """

    name = "dp-squarecb"
    reference = "after Foster, Rakhlin 2020"
    cites = "Foster, Rakhlin 2020; Shariff, Sheffet 2018"
    see_also = "dp-kernel-ucb, ldp-linucb, linucb"
    assumptions = (FEATURES_ARE_OWN, DECISION_IS_OWN)
    examples = (
        {"first_batch": 12, "outstanding": 512},
        {"disjoint": True, "first_batch": 12, "outstanding": 512},
    )
    kernels = Kernels(begin, choose, learn, forget)
    rule = linear_context.Rule(weigh, note_decision)
    epsilon: Epsilon
    delta: Delta
    first_batch: FirstBatch | None = None
    batch_growth: BatchGrowth = 1.5
    greed: Greed = 100.0

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.delta == 0.0:
            raise self.refuse("delta", "has no joint privacy by Gaussian noise; give one above 0")
        sets = self.arms if self.disjoint else 1
        fault = gaussian_fault(self.epsilon, self.delta, sets * entries_of(self.features))
        if fault:
            raise self.refuse("epsilon", fault)

    def constants(self) -> Params:
        noise = 1.0 / gaussian_shift(self.epsilon, self.delta)
        sensitivity = widest_move(self.features, REWARD_WEIGHT)
        first = min(max(FIRST_BATCH * noise * self.features, 1.0), 2.0**53)
        return self.fill(
            Params,
            first_batch=self.first_batch or math.ceil(first),
            growth=self.batch_growth,
            weight=REWARD_WEIGHT,
            sensitivity=sensitivity,
            step=grid_step(sensitivity),
            deviation=noise * sensitivity,
        )

    @property
    def blocks(self) -> int:
        """1: all coefficients are released together."""
        return 1

    def released(self, state: Any) -> Sequence[ArmRelease]:
        """One entry for all arms: counts by arm would depend on features."""
        rewards, draws = int(state.moments.rewards[0]), int(state.moments.draws[0])
        return [ArmRelease(arm=0, rewards=rewards, mean=math.nan, draws=draws, batches=draws)]

    def chances(self, state: Any) -> np.ndarray:
        """The chances of all arms in the last decision."""
        return np.asarray(state.chances)

    def require_estimates(self, failure: float) -> Estimation:
        raise EstimateError(
            f"{self.name} has no means of arms: a mean depends on the features, and a count by arm "
            "is not protected"
        )
