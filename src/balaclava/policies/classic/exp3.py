"""EXP3 with mixing (Auer, Cesa-Bianchi, Freund, Schapire 2002; Asi et al. 2025, Algorithm 3)."""

import math
from collections.abc import Iterator
from typing import Annotated, Any, NamedTuple

import numpy as np

from balaclava._core.declared import Horizon, Range
from balaclava._core.kernels import kernel
from balaclava._core.states import MOST_CHANCE, range_faults
from balaclava.estimators.arm_probabilities import add_loss, draw_arm, least_loss
from balaclava.frames.pending import Pending, begin_pending, forget_note, new_note, take_note
from balaclava.policies import loss_policies
from balaclava.policies.base import Kernels, register

Mixing = Annotated[float, Range(0, 1, "share of decisions drawn uniformly")]


class Params(NamedTuple):
    arms: int
    outstanding: int
    eta: float
    gamma: float
    anytime: bool  # whether eta falls with the square root of the round


class State(NamedTuple):
    """Estimated losses, which are -log(weight) / eta, and the arms' chances."""

    losses: np.ndarray
    chances: np.ndarray
    pending: Pending  # the chance of each arm that was drawn

    def faults(self, decisions: int) -> Iterator[str]:
        yield from range_faults(0.0, MOST_CHANCE, chances=self.chances)


@kernel
def begin(params: Params) -> State:
    return State(
        losses=np.zeros(params.arms),
        chances=np.zeros(params.arms),
        pending=begin_pending(params.outstanding, 1),
    )


@kernel(borrows=True)
def choose(params: Params, state: State, t: int, context: Any, rng: Any) -> tuple[int, int]:
    eta = params.eta / math.sqrt(t) if params.anytime else params.eta
    least, total = least_loss(state.losses), 0.0
    for arm in range(params.arms):
        state.chances[arm] = math.exp(-eta * (state.losses[arm] - least))
        total += state.chances[arm]
    share, floor = (1.0 - params.gamma) / total, params.gamma / params.arms
    for arm in range(params.arms):
        state.chances[arm] = share * state.chances[arm] + floor
    arm = draw_arm(state.chances, rng)
    state.pending.notes[new_note(state.pending), 0] = state.chances[arm]
    return arm, state.pending.count[0]


@kernel(borrows=True)
def learn(
    params: Params, state: State, t: int, arm: int, reward: float, phase: int, rng: Any
) -> None:
    row = take_note(state.pending, phase)
    if row >= 0:
        add_loss(state.losses, arm, reward / state.pending.notes[row, 0])


@register
class Exp3(loss_policies.LossPolicy):
    r"""Draw an arm by weights that fall exponentially with its estimated losses.

    The baseline for losses that an adversary chose. The regret of htinf is smaller by a factor of
    sqrt(log K) and does not pay further logarithms for noise.

    With weights w_i = 1 at first, draw I from P_i = (1 - gamma) w_i / (sum of w) + gamma / K,
    observe its loss y, and let w_I fall to w_I exp(-eta y / P_I).

    Given a horizon n, noise of scale lambda and L = log(K n), the rates are

    .. math:: \eta = \sqrt{\log K / (2 n K (1 + 10 \max(\lambda, \lambda^2) L^2))},

    .. math:: \gamma = 4 \eta K \lambda L.

    The mixing keeps eta y / P_I above -1. The proof needs that because exp(-x) <= 1 - x + x^2 holds
    for x >= -1. Only noise makes a loss negative: it is at least -sqrt(10) lambda L in all rounds,
    except with probability 1/n. So gamma scales with eta, and is 0 without noise. Without a
    horizon, eta = sqrt(log K / (t K)) in round t.

    Its random decisions are not private; `bl.privatise` makes them so.

    Parameters:
        horizon: number of rounds; None for rates that fall with time.
        eta: learning rate, instead of the one above.
        gamma: mixing, instead of the one above.

    Example:
        >>> policy = bl.policy("exp3", arms=3, horizon=10_000)
        >>> world = bl.environment("stochastic-losses", means=[0.5, 0.5, 0.2])
        >>> results = bl.simulate(policy, world, horizon=10_000, repetitions=20, seed=1)
        >>> round(float(results.final_regret("exp3").mean()))
        270
    """

    name = "exp3"
    reference = "Auer, Cesa-Bianchi, Freund, Schapire 2002"
    cites = (
        "Auer, Cesa-Bianchi, Freund, Schapire 2002; "
        "Bubeck, Cesa-Bianchi 2012; "
        "Asi, Raman, Talwar 2025"
    )
    see_also = "dp-exp3, htinf, ftpl"
    kernels = Kernels(begin, choose, learn, forget_note)
    examples = ({}, {"horizon": 600, "loss_noise": 1.0})
    horizon: Horizon | None = None
    eta: loss_policies.LearningRate | None = None
    gamma: Mixing | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.loss_noise > 0 and self.horizon is None:
            raise self.refuse("loss_noise", "needs a horizon to tune the rates to; give one")

    def constants(self) -> Params:
        K, eta = self.arms, self.eta
        anytime = eta is None and self.horizon is None
        if eta is None:
            rounds = 0.5 if self.horizon is None else self.horizon
            spread = (
                max(self.loss_noise, self.loss_noise**2)
                * (loss_policies.NOISE_REACH * self._log) ** 2
            )
            eta = math.sqrt(math.log(K) / (2.0 * rounds * K * (1.0 + spread)))
        eta *= self.learning_rate_scale
        gamma = self.gamma
        if gamma is None:
            gamma = min(loss_policies.EVEN_SHARE * eta * K * self.loss_noise * self._log, 1.0)
        return self.fill(Params, eta=eta, gamma=gamma, anytime=anytime)

    @property
    def _log(self) -> float:
        return math.log(self.arms * self.horizon) if self.horizon else 0.0

    def chances(self, state: Any) -> np.ndarray | None:
        return np.array(state.chances)

    def proved_bound(self, environment: Any, horizon: int) -> float | None:
        """Asi et al., Lemma E.2, with the rates in use; without a horizon Bubeck et al., Thm 3.1.

        The first is log K / eta + eta n K (1 + 2 lambda^2) + gamma n + 1. Its proof uses the
        largest square of the noise, 10 lambda^2 L^2; here it is the variance, 2 lambda^2. With the
        default rates the bound is below the paper's, which is 1 plus twice
        sqrt(2 n K log K (1 + 10 max(lambda, lambda^2) L^2)). The second is 2 sqrt(n K log K).
        """
        K, _, eta, gamma, anytime = self.constants()
        if not loss_policies.rivals_are_arms(environment) or horizon > (self.horizon or horizon):
            return None
        if K == 1:
            return 0.0
        if anytime:
            c = self.learning_rate_scale
            return None if gamma else (c + 1.0 / c) * math.sqrt(horizon * K * math.log(K))
        least = min(eta * K * self.loss_noise * loss_policies.NOISE_REACH * self._log, 1.0)
        if eta == 0.0 or gamma < least:
            return None
        each = eta * K * loss_policies.second_moment(self.loss_noise) + gamma
        return math.log(K) / eta + each * horizon + 1.0
