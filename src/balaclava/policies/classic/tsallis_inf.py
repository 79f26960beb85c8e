"""Tsallis-INF (Zimmert, Seldin 2021, Algorithm 1), its rate scaled to the size of the losses."""

import math
from typing import Annotated, Any, NamedTuple

import numpy as np

from balaclava._core.declared import Range
from balaclava._core.kernels import kernel
from balaclava.estimators.arm_probabilities import draw_arm, tsallis_chances
from balaclava.frames.pending import begin_pending, forget_note, new_note
from balaclava.policies.base import Kernels, register
from balaclava.policies.classic.exp3 import learn
from balaclava.policies.classic.htinf import State
from balaclava.policies.loss_policies import LossPolicy, rivals_are_arms, second_moment

Sigma = Annotated[float, Range(0, meaning="E loss^2 is at most sigma^2", open_low=True)]


class Params(NamedTuple):
    arms: int
    outstanding: int
    rate: float  # eta_t sqrt(t)


@kernel
def begin(params: Params) -> State:
    return State(
        losses=np.zeros(params.arms),
        chances=np.zeros(params.arms),
        root=np.ones(1),
        pending=begin_pending(params.outstanding, 1),
    )


@kernel(borrows=True)
def choose(params: Params, state: State, t: int, context: Any, rng: Any) -> tuple[int, int]:
    tsallis_chances(state.losses, params.rate / math.sqrt(t), 2.0, state.root, state.chances)
    arm = draw_arm(state.chances, rng)
    state.pending.notes[new_note(state.pending), 0] = state.chances[arm]
    return arm, state.pending.count[0]


@register
class TsallisINF(LossPolicy):
    r"""Follow the leader regularised by Tsallis entropy, with plain importance-weighted estimates.

    For losses in [0, 1], random or not, that need no privacy: the lowest regret here. As a base to
    convert it matches htinf on average but has no proof. Noise may put the estimate of an arm with
    a small chance far below 0; losses in [0, 1] never do, and htinf skips such losses.

    In round t, with eta = 1 / (sigma sqrt(t)) and estimated losses L, draw I from the distribution
    x that minimises

    .. math:: \eta \langle L, x \rangle - 2 \sum_i \sqrt{x_i}

    and let L_I grow by y / x_I, where y is its loss.

    Its random decisions are not private; `bl.privatise` makes them so.

    Parameters:
        sigma: the root of the largest mean square of a loss; the default, sqrt(1 + 2 loss_noise^2),
            is right for losses in [0, 1] with Laplace noise of scale `loss_noise`.

    Example:
        >>> world = bl.environment("stochastic-losses", means=[0.5, 0.5, 0.2])
        >>> results = bl.simulate(bl.policy("tsallis-inf", arms=3), world, horizon=10_000,
        ...                       repetitions=20, seed=1)
        >>> round(float(results.final_regret("tsallis-inf").mean()))
        50
    """

    name = "tsallis-inf"
    reference = "Zimmert, Seldin 2021"
    see_also = "dp-tsallis-inf, htinf, exp3"
    kernels = Kernels(begin, choose, learn, forget_note)
    sigma: Sigma | None = None

    def constants(self) -> Params:
        sigma = self.sigma or math.sqrt(second_moment(self.loss_noise))
        return self.fill(Params, rate=self.learning_rate_scale / sigma)

    def chances(self, state: Any) -> np.ndarray | None:
        return np.array(state.chances)

    def proved_bound(self, environment: Any, horizon: int) -> float | None:
        """Theorem 1, for losses without noise: 4 sqrt(K n) + 1."""
        exact = self.loss_noise == 0.0 and self.constants().rate == 1.0
        if not rivals_are_arms(environment) or not exact:
            return None
        return 4.0 * math.sqrt(self.arms * horizon) + 1.0
