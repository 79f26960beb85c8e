"""FTPL with geometric resampling (Neu, Bartok 2016; Asi et al. 2025, Algorithm 4)."""

import math
from typing import Annotated, Any, NamedTuple

import numpy as np

from balaclava._core.declared import Horizon, Range
from balaclava._core.kernels import kernel
from balaclava.estimators.arm_probabilities import add_loss, chances_to_lead
from balaclava.frames.pending import Pending, begin_pending, forget_note, new_note, take_note
from balaclava.policies.base import Kernels, register
from balaclava.policies.loss_policies import NOISE_REACH, LearningRate, LossPolicy, rivals_are_arms

Resamples = Annotated[int, Range(1, 2**53, "most draws that estimate the chance of an arm")]


class Params(NamedTuple):
    arms: int
    outstanding: int
    spread: float  # 1/eta
    resamples: int


class State(NamedTuple):
    """Estimated losses, and for each chosen arm the draws until it led again."""

    losses: np.ndarray
    pending: Pending


@kernel
def begin(params: Params) -> State:
    return State(np.zeros(params.arms), begin_pending(params.outstanding, 1))


@kernel(borrows=True)
def perturbed(params: Params, state: State, arm: int, rng: Any) -> float:
    """The estimated loss with Laplace noise, for exploration and not for privacy."""
    noise = rng.standard_exponential() - rng.standard_exponential()
    return state.losses[arm] + params.spread * noise


@kernel(borrows=True)
def leads(params: Params, state: State, leader: int, rng: Any) -> bool:
    """Whether `leader` is the arg min of a new draw; stops at the first arm below it."""
    lowest = perturbed(params, state, leader, rng)
    for arm in range(params.arms):
        if arm != leader:
            other = perturbed(params, state, arm, rng)
            if other < lowest or (other == lowest and arm < leader):
                return False
    return True


@kernel(borrows=True)
def choose(params: Params, state: State, t: int, context: Any, rng: Any) -> tuple[int, int]:
    best, lowest = 0, math.inf
    for arm in range(params.arms):
        index = perturbed(params, state, arm, rng)
        if index < lowest:
            best, lowest = arm, index
    # Resample now: when the loss arrives the estimated losses may differ.
    draws = 1
    while draws < params.resamples and not leads(params, state, best, rng):
        draws += 1
    state.pending.notes[new_note(state.pending), 0] = draws
    return best, state.pending.count[0]


@kernel(borrows=True)
def learn(
    params: Params, state: State, t: int, arm: int, reward: float, phase: int, rng: Any
) -> None:
    row = take_note(state.pending, phase)
    if row >= 0:
        add_loss(state.losses, arm, reward * state.pending.notes[row, 0])


@register
class FTPL(LossPolicy):
    r"""Follow the arm whose estimated loss, perturbed by noise, is least.

    A base for `bl.privatise` that needs no arm's chance. It is slow, about K draws of all arms a
    round, and its regret is higher than that of exp3 and htinf: prefer those.

    Draw Z_i from Lap(1/eta) for each arm and play I = argmin of L_i + Z_i. Then draw again until
    I leads again, at most M times; with m draws, L_I grows by m y, where y is the loss. On
    average m is (1 - (1 - p)^M) / p if I had the chance p.

    For n rounds, noise of scale lambda and L = log(K n), M = ceil(sqrt(K n)) and

    .. math::
        \eta = \min\{\sqrt{\log K / (K n (1 + 10 \lambda^2 L^2))},\;
        1 / (M (1 + \lambda \max(4 \log n, \sqrt{10} L)))\}.

    The paper's listing draws again until I is the arg max, and uses 0 if I does not lead again
    within M draws. Both are slips: the proof needs the arg min, and M.

    Its random decisions are not private; `bl.privatise` makes them so.

    Parameters:
        eta: learning rate, instead of the one above.
        resamples: M, instead of the one above.
        learning_rate_scale: multiplies eta; M stays.

    Example:
        >>> policy = bl.policy("ftpl", arms=3, horizon=10_000)
        >>> world = bl.environment("stochastic-losses", means=[0.5, 0.5, 0.2])
        >>> results = bl.simulate(policy, world, horizon=10_000, repetitions=20, seed=1)
        >>> round(float(results.final_regret("ftpl").mean()))
        226
    """

    name = "ftpl"
    reference = "Neu, Bartok 2016"
    cites = "Neu, Bartok 2016; Asi, Raman, Talwar 2025"
    see_also = "dp-ftpl, exp3, htinf"
    kernels = Kernels(begin, choose, learn, forget_note)
    horizon: Horizon
    eta: LearningRate | None = None
    resamples: Resamples | None = None

    def constants(self) -> Params:
        eta = self.rate
        spread = 1.0 / eta if eta > 0.0 else 0.0
        return self.fill(Params, spread=spread, resamples=self._draws)

    @property
    def rate(self) -> float:
        eta = self.eta
        if eta is None:
            slow = self.arms * self.horizon * (1.0 + self._noise**2)
            eta = min(math.sqrt(math.log(self.arms) / slow), self._largest_rate)
        return eta * self.learning_rate_scale

    @property
    def _draws(self) -> int:
        return self.resamples or math.ceil(math.sqrt(self.arms * self.horizon))

    @property
    def _noise(self) -> float:
        """A bound on the noise of all rounds that fails with probability below 1/n."""
        return NOISE_REACH * self.loss_noise * math.log(self.arms * self.horizon)

    @property
    def _largest_rate(self) -> float:
        """The largest eta for which the estimates satisfy the proof."""
        noise = max(self._noise, 4.0 * self.loss_noise * math.log(self.horizon))
        return 1.0 / (self._draws * (1.0 + noise))

    def chances(self, state: Any) -> np.ndarray | None:
        """The chance of each arm to lead, by quadrature: there is no closed form."""
        return chances_to_lead(state.losses, self.constants().spread)

    def proved_bound(self, environment: Any, horizon: int) -> float | None:
        """6 log K / eta + 4 eta K n (1 + 10 lambda^2 L^2) + K n / (e M) + 1.

        From the decomposition in the proof of Lemma E.4 of Asi et al. Its last line omits the cost
        of the second branch of eta.
        """
        K, eta = self.arms, self.rate
        if not rivals_are_arms(environment) or horizon > self.horizon:
            return None
        if K == 1:
            return 0.0
        if not 0.0 < eta <= self._largest_rate * (1.0 + 1e-9):
            return None
        bias = K * horizon / (math.e * self._draws)
        return 6 * math.log(K) / eta + 4 * eta * K * horizon * (1 + self._noise**2) + bias + 1
