"""LinUCB: optimism in linear bandits (Abbasi-Yadkori, Pal, Szepesvari 2011, OFUL; Theorem 2)."""

import math
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from balaclava._core.kernels import kernel, kernel_by_columns
from balaclava._core.states import range_faults
from balaclava.estimators import kernel_rows
from balaclava.frames import pending
from balaclava.frames.ridge import (
    Ridge,
    add_row,
    begin_ridge,
    dot,
    multiply,
    radius,
    squared_width,
)
from balaclava.policies.base import Kernels, register
from balaclava.policies.contextual.linear_context import (
    REWARD_SPREAD,
    RidgePolicy,
    coefficient_block,
    context_row,
    copy_features,
    highest_of,
    upper_means,
)


class Params(NamedTuple):
    arms: int
    features: int
    disjoint: bool
    reward_range: tuple[float, float]
    feature_bound: float
    parameter_bound: float
    ridge: float
    radius_scale: float
    failure_probability: float
    outstanding: int
    spread: float = REWARD_SPREAD  # R: the rewards or reports are R-sub-Gaussian
    epsilon: float = math.inf  # of a report
    proved: bool = False  # whether lin-ts uses the width of its proof


class Regression(NamedTuple):
    """Ridge regression for the coefficients."""

    ridge: Ridge  # V, of the decisions with rewards
    sums: np.ndarray  # [block, d]: sum of r x
    theta: np.ndarray  # [block, d]: V^-1 times the sum
    radii: np.ndarray  # [block]: beta
    asked: np.ndarray  # [block]: number of decisions
    pending: pending.Pending

    def faults(self, decisions: int) -> Iterator[str]:
        yield from range_faults(0, decisions, asked=self.asked)
        yield from range_faults(0.0, math.inf, radii=self.radii)


@kernel
def begin_regression(params: Params) -> Regression:
    blocks, d = params.arms if params.disjoint else 1, params.features
    state = Regression(
        ridge=begin_ridge(blocks, d, params.ridge),
        sums=np.zeros((blocks, d)),
        theta=np.zeros((blocks, d)),
        radii=np.zeros(blocks),
        asked=np.zeros(blocks, np.int64),
        pending=pending.begin_pending(params.outstanding, d),
    )
    for block in range(blocks):
        renew_radius(params, state, block)
    return state


@kernel(borrows=True)
def renew_radius(params: Params, state: Regression, block: int) -> None:
    """Update beta of a block; the blocks share the failure probability."""
    failure = params.failure_probability / state.radii.size
    growth, bound = state.ridge.growth[block], params.parameter_bound
    state.radii[block] = params.radius_scale * radius(
        growth, params.ridge, params.spread, bound, failure
    )


def best_of_rows(params: Params, state: Regression, context: np.ndarray) -> int:
    """`best_arm` in Python, for all arms at once."""
    return highest_of(upper_means(state.theta, state.ridge, state.radii, context), state.asked)


@kernel_by_columns(best_of_rows, kernel_rows.always)
def best_arm(params: Params, state: Regression, context: np.ndarray) -> int:
    best, highest, fewest = 0, -math.inf, 0
    for arm in range(params.arms):
        block, x = coefficient_block(state.radii.size, arm), context[context_row(context, arm)]
        width = math.sqrt(squared_width(state.ridge, block, x))
        index = dot(state.theta[block], x) + state.radii[block] * width
        asked = state.asked[block]
        if index > highest or (index == highest and asked < fewest):
            best, highest, fewest = arm, index, asked
    return best


@kernel(borrows=True)
def choose(
    params: Params, state: Regression, t: int, context: np.ndarray, rng: Any
) -> tuple[int, int]:
    best = best_arm(params, state, context)
    return best, note_decision(params, state, best, context)


@kernel(borrows=True)
def note_decision(params: Params, state: Regression, arm: int, context: np.ndarray) -> int:
    """Keep the features of the decision until its reward arrives; return its number."""
    state.asked[coefficient_block(state.radii.size, arm)] += 1
    copy_features(
        params,
        context[context_row(context, arm)],
        state.pending.notes[pending.new_note(state.pending)],
    )
    return state.pending.count[0]


@kernel(borrows=True)
def learn(
    params: Params, state: Regression, t: int, arm: int, reward: float, phase: int, rng: Any
) -> None:
    note = pending.take_note(state.pending, phase)
    if note != pending.FORGOTTEN:
        block, x = coefficient_block(state.radii.size, arm), state.pending.notes[note]
        theta, sums = state.theta[block], state.sums[block]
        residual = reward - dot(theta, x)
        residual /= 1.0 + add_row(state.ridge, block, x)
        for i in range(x.size):
            sums[i] += reward * x[i]
            theta[i] += residual * state.ridge.product[i]
        if state.ridge.since[block] == 0:
            multiply(state.ridge.inverse[block], sums, theta)
        renew_radius(params, state, block)


class LinearPolicy(RidgePolicy):
    """A linear policy without privacy."""

    def constants(self) -> Params:
        return Params(*(getattr(self, name) for name in Params._fields[:10]))


@register
class LinUCB(LinearPolicy):
    r"""Play the arm with the highest plausible mean, given the features of the round.

    The baseline of all linear policies, without privacy. lin-ts samples instead of being
    optimistic; dp-linucb protects the rewards.

    With V = lambda I + sum of x x' and theta = V^-1 sum of r x over the rewards received, play the
    arm with the largest

    .. math:: \langle \theta, x \rangle + \beta |x|_{V^{-1}},

    .. math:: \beta = R \sqrt{2 \log(1/\delta') + \log(\det V / \lambda^d)} + \sqrt{\lambda} S.

    R = 1/2 for rewards in [0, 1], S is `parameter_bound`, delta' `failure_probability`. With
    `disjoint` each arm has its own V, theta and beta.

    Parameters:
        radius_scale: multiplies beta.

    Example:
        >>> world = bl.environment("linear", arms=5, theta=[0.7, 0.3, -0.4])
        >>> results = bl.simulate(bl.policy("linucb", arms=5, features=3), world,
        ...                       horizon=1_000, repetitions=10, seed=1)
        >>> round(float(results.final_regret("linucb").mean()))
        12
    """

    name = "linucb"
    reference = "Abbasi-Yadkori, Pal, Szepesvari 2011"
    see_also = "lin-ts, dp-linucb, ucb1"
    examples = ({"outstanding": 512},)
    kernels = Kernels(begin_regression, choose, learn, pending.forget_note)
