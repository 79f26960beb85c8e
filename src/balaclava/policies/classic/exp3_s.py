"""EXP3.S: EXP3 whose weights are shared, for losses that change (Auer et al. 2002)."""

import math
from collections.abc import Iterator
from typing import Annotated, Any, NamedTuple

import numpy as np

from balaclava._core.declared import Horizon, Range
from balaclava._core.kernels import kernel
from balaclava._core.states import MOST_CHANCE, range_faults
from balaclava.estimators.arm_probabilities import draw_arm
from balaclava.frames.pending import Pending, begin_pending, forget_note, new_note, take_note
from balaclava.policies import loss_policies
from balaclava.policies.base import Kernels, register
from balaclava.policies.classic.exp3 import Mixing

Segments = Annotated[int, Range(1, meaning="segments of the sequence to compete with")]
_MOST_FACTOR = 30.0  # of a weight in one round, as a logarithm: e^30 stays a finite float


class Params(NamedTuple):
    arms: int
    outstanding: int
    eta: float
    gamma: float
    share: float


class State(NamedTuple):
    weights: np.ndarray  # [arm], 1 in all
    chances: np.ndarray
    pending: Pending  # the chance of each arm that was drawn

    def faults(self, decisions: int) -> Iterator[str]:
        yield from range_faults(0.0, MOST_CHANCE, chances=self.chances, weights=self.weights)


@kernel
def begin(params: Params) -> State:
    return State(
        weights=np.full(params.arms, 1.0 / params.arms),
        chances=np.zeros(params.arms),
        pending=begin_pending(params.outstanding, 1),
    )


@kernel(borrows=True)
def choose(params: Params, state: State, t: int, context: Any, rng: Any) -> tuple[int, int]:
    for arm in range(params.arms):
        state.chances[arm] = (1.0 - params.gamma) * state.weights[arm] + params.gamma / params.arms
    arm = draw_arm(state.chances, rng)
    state.pending.notes[new_note(state.pending), 0] = state.chances[arm]
    return arm, state.pending.count[0]


@kernel(borrows=True)
def learn(
    params: Params, state: State, t: int, arm: int, reward: float, phase: int, rng: Any
) -> None:
    row = take_note(state.pending, phase)
    if row < 0:
        return
    nats = -params.eta * reward / state.pending.notes[row, 0]
    state.weights[arm] *= math.exp(min(max(nats, -_MOST_FACTOR), _MOST_FACTOR))
    total = 0.0
    for each in range(params.arms):
        total += state.weights[each]
    for each in range(params.arms):
        kept = (1.0 - params.share) * state.weights[each] / total
        state.weights[each] = kept + params.share / params.arms


@register
class Exp3S(loss_policies.LossPolicy):
    r"""EXP3 that never gives an arm up, for losses whose best arm changes.

    It competes with every sequence of arms that changes a few times, where exp3 competes with the
    best single arm. The price is about the root of the number of segments.

    With weights w_i = 1/K at first, draw I from P_i = (1 - gamma) w_i + gamma / K, observe its loss
    y, let w_I fall to w_I exp(-eta y / P_I), scale the weights to 1 in all, and share them:

    .. math:: w_i \leftarrow (1 - s) w_i + s / K, \quad s = e \alpha / (1 + e \alpha).

    That is the paper's step w_i + (e alpha / K) (sum of w), with losses in place of gains, and
    alpha = 1/horizon. For S segments, noise of scale lambda and L = log(K horizon), the rates are

    .. math:: \eta = \sqrt{S L / (2\, horizon\, K (1 + 10 \max(\lambda, \lambda^2) L^2))},

    .. math:: \gamma = 4 \eta K \lambda L,

    those of exp3 with S L in place of log K. A weight changes by at most e^30 in a round, and never
    falls below s/K. The regret that a simulation shows is against the best single arm. The paper's
    bound for S segments, 2 sqrt(e - 1) sqrt(K horizon (S L + e)), is for losses without noise.

    Its random decisions are not private; `bl.privatise` makes them so.

    Parameters:
        horizon: number of rounds.
        segments: S, one more than the changes that it should follow.
        eta: learning rate, instead of the one above.
        gamma: mixing, instead of the one above.

    Example:
        >>> world = bl.environment("switching", horizon=10_000, switch=5_000,
        ...                        before=[0.2, 0.8], after=[0.8, 0.2])
        >>> policies = [bl.policy("exp3", arms=2, horizon=10_000),
        ...             bl.policy("exp3-s", arms=2, horizon=10_000, segments=2)]
        >>> results = bl.simulate(policies, world, horizon=10_000, repetitions=20, seed=1)
        >>> [round(float(results.final_regret(name).mean())) for name in ("exp3", "exp3-s")]
        [-510, -2700]
    """

    name = "exp3-s"
    reference = "Auer, Cesa-Bianchi, Freund, Schapire 2002"
    see_also = "exp3, privatised, dp-exp3"
    kernels = Kernels(begin, choose, learn, forget_note)
    examples = ({}, {"loss_noise": 1.0, "segments": 3})
    horizon: Horizon
    segments: Segments = 2
    eta: loss_policies.LearningRate | None = None
    gamma: Mixing | None = None

    def constants(self) -> Params:
        K, noise, eta, gamma = self.arms, self.loss_noise, self.eta, self.gamma
        log = math.log(K * self.horizon)
        if eta is None:
            spread = max(noise, noise**2) * (loss_policies.NOISE_REACH * log) ** 2
            eta = math.sqrt(self.segments * log / (2.0 * self.horizon * K * (1.0 + spread)))
        eta *= self.learning_rate_scale
        if gamma is None:
            gamma = min(loss_policies.EVEN_SHARE * eta * K * noise * log, 1.0)
        share = math.e / self.horizon / (1.0 + math.e / self.horizon)
        return self.fill(Params, eta=eta, gamma=gamma, share=share)

    def chances(self, state: Any) -> np.ndarray | None:
        return np.array(state.chances)
