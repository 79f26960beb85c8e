"""DP-LinTS: Thompson sampling from private sums (after Riyazat, Ukwatta 2026)."""

from __future__ import annotations

from typing import Any, ClassVar, NamedTuple

import numpy as np

from balaclava._core.kernels import kernel
from balaclava.frames.episodes import Episodes, begin_episodes, drop_decision, take_reward
from balaclava.frames.pools import NOTHING
from balaclava.frames.ridge import dot, factorise
from balaclava.policies.base import Kernels, register
from balaclava.policies.contextual.features import block_of
from balaclava.policies.contextual.lin_ts import best_arm
from balaclava.policies.contextual.private_sums import (
    Params,
    PrivateLinearPolicy,
    note_decision,
    release_sum,
)


class Draws(NamedTuple):
    """Episodes, and what coefficients are drawn by."""

    episodes: Episodes
    covariance: np.ndarray  # [d, d], to work in
    factors: np.ndarray  # [block, d, d]: Cholesky factor of the covariance of theta~
    drawn: np.ndarray  # [block, d]: theta~ of the last decision
    normal: np.ndarray  # [d]


@kernel
def begin(params: Params) -> Draws:
    blocks, d = params.arms if params.disjoint else 1, params.features
    state = Draws(
        begin_episodes(blocks, d, params.ridge, params.outstanding),
        np.zeros((d, d)),
        np.zeros((blocks, d, d)),
        np.zeros((blocks, d)),
        np.zeros(d),
    )
    for block in range(blocks):
        renew_factor(params, state, block)
    return state


@kernel(borrows=True)
def renew_factor(params: Params, state: Draws, block: int) -> None:
    """The factor of v^2 V^-1 + m s^2 V^-2, of m releases with noise of deviation s."""
    inverse, covariance = state.episodes.known.inverse[block], state.covariance
    v = params.radius_scale * params.spread
    noise = state.episodes.draws[block] * params.deviation * params.deviation
    for i in range(params.features):
        for j in range(i + 1):
            square = dot(inverse[i], inverse[j])
            covariance[i, j] = v * v * inverse[i, j] + noise * square
    factorise(covariance, state.factors[block])


@kernel(borrows=True)
def choose(params: Params, state: Draws, t: int, context: np.ndarray, rng: Any) -> tuple[int, int]:
    d, theta = params.features, state.episodes.theta
    for block in range(theta.shape[0]):
        factor, drawn = state.factors[block], state.drawn[block]
        for i in range(d):
            state.normal[i] = rng.standard_normal()
            drawn[i] = theta[block, i]
            for j in range(i + 1):
                drawn[i] += factor[i, j] * state.normal[j]
    arm = best_arm(state.drawn, context, params.arms)
    return arm, note_decision(params, state.episodes, arm, context)


@kernel(borrows=True)
def settle_episode(params: Params, state: Draws, block: int, row: int, rng: Any) -> None:
    """Release the row's episode, where it is settled."""
    if row != NOTHING:
        release_sum(params, state.episodes, block, row, rng)
        renew_factor(params, state, block)


@kernel(borrows=True)
def learn(
    params: Params, state: Draws, t: int, arm: int, reward: float, phase: int, rng: Any
) -> None:
    block = block_of(state.drawn.shape[0], arm)
    row = take_reward(state.episodes, block, phase, reward, params.step)
    settle_episode(params, state, block, row, rng)


@kernel(borrows=True)
def forget(params: Params, state: Draws, t: int, arm: int, phase: int, rng: Any) -> None:
    block = block_of(state.drawn.shape[0], arm)
    settle_episode(params, state, block, drop_decision(state.episodes, block, phase), rng)


@register
class DPLinTS(PrivateLinearPolicy):
    """Thompson sampling on sums that are released in episodes: noise is more uncertainty.

    The private kin of lin-ts. It needs no radius, and so no `radius_scale` to find, and is the
    better one where arms have coefficients of their own (`disjoint`); where they share them,
    dp-linucb with a radius_scale of 0.3 has the lower regret.

    Episodes, releases, V and theta are those of dp-linucb. After m releases with noise of
    deviation s in each coordinate, draw

        theta~ from N(theta, v^2 V^-1 + m s^2 V^-2)

    and play the arm with the largest <theta~, x>; v = R = 1/2.

    Privacy:
        (epsilon, delta)-differential privacy of the whole trajectory; contexts are public and not
        protected. What is released is what dp-linucb releases, and the draws of theta~ see nothing
        else. The proof is in `balaclava.policies.contextual.private_sums`.

    Parameters:
        features: how many numbers describe an arm (or their names).
        disjoint: whether the features are a person's, and each arm has coefficients of its own.
        epsilon: privacy loss.
        delta: probability outside it; 0 for Laplace noise.
        feature_bound: no row of features is longer: privacy rests on it.
        radius_scale: multiplies v; privacy is untouched.

    Example:
        >>> import balaclava as bl
        >>> world = bl.environment("linear", arms=5, theta=[0.7, 0.3, -0.4])
        >>> policy = bl.policy("dp-lin-ts", arms=5, features=3, epsilon=1.0, delta=1e-5)
        >>> results = bl.simulate(policy, world, horizon=5_000, repetitions=10, seed=1)
        >>> round(float(results.final_regret("dp-lin-ts").mean()))
        94

    References:
        Riyazat, Ukwatta 2026.

    See Also:
        dp-linucb, lin-ts, lazy-dp-ts
    """

    name = "dp-lin-ts"
    reference = "after Riyazat, Ukwatta 2026"
    examples: ClassVar[tuple[dict[str, Any], ...]] = (
        {"disjoint": True, "first_episode": 12, "outstanding": 512},
    )
    kernels: ClassVar[Kernels] = Kernels(begin, choose, learn, forget)
