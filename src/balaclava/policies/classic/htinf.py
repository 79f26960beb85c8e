"""HTINF: Tsallis entropy for heavy-tailed losses (Huang, Dai, Huang 2022, Algorithm 1)."""

import math
from collections.abc import Iterator
from typing import Annotated, Any, NamedTuple

import numpy as np

from balaclava._core.declared import Range
from balaclava._core.kernels import kernel
from balaclava._core.states import MOST_CHANCE, range_faults
from balaclava.estimators.arm_probabilities import add_loss, draw_arm, tsallis_chances
from balaclava.frames.pending import Pending, begin_pending, forget_note, new_note, take_note
from balaclava.policies.base import Kernels, register
from balaclava.policies.loss_policies import LossPolicy, rivals_are_arms, second_moment

Order = Annotated[float, Range(1, 2, "alpha, order of the known moment", open_low=True)]
Sigma = Annotated[float, Range(0, meaning="E|loss|^alpha is at most sigma^alpha", open_low=True)]


class Params(NamedTuple):
    arms: int
    outstanding: int
    power: float  # p = alpha / (alpha - 1); 2 for alpha = 2
    share: float  # 1 / alpha
    sigma: float
    theta: float
    scale: float


class State(NamedTuple):
    """Estimated losses and the arms' chances."""

    losses: np.ndarray
    chances: np.ndarray
    root: np.ndarray  # one element: start of the search for the chances
    pending: Pending  # of each arm that was drawn, its chance and the largest loss that counts

    def faults(self, decisions: int) -> Iterator[str]:
        yield from range_faults(0.0, MOST_CHANCE, chances=self.chances)


@kernel
def begin(params: Params) -> State:
    return State(
        losses=np.zeros(params.arms),
        chances=np.zeros(params.arms),
        root=np.ones(1),
        pending=begin_pending(params.outstanding, 2),
    )


@kernel(borrows=True)
def nth_root(params: Params, x: float) -> float:
    """x^(1/alpha)."""
    return math.sqrt(x) if params.power == 2.0 else math.pow(x, params.share)


@kernel(borrows=True)
def choose(params: Params, state: State, t: int, context: Any, rng: Any) -> tuple[int, int]:
    growth = params.sigma * nth_root(params, t)
    eta = params.scale / growth
    tsallis_chances(state.losses, eta, params.power, state.root, state.chances)
    arm = draw_arm(state.chances, rng)
    row = new_note(state.pending)
    chance = state.chances[arm]
    state.pending.notes[row, 0] = chance
    state.pending.notes[row, 1] = params.theta * growth * nth_root(params, chance)
    return arm, state.pending.count[0]


@kernel(borrows=True)
def learn(
    params: Params, state: State, t: int, arm: int, reward: float, phase: int, rng: Any
) -> None:
    row = take_note(state.pending, phase)
    if row >= 0 and abs(reward) <= state.pending.notes[row, 1]:
        add_loss(state.losses, arm, reward / state.pending.notes[row, 0])


def threshold_factor(alpha: float) -> float:
    """Theta = min{1 - 2^(-(alpha-1)/(2 alpha-1)), (2 - 2/alpha)^(1/(2-alpha))}."""
    first = 1.0 - 2.0 ** (-(alpha - 1.0) / (2.0 * alpha - 1.0))
    if alpha > 1.999:  # the second tends to exp(-1/2), far above the first
        return first
    return min(first, (2.0 - 2.0 / alpha) ** (1.0 / (2.0 - alpha)))


@register
class HTINF(LossPolicy):
    r"""Follow the leader regularised by Tsallis entropy; skip losses too large for their chance.

    The base to convert into a private policy: it needs losses with a moment of order alpha, and
    privacy noise has all moments. For losses in [0, 1] without noise tsallis-inf is better.

    In round t, with eta = 1 / (sigma t^(1/alpha)) and estimated losses L, draw I from the
    distribution x that minimises

    .. math:: \eta \langle L, x \rangle - \alpha \sum_i x_i^{1/\alpha}

    and observe its loss y. If `|y| <= Theta sigma t^(1/alpha) x_I^(1/alpha)`, let L_I grow by
    y / x_I, where

    .. math:: \Theta = \min\{1 - 2^{-(\alpha-1)/(2 \alpha-1)},\; (2 - 2/\alpha)^{1/(2-\alpha)}\}.

    Its random decisions are not private; `bl.privatise` makes them so.

    Parameters:
        sigma: E|loss|^alpha <= sigma^alpha; the default, sqrt(1 + 2 loss_noise^2), is right for
            losses in [0, 1] with Laplace noise of scale `loss_noise`.
        learning_rate_scale: multiplies eta; the threshold stays.

    Example:
        >>> world = bl.environment("stochastic-losses", means=[0.5, 0.5, 0.2])
        >>> results = bl.simulate(bl.policy("htinf", arms=3), world, horizon=10_000,
        ...                       repetitions=20, seed=1)
        >>> round(float(results.final_regret("htinf").mean()))
        108
    """

    name = "htinf"
    reference = "Huang, Dai, Huang 2022"
    see_also = "dp-htinf, tsallis-inf, exp3"
    kernels = Kernels(begin, choose, learn, forget_note)
    examples = ({}, {"moment_order": 1.5, "sigma": 2.0})
    moment_order: Order = 2.0
    sigma: Sigma | None = None

    def constants(self) -> Params:
        alpha = self.moment_order
        return self.fill(
            Params,
            power=alpha / (alpha - 1.0),
            share=1.0 / alpha,
            sigma=self.sigma or math.sqrt(second_moment(self.loss_noise)),
            theta=threshold_factor(alpha),
            scale=self.learning_rate_scale,
        )

    def chances(self, state: Any) -> np.ndarray | None:
        return np.array(state.chances)

    def proved_bound(self, environment: Any, horizon: int) -> float | None:
        """Theorem 4.1: 30 sigma K^(1 - 1/alpha) (n + 1)^(1/alpha).

        It needs losses whose tails are not negative on average: those in [0, 1], with or without
        Laplace noise (Asi et al., Lemma B.2).
        """
        terms = self.constants()
        least = second_moment(self.loss_noise) ** 0.5
        if not rivals_are_arms(environment) or terms.scale != 1.0 or terms.sigma < least:
            return None
        return 30.0 * terms.sigma * self.arms ** (1.0 - terms.share) * (horizon + 1) ** terms.share
