"""EXP4: exponential weights over experts (Auer, Cesa-Bianchi, Freund, Schapire 2002, Section 7)."""

import math
from typing import Annotated, Any, NamedTuple

from balaclava._core.declared import Horizon, Range
from balaclava._core.kernels import kernel
from balaclava.estimators.expert_weights import (
    ExpertWeights,
    begin_weights,
    draw_advised,
    last_chance,
    learn_weights,
    note_arm,
)
from balaclava.frames.pending import FORGOTTEN, forget_note, take_note
from balaclava.policies.base import Kernels, register
from balaclava.policies.expert_policies import ExpertPolicy
from balaclava.policies.loss_policies import LearningRateScale, Outstanding

Mixing = Annotated[float, Range(0, 1, "share of uniform draws", open_high=True)]


class Params(NamedTuple):
    experts: int
    outstanding: int
    learning_rate: float
    mixing: float


@kernel
def begin(params: Params) -> ExpertWeights:
    return begin_weights(params.experts, params.outstanding)


@kernel(borrows=True)
def choose(params: Params, state: ExpertWeights, t: int, context: Any, rng: Any) -> tuple[int, int]:
    arm = draw_advised(state, context, params.mixing, rng)
    return arm, note_arm(state, context, params.mixing, arm)


@kernel(borrows=True)
def learn(
    params: Params, state: ExpertWeights, t: int, arm: int, reward: float, phase: int, rng: Any
) -> None:
    row = take_note(state.pending, phase)
    if row != FORGOTTEN:
        learn_weights(state, row, params.learning_rate * reward)


@register
class Exp4(ExpertPolicy):
    r"""Follow experts in proportion to weights that fall exponentially with their estimated losses.

    The baseline for policies that follow experts. It is not private: each loss moves the chances of
    all later decisions by unbounded amounts.

    With weights w_j = 1 at first, P = w / sum of w and advice mu_j of expert j, draw arm I from

    .. math:: Q(i) = (1 - \gamma) \sum_j P_j \mu_j(i) + \gamma / K

    and after its loss y set w_j <- w_j exp(-eta mu_j(I) y / Q(I)), where eta = sqrt(2 log N / TK).
    It accepts losses of any size; the bound on the regret holds for those in [0, 1]. A late loss is
    weighed by the Q and the advice of its own decision.

    Parameters:
        mixing: gamma, which keeps every arm's chance above gamma / K.

    Example:
        >>> agent = bl.policy("exp4", arms=2, experts=3, horizon=500).agent(seed=1)
        >>> advice = [[1, 0], [0.5, 0.5], [0, 1]]
        >>> pulls = [0, 0]
        >>> for _ in range(500):
        ...     decision = agent.ask(advice)
        ...     pulls[decision.arm] += 1
        ...     agent.tell(decision, reward=(0.9, 0.2)[decision.arm])
        >>> pulls
        [38, 462]
    """

    name = "exp4"
    reference = "Auer, Cesa-Bianchi, Freund, Schapire 2002"
    see_also = "dp-exp4, ldp-exp4, dp-htinf-experts"
    kernels = Kernels(begin, choose, learn, forget_note)
    horizon: Horizon
    mixing: Mixing = 0.0
    learning_rate_scale: LearningRateScale = 1.0
    outstanding: Outstanding = 256

    def constants(self) -> Params:
        eta = math.sqrt(2.0 * math.log(self.experts) / (self.horizon * self.arms))
        return self.fill(Params, learning_rate=self.learning_rate_scale * eta)

    def propensity(self, state: Any, arm: int) -> float | None:
        return last_chance(state)

    def proved_bound(self, environment: Any, horizon: int) -> float | None:
        """log N / eta + eta T K / 2, plus T gamma: sqrt(2 T K log N) at the default settings."""
        if horizon > self.horizon or not self.competes_in(environment):
            return None
        if self.experts == 1:
            return self.mixing * horizon
        eta = self.constants().learning_rate
        spread = math.log(self.experts) / eta + eta * horizon * self.arms / 2.0
        return spread + self.mixing * horizon
