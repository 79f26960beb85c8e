"""The base of private linear policies: sums of r x, each released once, in episodes.

Proof of privacy: `private_sums.proof.md` beside this file.

Proof of the radius.
    theta - theta* = V^-1 (S + N - ridge theta*), S the sum of x times the noise of rewards, N the
    noise of privacy. |S|_{V^-1} is bounded by self-normalisation, for all contexts, as the
    noise of a reward is independent of all decisions before its release. That takes rewards in the
    order of their releases; arrivals, which must not depend on rewards, choose them. N is the sum
    of N_j, one per release, and |N_j|_{V^-1} <= |N_j|_{V_j^-1}, since V has grown since V_j, the V
    of its own release. V_j was fixed before N_j was drawn, and so (Laurent, Massart 2000, Lemma 1)

        |N_j|^2_{V_j^-1} <= s^2 (tr A + 2 |A|_F sqrt(y) + 2 |A| y),  A = V_j^-1,

    except with probability e^-y. (A bound for all of N in the last V would be smaller and wrong: V
    depends on the earlier N_j through the decisions.) Laplace noise of scale b is Gaussian with the
    variance 2 b^2 E, E exponential; all d of these are at most 2 b^2 log(2 d / f) except with
    probability f / 2, and then the same bound holds with s^2 = 2 b^2 log(2 d / f).
"""

import functools
import math
from collections.abc import Callable, Sequence
from typing import Annotated, Any, NamedTuple

import numpy as np

from balaclava._core.declared import Delta, Epsilon, Range
from balaclava._core.kernels import kernel
from balaclava.frames import pending
from balaclava.frames.episodes import (
    Episodes,
    add_decision,
    add_reward,
    give_up,
    keep_release,
    overdue_row,
)
from balaclava.frames.pools import NO_ROW, UNLEARNED
from balaclava.policies.base import ArmRelease, PrivateBoundedPolicy
from balaclava.policies.contextual import linear_context
from balaclava.privacy.exact_noise import grid_step
from balaclava.privacy.mechanisms.analytic_gaussian import (
    gaussian_fault,
    gaussian_shift,
    gaussian_vector_release,
)
from balaclava.privacy.mechanisms.laplace import laplace_vector_release

# Default ridge in standard deviations of the noise times feature_bound. A guess: of the order of
# the noise (docs/contextual.md).
RIDGE_PER_DEVIATION = 25.0

FirstEpisode = Annotated[int, Range(1, 2**53, "least number of decisions of an episode")]
EpisodeGrowth = Annotated[
    float, Range(1, 1e100, "factor by which det V grows in an episode", open_low=True)
]


class Params(NamedTuple):
    arms: int
    features: int
    disjoint: bool
    reward_range: tuple[float, float]
    feature_bound: float
    parameter_bound: float
    radius_scale: float
    failure_probability: float
    outstanding: int
    epsilon: float
    delta: float
    ridge: float
    first_episode: int
    log_growth: float
    deviation: float  # standard deviation of the noise in each coordinate of a release
    step: float  # grid step of r x
    spread: float = linear_context.REWARD_SPREAD


@kernel(borrows=True)
def note_decision(params: Params, state: Episodes, arm: int, context: np.ndarray) -> int:
    """Add the decision to an episode and return its phase; UNLEARNED if too many are open."""
    note = pending.free_note(state.pending)
    if note == pending.FORGOTTEN:
        return UNLEARNED
    linear_context.copy_features(
        params, context[linear_context.context_row(context, arm)], state.pending.notes[note]
    )
    block = linear_context.coefficient_block(state.number.size, arm)
    return add_decision(state, block, params.first_episode, params.log_growth)


@kernel(borrows=True)
def release_sum(params: Params, state: Episodes, block: int, row: int, rng: Any) -> None:
    """Release the sum of a settled episode once; one reward moves it by at most the bound."""
    sums, bound = state.sums[block, row], params.feature_bound
    if params.delta > 0.0:
        gaussian_vector_release(rng, sums, bound, params.epsilon, params.delta, state.last_release)
    else:
        widest = bound * math.sqrt(params.features)
        laplace_vector_release(rng, sums, widest, params.epsilon, state.last_release)
    keep_release(state, block, row)


@functools.cache
def learn_in_episodes(
    settle_episode: Callable[..., None],
) -> tuple[Callable[..., None], Callable[..., None]]:
    """Make `learn` and `forget` for a policy whose state has `episodes`.

    `settle_episode` is a kernel of (params, state, block, row, rng) that releases the sum in a row.
    """

    @kernel(borrows=True)
    def release_overdue(params: Any, state: Any, arm: int, rng: Any) -> int:
        """Release at deadlines, before what comes after them counts; returns the block."""
        block = linear_context.coefficient_block(state.episodes.number.size, arm)
        row = overdue_row(state.episodes, block, params.first_episode)
        while row != NO_ROW:
            settle_episode(params, state, block, row, rng)
            row = overdue_row(state.episodes, block, params.first_episode)
        return block

    @kernel(borrows=True)
    def learn(
        params: Any, state: Any, t: int, arm: int, reward: float, phase: int, rng: Any
    ) -> None:
        block = release_overdue(params, state, arm, rng)
        row = add_reward(state.episodes, block, phase, reward, params.step)
        if row != NO_ROW:
            settle_episode(params, state, block, row, rng)

    @kernel(borrows=True)
    def forget(params: Any, state: Any, t: int, arm: int, phase: int, rng: Any) -> None:
        block = release_overdue(params, state, arm, rng)
        row = give_up(state.episodes, block, phase)
        if row != NO_ROW:
            settle_episode(params, state, block, row, rng)

    return learn, forget


@kernel(borrows=True)
def noise_radius(params: Params, state: Episodes, block: int) -> float:
    """Bound on the noise of the last release, in the norm |z|_{V^-1} with the V of that release.

    Release j of a block may miss it with probability 3 f / (pi j)^2, f = failure_probability over
    the number of blocks: over all j these add up to f / 2. The rewards' own noise has the rest.
    """
    inverse, d = state.known.inverse[block], params.features
    release, blocks = state.draws[block], state.draws.size
    failure = 0.5 * params.failure_probability / blocks * 6.0 / (math.pi * release) ** 2
    square = params.deviation * params.deviation
    if params.delta == 0.0:
        failure *= 0.5
        square *= math.log(d / failure)
    trace, squares, largest = 0.0, 0.0, 0.0
    for i in range(d):
        trace += inverse[i, i]
        row = 0.0
        for j in range(d):
            squares += inverse[i, j] * inverse[i, j]
            row += abs(inverse[i, j])
        largest = max(largest, row)
    frobenius, y = math.sqrt(squares), math.log(1.0 / failure)
    largest = min(largest, frobenius)  # both are at least the largest eigenvalue
    return math.sqrt(square * (trace + 2.0 * frobenius * math.sqrt(y) + 2.0 * largest * y))


class PrivateLinearPolicy(linear_context.PrivateContextualPolicy, PrivateBoundedPolicy):
    """A policy that releases sums of r x, in episodes; the whole trajectory is covered."""

    epsilon: Epsilon
    delta: Delta = 0.0
    ridge: linear_context.RidgeWeight | None = None  # type: ignore[assignment]
    first_episode: FirstEpisode | None = None
    episode_growth: EpisodeGrowth = 8.0

    def __post_init__(self) -> None:
        super().__post_init__()
        fault = gaussian_fault(self.epsilon, self.delta, self.features) if self.delta else ""
        if fault:
            raise self.refuse("epsilon", fault)

    @property
    def shortest(self) -> float:
        """Default least episode length, in features times standard deviations of the noise."""
        return 4.0

    @property
    def deviation(self) -> float:
        """Standard deviation of the noise in a coordinate of a release."""
        if self.delta > 0.0:
            return self.feature_bound / gaussian_shift(self.epsilon, self.delta)
        return self.feature_bound * math.sqrt(2.0 * self.features) / self.epsilon

    def constants(self) -> Params:
        bound, noise = self.feature_bound, self.deviation
        shortest = min(max(self.shortest * noise / bound * self.features, 1.0), 2.0**53)
        return self.fill(
            Params,
            ridge=self.ridge or max(RIDGE_PER_DEVIATION * noise * bound, bound**2),
            first_episode=self.first_episode or math.ceil(shortest),
            log_growth=math.log(self.episode_growth),
            step=grid_step(bound),
            spread=linear_context.REWARD_SPREAD,
        )

    def released(self, state: Any) -> Sequence[ArmRelease]:
        """The releases, one entry per coefficient vector; there are no means of arms."""
        pairs = zip(state.episodes.rewards.tolist(), state.episodes.draws.tolist(), strict=True)
        return [
            ArmRelease(arm=block, rewards=rewards, mean=math.nan, draws=draws, batches=draws)
            for block, (rewards, draws) in enumerate(pairs)
        ]
