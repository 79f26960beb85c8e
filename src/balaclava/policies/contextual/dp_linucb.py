"""DP-LinUCB: optimism from private sums (after Azize, Basu 2024, AdaC-OFUL)."""

import math
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from balaclava._core.kernels import kernel, kernel_by_columns
from balaclava._core.states import range_faults
from balaclava.estimators import kernel_rows
from balaclava.frames.episodes import Episodes, begin_episodes, block_in_first_episode
from balaclava.frames.pools import NO_ROW
from balaclava.frames.ridge import dot, radius, squared_width
from balaclava.policies.base import CoefficientEstimate, Kernels, register
from balaclava.policies.contextual.linear_context import (
    Rule,
    coefficient_block,
    context_row,
    sure,
    upper_means,
)
from balaclava.policies.contextual.private_sums import (
    Params,
    PrivateLinearPolicy,
    learn_in_episodes,
    noise_radius,
    note_decision,
    release_sum,
)


class State(NamedTuple):
    """Episodes, and the radii of their releases."""

    episodes: Episodes
    noise: np.ndarray  # [block]: radius of the noise of all releases, added to beta
    radii: np.ndarray  # [block]: beta

    def faults(self, decisions: int) -> Iterator[str]:
        yield from range_faults(0.0, math.inf, radii=self.radii)


@kernel
def begin(params: Params) -> State:
    blocks = params.arms if params.disjoint else 1
    state = State(
        begin_episodes(blocks, params.features, params.ridge, params.outstanding),
        np.zeros(blocks),
        np.zeros(blocks),
    )
    for block in range(blocks):
        renew_radius(params, state, block)
    return state


@kernel(borrows=True)
def proved_radius(params: Params, state: State, block: int) -> float:
    """beta: linucb's at half the failure probability, plus the radius of the noise."""
    failure = 0.5 * params.failure_probability / state.radii.size
    growth = state.episodes.known.growth[block]
    beta = radius(growth, params.ridge, params.spread, params.parameter_bound, failure)
    return beta + state.noise[block]


@kernel(borrows=True)
def renew_radius(params: Params, state: State, block: int) -> None:
    state.radii[block] = params.radius_scale * proved_radius(params, state, block)


def best_of_rows(params: Params, state: State, context: np.ndarray) -> int:
    """`best_arm` in Python, for all arms at once."""
    episodes = state.episodes
    best = block_in_first_episode(episodes)
    if best != NO_ROW:
        return best
    made, known = (
        upper_means(episodes.theta, ridge, state.radii, context)
        for ridge in (episodes.made, episodes.known)
    )
    late = (episodes.draws == 0) | (episodes.waiting > 0)
    return int(np.argmax(np.where(late, made, known)))


@kernel_by_columns(best_of_rows, kernel_rows.always)
def best_arm(params: Params, state: State, context: np.ndarray) -> int:
    episodes = state.episodes
    best, highest = block_in_first_episode(episodes), -math.inf
    for arm in range(params.arms if best == NO_ROW else 0):
        block, x = coefficient_block(state.radii.size, arm), context[context_row(context, arm)]
        if episodes.draws[block] == 0 or episodes.waiting[block] > 0:
            square = squared_width(episodes.made, block, x)
        else:
            square = squared_width(episodes.known, block, x)
        index = dot(episodes.theta[block], x) + state.radii[block] * math.sqrt(square)
        if index > highest:
            best, highest = arm, index
    return best


@kernel(borrows=True)
def note(params: Params, state: State, arm: int, context: np.ndarray) -> int:
    return note_decision(params, state.episodes, arm, context)


@kernel(borrows=True)
def choose(params: Params, state: State, t: int, context: np.ndarray, rng: Any) -> tuple[int, int]:
    best = best_arm(params, state, context)
    return best, note(params, state, best, context)


@kernel(borrows=True)
def settle_episode(params: Params, state: State, block: int, row: int, rng: Any) -> None:
    release_sum(params, state.episodes, block, row, rng)
    state.noise[block] += noise_radius(params, state.episodes, block)
    renew_radius(params, state, block)


@register
class DPLinUCB(PrivateLinearPolicy):
    r"""LinUCB on sums that are released in episodes, with one draw of noise each.

    The private policy whose coefficients have proved intervals (`agent.coefficients()`), for
    rewards that must be protected, if the features of participants are known and may be public.
    dp-kernel-ucb has the lower regret if each arm has its own coefficients or means are not linear.
    Set `radius_scale` to 0.3 if regret matters more than the proof.

    The first episode ends after `first_episode` decisions. A later one ends when it has as many and
    det V of the decisions made has grown `episode_growth`-fold since its start. An episode settles
    when all its rewards are received or given up; if they are late, with half of them, or
    `first_episode` (`frames.episodes`). Then the sum of r x over the received ones is released with
    noise and added to b. Rewards that come after it join the open episode. With `disjoint` each arm
    has its own episodes, and the arms take turns until each has made its first. With V = lambda I +
    sum of x x' over the decisions of the released sums and theta = V^-1 b, play the arm with the
    largest

    .. math:: \langle \theta, x \rangle + \beta |x|_{V^{-1}},

    .. math:: \beta = R \sqrt{2 \log(1/\delta') + \log(\det V / \lambda^d)} + \sqrt{\lambda} S + N,

    where N adds up a bound on each draw of noise, in the V of its own release (`private_sums`).
    While episodes wait for rewards, the width is that of all decisions made, so that the policy
    does not explore twice. Few and large releases keep the noise low: by default an episode has
    at least 4 s d decisions (7 s d with `disjoint`) and lambda is 25 s, s the standard deviation of
    the noise.

    Privacy:
        (epsilon, delta)-differential privacy of the whole trajectory; contexts are public and not
        protected, and must not depend on unreleased rewards. Each reward is in one sum, of L2
        sensitivity `feature_bound`, which is released once, by the Gaussian mechanism with its
        exact calibration; at delta = 0 by Laplace noise for the L1 sensitivity, feature_bound
        sqrt(d). All else is computed from the releases and the contexts. The proof is in
        `balaclava.policies.contextual.private_sums`.

    Parameters:
        delta: probability outside it; 0 for Laplace noise.
        feature_bound: largest Euclidean norm of a row of features, which is the L2 sensitivity.
        ridge: lambda; 25 standard deviations of the noise by default.
        first_episode: least number of decisions of an episode; 4 d deviations of the noise by
            default, 7 d with `disjoint`.
        radius_scale: multiplies beta; never affects privacy.

    Example:
        >>> world = bl.environment("linear", arms=5, theta=[0.7, 0.3, -0.4])
        >>> policy = bl.policy("dp-linucb", arms=5, features=3, epsilon=1.0, delta=1e-5,
        ...                    radius_scale=0.3)
        >>> results = bl.simulate(policy, world, horizon=5_000, repetitions=10, seed=1)
        >>> round(float(results.final_regret("dp-linucb").mean()))
        55
    """

    name = "dp-linucb"
    reference = "after Azize, Basu 2024"
    cites = "Azize, Basu 2024; Laurent, Massart 2000"
    see_also = "dp-kernel-ucb, dp-lin-ts, linucb, ldp-linucb"
    examples = ({"delta": 1e-3, "first_episode": 20, "outstanding": 512},)
    kernels = Kernels(begin, choose, *learn_in_episodes(settle_episode))
    rule = Rule(sure(best_arm), note)

    @property
    def shortest(self) -> float:
        """More with `disjoint`: an arm that looks poor after one short episode stays so."""
        return 7.0 if self.disjoint else 4.0

    def coefficients(self, state: Any) -> list[CoefficientEstimate]:
        """Each coefficient within beta sqrt((V^-1)_ii), at `radius_scale` 1.

        By Cauchy-Schwarz |e_i' (theta - theta*)| <= |e_i|_{V^-1} |theta - theta*|_V: all hold
        together where the ellipsoids do.
        """
        params, known = self.constants(), state.episodes.known
        betas = [proved_radius(params, state, block) for block in range(self.blocks)]
        widths = np.sqrt(np.einsum("bii->bi", known.inverse))
        return self.coefficient_estimates(state.episodes.theta, np.array(betas)[:, None] * widths)

    def propensity(self, state: Any, arm: int) -> float | None:
        """1: the arm is determined by the releases and the context."""
        return 1.0
