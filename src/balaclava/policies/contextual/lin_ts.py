"""LinTS: Thompson sampling in linear bandits (Agrawal, Goyal 2013, Algorithm 1)."""

import math
from typing import Annotated, Any, Literal, NamedTuple

import numpy as np

from balaclava._core.declared import Range
from balaclava._core.kernels import kernel, kernel_by_columns
from balaclava.estimators import kernel_rows
from balaclava.frames import pending
from balaclava.frames.ridge import (
    add_to_factor,
    dot,
    dots,
    solve_factor,
    solve_factors,
    solve_transposed,
)
from balaclava.policies.base import Kernels, register
from balaclava.policies.contextual.linear_context import (
    coefficient_block,
    context_row,
    copy_features,
)
from balaclava.policies.contextual.linucb import LinearPolicy, Params

Exploration = Annotated[
    Literal["usual", "proved"], Range(meaning="width of the draws: R, or that of the proof")
]


class Posterior(NamedTuple):
    """Posterior of the coefficients: V = L L', and sums."""

    factor: np.ndarray  # [block, d, d]: L
    sums: np.ndarray  # [block, d]: b, the sum of r x
    white: np.ndarray  # [block, d]: L^-1 b
    drawn: np.ndarray  # [block, d]: theta~ of the last decision, if it is shared
    work: np.ndarray  # [d]: scratch space
    pending: pending.Pending


@kernel
def begin(params: Params) -> Posterior:
    blocks, d = params.arms if params.disjoint else 1, params.features
    factor = np.zeros((blocks, d, d))
    for block in range(blocks):
        for i in range(d):
            factor[block, i, i] = math.sqrt(params.ridge)
    return Posterior(
        factor=factor,
        sums=np.zeros((blocks, d)),
        white=np.zeros((blocks, d)),
        drawn=np.zeros((blocks, d)),
        work=np.zeros(d),
        pending=pending.begin_pending(params.outstanding, d),
    )


@kernel(borrows=True)
def draw_coefficients(state: Any, v: float, rng: Any) -> None:
    """theta~ of the shared coefficients: L'^-1 (L^-1 b + v z), z standard normal."""
    for i in range(state.work.size):
        state.work[i] = state.white[0, i] + v * rng.standard_normal()
    solve_transposed(state.factor[0], state.work, state.drawn[0])


def drawn_arm_at_once(params: Any, state: Any, v: float, context: np.ndarray, rng: Any) -> int:
    """`drawn_arm` in Python, for all arms at once."""
    if len(state.white) == 1:
        draw_coefficients(state, v, rng)
        return int(np.argmax(dots(context, state.drawn[0])))
    roots = solve_factors(state.factor, context[0])
    draws = np.array([rng.standard_normal() for _ in range(params.arms)])
    spreads = v * np.sqrt(kernel_rows.dots_of_rows(roots, roots))
    return int(np.argmax(kernel_rows.dots_of_rows(state.white, roots) + spreads * draws))


@kernel_by_columns(drawn_arm_at_once, kernel_rows.always)
def drawn_arm(params: Any, state: Any, v: float, context: np.ndarray, rng: Any) -> int:
    """The arm with the highest mean under a draw theta~; the lowest arm of a tie.

    Separate coefficients are independent. So only the mean of each arm is drawn, from
    N(<theta, x>, v^2 |L^-1 x|^2).
    """
    best, highest, shared = 0, -math.inf, state.white.shape[0] == 1
    if shared:
        draw_coefficients(state, v, rng)
    for arm in range(params.arms):
        x = context[context_row(context, arm)]
        if shared:
            mean = dot(state.drawn[0], x)
        else:
            solve_factor(state.factor[arm], x, state.work)
            spread = v * math.sqrt(dot(state.work, state.work))
            mean = dot(state.white[arm], state.work) + spread * rng.standard_normal()
        if mean > highest:
            best, highest = arm, mean
    return best


@kernel(borrows=True)
def choose(
    params: Params, state: Posterior, t: int, context: np.ndarray, rng: Any
) -> tuple[int, int]:
    v = params.radius_scale * params.spread
    if params.proved:
        v *= math.sqrt(9.0 * params.features * math.log(t / params.failure_probability))
    arm = drawn_arm(params, state, v, context, rng)
    copy_features(
        params,
        context[context_row(context, arm)],
        state.pending.notes[pending.new_note(state.pending)],
    )
    return arm, state.pending.count[0]


@kernel(borrows=True)
def learn(
    params: Params, state: Posterior, t: int, arm: int, reward: float, phase: int, rng: Any
) -> None:
    note = pending.take_note(state.pending, phase)
    if note != pending.FORGOTTEN:
        block, x = coefficient_block(state.sums.shape[0], arm), state.pending.notes[note]
        for i in range(x.size):
            state.sums[block, i] += reward * x[i]
        add_to_factor(state.factor[block], x, state.work)
        solve_factor(state.factor[block], state.sums[block], state.white[block])


@register
class LinTS(LinearPolicy):
    """Draw the coefficients from their posterior and play the best arm under the draw.

    Without privacy; dp-lin-ts is the private version. Often better than linucb in practice, where
    radii are loose; linucb has the better proof.

    With V = lambda I + sum of x x' and theta = V^-1 sum of r x, draw theta~ from
    N(theta, v^2 V^-1) and play the arm with the largest <theta~, x>. By default v = R = 1/2, the
    usual choice, which has no proof; with exploration="proved" it is the paper's
    R sqrt(9 d log(t / delta')).

    Parameters:
        exploration: "usual" or "proved".
        radius_scale: multiplies v.

    Example:
        >>> world = bl.environment("linear", arms=5, theta=[0.7, 0.3, -0.4])
        >>> results = bl.simulate(bl.policy("lin-ts", arms=5, features=3), world,
        ...                       horizon=1_000, repetitions=10, seed=1)
        >>> round(float(results.final_regret("lin-ts").mean()))
        9
    """

    name = "lin-ts"
    reference = "Agrawal, Goyal 2013"
    cites = "Agrawal, Goyal 2013b"
    see_also = "linucb, dp-lin-ts, thompson-gauss"
    examples = ({"disjoint": True, "outstanding": 512},)
    kernels = Kernels(begin, choose, learn, pending.forget_note)
    exploration: Exploration = "usual"

    def constants(self) -> Params:
        return super().constants()._replace(proved=self.exploration == "proved")
