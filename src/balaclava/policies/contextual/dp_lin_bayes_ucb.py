"""DP-LinBayesUCB: Bayes-UCB on reports and on sums (after Kaufmann, Cappe, Garivier 2012).

Proof of privacy: `dp_lin_bayes_ucb.proof.md` beside this file.
"""

import math
from collections.abc import Iterator, Sequence
from typing import Annotated, Any, NamedTuple

import numpy as np

from balaclava._core.declared import RadiusScale, Range
from balaclava._core.kernels import kernel, kernel_by_columns
from balaclava._core.states import range_faults
from balaclava.frames import pending
from balaclava.frames.episodes import Episodes, add_decision, add_reward, begin_episodes, give_up
from balaclava.frames.pools import NO_ROW, UNLEARNED
from balaclava.frames.ridge import (
    add_to_factor,
    dot,
    dots,
    factor_widths,
    factorise,
    solve_factor,
    solve_transposed,
)
from balaclava.policies.base import ArmRelease, Kernels, register
from balaclava.policies.contextual import linear_context
from balaclava.policies.contextual.private_sums import PrivateSumsPolicy, release_sum
from balaclava.privacy.exact_noise import grid_step
from balaclava.privacy.mechanisms.randomized_response import bernoulli_report

# Of an average row, |u|^2 is d. Rows of up to this multiple count in full.
FULL_INFLUENCE = 1.5
# By default the noise of a batch has this share of the variance that reports would add. A guess;
# batches that grow with the run are worse (docs/contextual.md).
NOISE_SHARE = 0.25
MOST_EPSILON = 100.0  # beyond it reports are exact in floats, and no batch is needed

Batch = Annotated[int, Range(1, 2**53, "decisions of a batch, and reported ones before the first")]


class Params(NamedTuple):
    arms: int
    features: int
    disjoint: bool
    reward_range: tuple[float, float]
    feature_bound: float
    ridge: float
    radius_scale: float
    outstanding: int
    epsilon: float
    delta: float
    batch: int
    influence: float  # c: the sensitivity of a sum
    deviation: float  # of the noise in each coordinate of a released sum
    step: float  # grid step of r a u
    spread: float
    report_variance: float  # of the scaled report


class State(NamedTuple):
    """The posterior of the coefficients given reports and released sums."""

    episodes: Episodes  # the batches
    factor: np.ndarray  # [block, d, d]: F of the precision F F'
    sums: np.ndarray  # [block, d]: precision times mean
    theta: np.ndarray  # [block, d]: the mean
    shape: np.ndarray  # [block, d, d]: Gram matrix of the first decisions, then its factor L
    asked: np.ndarray  # [block]: decisions to be learned from
    reports: np.ndarray  # [block]: reports received
    # Scratch space
    matrix: np.ndarray  # [d, d]
    half: np.ndarray  # [d, d]
    rows: np.ndarray  # [d, d]
    work: np.ndarray  # [d]
    row: np.ndarray  # [d]

    def faults(self, decisions: int) -> Iterator[str]:
        yield from range_faults(0, decisions, asked=self.asked, reports=self.reports)
        yield from range_faults(1e-300, math.inf, diagonal=np.einsum("bii->bi", self.factor))


@kernel
def begin(params: Params) -> State:
    blocks, d = params.arms if params.disjoint else 1, params.features
    state = State(
        episodes=begin_episodes(blocks, d, params.ridge, params.outstanding),
        factor=np.zeros((blocks, d, d)),
        sums=np.zeros((blocks, d)),
        theta=np.zeros((blocks, d)),
        shape=np.zeros((blocks, d, d)),
        asked=np.zeros(blocks, np.int64),
        reports=np.zeros(blocks, np.int64),
        matrix=np.zeros((d, d)),
        half=np.zeros((d, d)),
        rows=np.zeros((d, d)),
        work=np.zeros(d),
        row=np.zeros(d),
    )
    for block in range(blocks):
        for i in range(d):
            state.factor[block, i, i] = math.sqrt(params.ridge)
            state.shape[block, i, i] = params.ridge
    return state


def best_row(params: Params, state: State, context: np.ndarray) -> int:
    """`best_arm` with shared coefficients."""
    widths = params.radius_scale * factor_widths(state.factor[0], context)
    return int(np.argmax(dots(context, state.theta[0]) + widths))


@kernel_by_columns(best_row, linear_context.shares_coefficients)
def best_arm(params: Params, state: State, context: np.ndarray) -> int:
    best, highest, fewest = 0, -math.inf, 0
    for arm in range(params.arms):
        block = linear_context.coefficient_block(state.asked.size, arm)
        x = context[linear_context.context_row(context, arm)]
        solve_factor(state.factor[block], x, state.work)
        width = math.sqrt(dot(state.work, state.work))
        index = dot(state.theta[block], x) + params.radius_scale * width
        asked = state.asked[block]
        if index > highest or (index == highest and asked < fewest):
            best, highest, fewest = arm, index, asked
    return best


@kernel(borrows=True)
def choose(params: Params, state: State, t: int, context: np.ndarray, rng: Any) -> tuple[int, int]:
    best = best_arm(params, state, context)
    return best, note_decision(params, state, best, context)


@kernel(borrows=True)
def note_decision(params: Params, state: State, arm: int, context: np.ndarray) -> int:
    """Keep the row of a decision until its reward comes; UNLEARNED if too many are open."""
    free = pending.free_note(state.episodes.pending)
    if free == pending.FORGOTTEN:
        return UNLEARNED
    block, x = linear_context.coefficient_block(state.asked.size, arm), state.row
    linear_context.copy_features(params, context[linear_context.context_row(context, arm)], x)
    state.asked[block] += 1
    note = state.episodes.pending.notes[free]
    asked = state.asked[block]
    if asked > params.batch and asked % 2 == 1:
        whiten(params, state.shape[block], x, note[: x.size])
        return add_decision(state.episodes, block, params.batch, 0.0)
    note[x.size] = 0.0  # no batch: a report
    shape = state.shape[block]
    for i in range(x.size):
        note[i] = x[i]
    if asked <= params.batch:
        for i in range(x.size):
            for j in range(x.size):
                shape[i, j] += x[i] * x[j]
    if asked == params.batch:
        for i in range(x.size):
            for j in range(x.size):
                state.matrix[i, j] = shape[i, j] / params.batch
        factorise(state.matrix, shape)
    pending.new_note(state.episodes.pending)
    return state.episodes.pending.count[0]


@kernel(borrows=True)
def whiten(params: Params, shape: np.ndarray, x: np.ndarray, u: np.ndarray) -> None:
    """u = a L^-1 x, a^2 = min(1, c / |L^-1 x|); then a = min(1, c / |u|)."""
    solve_factor(shape, x, u)
    length = math.sqrt(dot(u, u))
    if length > params.influence:
        scale = math.sqrt(params.influence / length)
        for i in range(u.size):
            u[i] *= scale


@kernel(borrows=True)
def is_report(state: State, phase: int) -> bool:
    notes = state.episodes.pending
    row = phase % notes.numbers.size
    return bool(phase > 0 and notes.numbers[row] == phase and notes.notes[row, -1] == 0.0)


@kernel(borrows=True)
def learn(
    params: Params, state: State, t: int, arm: int, reward: float, phase: int, rng: Any
) -> None:
    block = linear_context.coefficient_block(state.asked.size, arm)
    notes = state.episodes.pending.notes
    note = notes[phase % notes.shape[0]]
    row = note[: note.size - 1]
    if is_report(state, phase):
        pending.take_note(state.episodes.pending, phase)
        bit = bernoulli_report(rng, reward, params.epsilon)
        learn_report(params, state, block, row, 0.5 + (bit - 0.5) / math.tanh(0.5 * params.epsilon))
        for i in range(row.size):
            row[i] = 0.0  # saves compress what is not needed
    else:
        length = math.sqrt(dot(row, row))
        share = 1.0 if length <= params.influence else params.influence / length
        batch = add_reward(state.episodes, block, phase, reward * share, params.step)
        settle_batch(params, state, block, batch, rng)


@kernel(borrows=True)
def learn_report(params: Params, state: State, block: int, x: np.ndarray, report: float) -> None:
    """Add x x' over the report's variance to the precision."""
    deviation = math.sqrt(params.report_variance)
    for i in range(x.size):
        state.row[i] = x[i] / deviation
        state.sums[block, i] += report * x[i] / params.report_variance
    add_to_factor(state.factor[block], state.row, state.work)
    state.reports[block] += 1
    renew_mean(state, block)


@kernel(borrows=True)
def renew_mean(state: State, block: int) -> None:
    solve_factor(state.factor[block], state.sums[block], state.work)
    solve_transposed(state.factor[block], state.work, state.theta[block])


@kernel(borrows=True)
def settle_batch(params: Params, state: State, block: int, batch: int, rng: Any) -> None:
    """Release a settled batch b: add L G C^-1 G L' to the precision and L G C^-1 b to the sums."""
    if batch == NO_ROW:
        return
    gram, shape = state.episodes.grams[block, batch], state.shape[block]
    rows, d = state.rows, params.features
    for i in range(d):
        for j in range(d):
            state.matrix[i, j] = params.spread * params.spread * gram[i, j]
        state.matrix[i, i] += params.deviation * params.deviation
    factorise(state.matrix, state.half)  # C = H H'
    for i in range(d):
        solve_factor(state.half, gram[i], rows[i])  # G H'^-1
    release_sum(params, params.influence, state.episodes, block, batch, rng)
    solve_factor(state.half, state.episodes.last_release, state.work)
    for back in range(d):
        i = d - 1 - back
        for k in range(d):
            total = 0.0
            for j in range(i + 1):
                total += shape[i, j] * rows[j, k]
            rows[i, k] = total  # L G H'^-1
    factor = state.factor[block]
    for i in range(d):
        state.sums[block, i] += dot(rows[i], state.work)
        for j in range(d):
            state.matrix[i, j] = dot(rows[i], rows[j]) + dot(factor[i], factor[j])
    factorise(state.matrix, factor)
    renew_mean(state, block)


@kernel(borrows=True)
def forget(params: Params, state: State, t: int, arm: int, phase: int, rng: Any) -> None:
    block = linear_context.coefficient_block(state.asked.size, arm)
    if is_report(state, phase):
        pending.take_note(state.episodes.pending, phase)
    else:
        settle_batch(params, state, block, give_up(state.episodes, block, phase), rng)


@register
class DPLinBayesUCB(PrivateSumsPolicy):
    r"""Play the arm with the highest posterior quantile, from single reports and from sums.

    The first choice for rewards that must be protected if the features of participants are known
    and may be public. ldp-linucb protects rewards from the operator as well, at a higher regret.

    The first `batch` rewards of each coefficient vector are released one by one, as random bits
    (see ldp-linucb): the policy learns from each at once. Of the later ones, every other is
    reported too. The rest are summed in batches of that size, and each sum is released once, with
    noise of the shape of the features. With the factor L of the mean of x x' over the first
    decisions (plus ridge/batch I), a row is w = L^-1 x. Its weight is a^2 = min(1, c/norm(w)),
    c^2 = 1.5 d: then no reward moves the sum by more than c. Given theta, the sum b of a^2 r w is
    about N(G L' theta, C), where G is the sum of a^2 w w', C = v^2 G + s^2 I, v = 1/2 and s
    the noise. With the prior N(0, I/lambda) the posterior is normal, and the policy plays the arm
    with the largest

    .. math:: \langle \mu, x \rangle + q \sqrt{x' P^{-1} x},

    with its mean, precision P and q = `radius_scale`. Noise in all directions alike would hide the
    directions in which features vary little. Reports alone add noise that never averages out faster
    than the rewards' own; sums alone come late, and with late rewards later still.

    By default a batch has a quarter of the noise of as many reports, which takes 24 d s_1^2
    sinh^2(epsilon/2) decisions, s_1 the noise at sensitivity 1: 91 d at epsilon 1, delta 1e-5.

    Privacy:
        (epsilon, delta)-differential privacy of the whole trajectory; contexts are public and not
        protected, and must not depend on unreleased rewards. Each reward is in one report or in one
        sum. At delta = 0 sums have Laplace noise.

    Parameters:
        delta: probability outside it; 0 for Laplace noise.
        ridge: lambda: the prior variance of a coefficient is 1/lambda.
        radius_scale: q, 1.5 by default; never affects privacy.
        batch: decisions of a batch, and of the reports before the first.

    Example:
        >>> world = bl.environment("linear", arms=5, theta=[0.7, 0.3, -0.4])
        >>> policy = bl.policy("dp-lin-bayes-ucb", arms=5, features=3, epsilon=1.0, delta=1e-5)
        >>> results = bl.simulate(policy, world, horizon=5_000, repetitions=10, seed=1)
        >>> round(float(results.final_regret("dp-lin-bayes-ucb").mean()))
        22
    """

    name = "dp-lin-bayes-ucb"
    reference = "after Kaufmann, Cappe, Garivier 2012"
    see_also = "ldp-linucb, dp-linucb, dp-lin-ts, dp-imed"
    examples = ({"delta": 1e-3, "batch": 12, "outstanding": 512},)
    kernels = Kernels(begin, choose, learn, forget)
    rule = linear_context.Rule(linear_context.sure(best_arm), note_decision)
    radius_scale: RadiusScale = 1.5
    batch: Batch | None = None

    def constants(self) -> Params:
        influence = math.sqrt(FULL_INFLUENCE * self.features)
        spread, half = linear_context.REWARD_SPREAD, 0.5 * min(self.epsilon, MOST_EPSILON)
        deviation = self.unit_deviation * influence
        excess = (spread / math.sinh(half)) ** 2  # what a report adds to the variance
        batch = min(math.ceil(deviation**2 / (NOISE_SHARE * excess)), 2**53)
        return self.fill(
            Params,
            batch=self.batch or max(batch, 1),
            influence=influence,
            deviation=deviation,
            step=grid_step(influence),
            spread=spread,
            report_variance=spread**2 + excess,
        )

    def released(self, state: Any) -> Sequence[ArmRelease]:
        """The releases, one entry per coefficient vector; a report is a batch of one."""
        pairs = zip(super().released(state), state.reports.tolist(), strict=True)
        return [
            sums._replace(
                rewards=sums.rewards + reports,
                draws=sums.draws + reports,
                batches=sums.batches + reports,
            )
            for sums, reports in pairs
        ]

    def propensity(self, state: Any, arm: int) -> float | None:
        """1: the arm is determined by the releases and the context."""
        return 1.0
