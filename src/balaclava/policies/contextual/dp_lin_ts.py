"""DP-LinTS: Thompson sampling from private sums (after Riyazat, Ukwatta 2026)."""

from typing import Any, NamedTuple

import numpy as np

from balaclava._core.kernels import kernel
from balaclava.frames.episodes import Episodes, begin_episodes
from balaclava.frames.ridge import dot, factorise, solve_factor
from balaclava.policies.base import Kernels, register
from balaclava.policies.contextual.lin_ts import drawn_arm
from balaclava.policies.contextual.private_sums import (
    Params,
    PrivateLinearPolicy,
    learn_in_episodes,
    note_decision,
    release_sum,
)


class State(NamedTuple):
    """Episodes, and the posterior of the coefficients given their releases."""

    episodes: Episodes
    precision: np.ndarray  # [block, d, d]: P
    sums: np.ndarray  # [block, d]: P times the mean
    factor: np.ndarray  # [block, d, d]: L of P = L L'
    white: np.ndarray  # [block, d]: L^-1 of the sums
    drawn: np.ndarray  # [block, d]: theta~ of the last decision, if it is shared
    # Scratch space
    covariance: np.ndarray  # [d, d]
    half: np.ndarray  # [d, d]
    rows: np.ndarray  # [d, d]
    work: np.ndarray  # [d]


@kernel
def begin(params: Params) -> State:
    blocks, d = params.arms if params.disjoint else 1, params.features
    state = State(
        episodes=begin_episodes(blocks, d, params.ridge, params.outstanding),
        precision=np.zeros((blocks, d, d)),
        sums=np.zeros((blocks, d)),
        factor=np.zeros((blocks, d, d)),
        white=np.zeros((blocks, d)),
        drawn=np.zeros((blocks, d)),
        covariance=np.zeros((d, d)),
        half=np.zeros((d, d)),
        rows=np.zeros((d, d)),
        work=np.zeros(d),
    )
    for block in range(blocks):
        for i in range(d):
            state.precision[block, i, i] = d / (params.parameter_bound * params.parameter_bound)
        factorise(state.precision[block], state.factor[block])
    return state


@kernel(borrows=True)
def choose(params: Params, state: State, t: int, context: np.ndarray, rng: Any) -> tuple[int, int]:
    arm = drawn_arm(params, state, 1.0, context, rng)
    return arm, note_decision(params, state.episodes, arm, context)


@kernel(borrows=True)
def weigh(params: Params, state: State, gram: np.ndarray) -> None:
    """C = v^2 G + s^2 I = H H': write H to `half`, and H^-1 G, transposed, to `rows`."""
    v = params.radius_scale * params.spread
    for i in range(params.features):
        for j in range(params.features):
            state.covariance[i, j] = v * v * gram[i, j]
        state.covariance[i, i] += params.deviation * params.deviation
    factorise(state.covariance, state.half)
    for i in range(params.features):
        solve_factor(state.half, gram[i], state.rows[i])


@kernel(borrows=True)
def settle_episode(params: Params, state: State, block: int, row: int, rng: Any) -> None:
    """Release the row's episode: P += G C^-1 G, sums += G C^-1 b."""
    weigh(params, state, state.episodes.grams[block, row])
    release_sum(params, state.episodes, block, row, rng)
    solve_factor(state.half, state.episodes.last_release, state.work)
    for i in range(params.features):
        state.sums[block, i] += dot(state.rows[i], state.work)
        for j in range(params.features):
            state.precision[block, i, j] += dot(state.rows[i], state.rows[j])
    factorise(state.precision[block], state.factor[block])
    solve_factor(state.factor[block], state.sums[block], state.white[block])


@register
class DPLinTS(PrivateLinearPolicy):
    r"""Thompson sampling on sums that are released in episodes: noise widens the posterior.

    The private version of lin-ts. It needs no radius, and so no tuned `radius_scale`. It is better
    than dp-linucb if each arm has its own coefficients (`disjoint`); if the arms share them,
    dp-linucb with a radius_scale of 0.3 has the lower regret. dp-kernel-ucb is better than both
    with `disjoint`, or if means are not linear.

    Episodes and releases are those of dp-linucb. A release b of an episode whose features have the
    Gram matrix G is, given theta, about N(G theta, C) with C = v^2 G + s^2 I: v = R = 1/2 for the
    rewards, s for the noise. From the prior N(0, S^2/d I), S the `parameter_bound`, draw

    .. math:: \tilde\theta \sim N(P^{-1} q, P^{-1}),

    .. math:: P = (d/S^2) I + \sum G C^{-1} G, \quad q = \sum G C^{-1} b,

    summed over the releases so far, and play the arm with the largest <theta~, x>. This is Bayes'
    rule for the releases: the noise of a release lowers its weight. In a ridge regression on the
    sum of all releases, the noise of an early one would never fade.

    Privacy:
        (epsilon, delta)-differential privacy of the whole trajectory; contexts are public and not
        protected, and must not depend on unreleased rewards. The releases are
        those of dp-linucb, and theta~ is drawn from them alone. The proof is in
        `balaclava.policies.contextual.private_sums`.

    Parameters:
        delta: probability outside it; 0 for Laplace noise.
        feature_bound: largest Euclidean norm of a row of features, which is the L2 sensitivity.
        parameter_bound: S, expected norm of the coefficients.
        ridge: lambda in det V; here it only decides when an episode ends.
        first_episode: least number of decisions of an episode; 4 d deviations of the noise by
            default, 2 d with `disjoint`, since every arm has its own episodes.
        radius_scale: multiplies v; never affects privacy.

    Example:
        >>> world = bl.environment("linear", arms=5, theta=[0.7, 0.3, -0.4])
        >>> policy = bl.policy("dp-lin-ts", arms=5, features=3, epsilon=1.0, delta=1e-5)
        >>> results = bl.simulate(policy, world, horizon=5_000, repetitions=10, seed=1)
        >>> round(float(results.final_regret("dp-lin-ts").mean()))
        76
    """

    name = "dp-lin-ts"
    reference = "after Riyazat, Ukwatta 2026"
    see_also = "dp-kernel-ucb, dp-linucb, lin-ts"
    examples = ({"disjoint": True, "first_episode": 12, "outstanding": 512},)
    kernels = Kernels(begin, choose, *learn_in_episodes(settle_episode))

    @property
    def shortest(self) -> float:
        """Less with `disjoint`: each arm has its own episodes."""
        return 2.0 if self.disjoint else 4.0
