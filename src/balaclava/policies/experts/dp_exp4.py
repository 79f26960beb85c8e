"""Private, batched EXP4 (Asi, Raman, Talwar 2025, Algorithm 2, Theorem 4.5)."""

import math
from collections.abc import Iterator
from typing import Any, Literal, NamedTuple

import numpy as np

from balaclava._core.declared import Delta, Epsilon, Horizon
from balaclava._core.kernels import kernel
from balaclava._core.number_format import rounded_up
from balaclava._core.states import MOST_PLANNED, range_faults, stored_as
from balaclava.estimators import expert_weights
from balaclava.frames.pending import FORGOTTEN, next_is_taken, take_note
from balaclava.policies.base import Kernels, register
from balaclava.policies.expert_policies import PrivateExpertPolicy
from balaclava.policies.loss_policies import LOST_LOSS, LearningRateScale, Outstanding
from balaclava.privacy.accounting import advanced_epsilon
from balaclava.privacy.exact_noise import grid_step
from balaclava.privacy.mechanisms.analytic_gaussian import (
    gaussian_fault,
    gaussian_shift,
    gaussian_vector_release,
)
from balaclava.privacy.mechanisms.laplace import laplace_release

# Largest gamma. A guess: above, most arms would be drawn uniformly and little is learned.
MOST_MIXING = 0.5
Noise = Literal["laplace", "gaussian"]


class Params(NamedTuple):
    experts: int
    outstanding: int
    learning_rate: float  # eta
    batch: int  # tau, whole
    mixing: float  # gamma
    width: float  # K / gamma: sensitivity of an expert's sum
    step: float  # grid step on which the sums are exact
    epsilon: float  # of one expert's release; of all together with Gaussian noise
    delta: float  # of the release with Gaussian noise, otherwise 0
    noise_scale: float  # lambda: the noise in an expert's mean has the variance 2 lambda^2


# Rows for open batches: waiting decisions are fewer than a batch, and so span at most two.
EXP4_OPEN_BATCHES = 4


@stored_as(awaited="left")
class State(NamedTuple):
    """The weights, which change when a batch settles, and the open batches by row."""

    weights: expert_weights.ExpertWeights
    awaited: np.ndarray  # [row]: decisions without a loss that were not given up
    lost: np.ndarray  # [row]: decisions that were given up
    sums: np.ndarray  # [row, N]: in grid steps, raw: read only to be released
    released: np.ndarray  # [N]: the last release

    def faults(self, decisions: int) -> Iterator[str]:
        yield from range_faults(0, decisions, lost=self.lost)
        yield from range_faults(0, MOST_PLANNED, awaited=self.awaited)


@kernel
def begin(params: Params) -> State:
    return State(
        weights=expert_weights.begin_weights(params.experts, params.outstanding),
        awaited=np.zeros(EXP4_OPEN_BATCHES, np.int64),
        lost=np.zeros(EXP4_OPEN_BATCHES, np.int64),
        sums=np.zeros((EXP4_OPEN_BATCHES, params.experts)),
        released=np.zeros(params.experts),
    )


@kernel(borrows=True)
def choose(params: Params, state: State, t: int, context: Any, rng: Any) -> tuple[int, int]:
    pending = state.weights.pending
    if next_is_taken(pending):  # the oldest decision is given up for the new one
        forget(params, state, t, 0, pending.count[0] + 1 - pending.numbers.size, rng)
    arm = expert_weights.draw_advised(state.weights, context, params.mixing, rng)
    number = expert_weights.note_arm(state.weights, context, params.mixing, arm)
    if (number - 1) % params.batch == 0:
        state.awaited[batch_row(params, number)] = params.batch
    return arm, number


@kernel(borrows=True)
def batch_row(params: Params, number: int) -> int:
    """Row of a decision's batch, by the order of decisions."""
    return (number - 1) // params.batch % EXP4_OPEN_BATCHES


@kernel(borrows=True)
def learn(
    params: Params, state: State, t: int, arm: int, reward: float, phase: int, rng: Any
) -> None:
    note = take_note(state.weights.pending, phase)
    if note == FORGOTTEN:
        return
    notes, row = state.weights.pending.notes, batch_row(params, phase)
    most = math.floor(params.width / params.step)
    ratio = reward / notes[note, 0] / params.step
    for expert in range(params.experts):
        steps = math.floor(ratio * notes[note, expert + 1] + 0.5)
        state.sums[row, expert] += min(steps, most)
    settle(params, state, row, rng)


@kernel(borrows=True)
def forget(params: Params, state: State, t: int, arm: int, phase: int, rng: Any) -> None:
    if take_note(state.weights.pending, phase) != FORGOTTEN:
        row = batch_row(params, phase)
        state.lost[row] += 1
        settle(params, state, row, rng)


@kernel(borrows=True)
def settle(params: Params, state: State, row: int, rng: Any) -> None:
    """Count a settled decision; release the complete batch if half of its losses arrived."""
    state.awaited[row] -= 1
    if state.awaited[row] > 0:
        return
    received = params.batch - state.lost[row]
    if 2 * received >= params.batch:
        release(params, state, row, rng)
        for expert in range(params.experts):
            state.weights.logs[expert] -= params.learning_rate * state.released[expert] / received
    state.sums[row, :] = 0.0
    state.lost[row] = 0
    expert_weights.renew_shares(state.weights)


@kernel(borrows=True)
def release(params: Params, state: State, row: int, rng: Any) -> None:
    """Release the experts' sums: each by itself, or with Gaussian noise as one array."""
    answers = state.released
    for expert in range(params.experts):
        answers[expert] = state.sums[row, expert] * params.step
    if params.delta > 0.0:
        length = math.sqrt(params.experts) * params.width  # L2 sensitivity
        gaussian_vector_release(rng, answers, length, params.epsilon, params.delta, answers)
        return
    for expert in range(params.experts):
        answers[expert] = laplace_release(rng, answers[expert], params.width, params.epsilon)


@register
class DPExp4(PrivateExpertPolicy):
    r"""EXP4 in batches; each batch ends with a noisy release of each expert's estimated loss.

    For very many experts, a small epsilon and a very long horizon. Its regret grows as
    N^(1/6) T^(2/3) / epsilon^(1/3), but with such constants that its bound is the least only from
    about 10^5 experts and 10^12 rounds on. Otherwise dp-htinf-experts or ldp-exp4 is better;
    `bl.recommend_experts` compares them. Horizons that are too short for its batches are refused.
    At epsilon 1 and delta 1e-5, Gaussian noise is a quarter of the paper's for any number of
    experts. From seven experts on it is also less than that of delta = 0.

    Let n = N log(1/delta), or (N/3)^2 for delta = 0, or N epsilon^2 / (18 m^2) for Gaussian noise,
    where m is the largest shift that keeps epsilon and delta. With L = log(N T) and l = log N,

    .. math:: \eta = n^{1/6} L^{1/3} l^{1/3} / (T^{1/3} K^{1/2} \varepsilon^{1/3}),

    .. math:: \tau = n^{1/3} L^{2/3} T^{1/3} / (\varepsilon^{2/3} l^{1/3}),

    .. math::
        \gamma = \max\{\eta^{1/3} n^{1/3} K^{2/3} L^{2/3} / (\varepsilon \tau)^{2/3},\;
        12 \eta K n^{1/2} L / (\varepsilon \tau)\}.

    The weights are constant for tau rounds, rounded up. In each of them the arm I is drawn from

    .. math:: Q(i) = (1 - \gamma) \sum_j P_j \mu_j(i) + \gamma / K.

    If at least half of the batch's losses were received, w_j <- w_j exp(-eta (m_j + Lap(lambda))).
    Here m_j is the mean of l(I) mu_j(I) / Q(I) over the received losses, and
    lambda = 3 K n^(1/2) / (gamma tau epsilon). Gaussian noise has the same variance, 2 lambda^2. A
    batch that the horizon cuts off changes nothing. (The printed first branch of gamma lacks
    log^(1/3)(1/delta).)

    Privacy:
        (epsilon, delta)-differential privacy of the whole trajectory with respect to the losses.
        A loss enters one batch. As Q(I) >= gamma / K it moves each of the N sums by at most
        K / gamma. Each sum is released once with epsilon_0 = epsilon / (3 n^(1/2)). N such releases
        compose to (epsilon, delta), by advanced composition or by basic composition if that is
        less. For delta = 0, epsilon_0 = epsilon / N by basic composition (not in the paper).
        Settings where neither holds are refused (none with epsilon <= 1 and delta <= 1/e). With
        Gaussian noise (not in the paper either) the N sums are released as one array. One loss
        moves it by at most N^(1/2) K / gamma in the L2 norm, for which the noise is calibrated.
        Nothing composes, as no loss enters two batches. Each term of a sum is rounded onto a grid
        of 2^-20 of K / gamma, so that sums are exact. Advanced composition leaves a third of
        epsilon unspent, and decisions reveal little of one release: audits by games find far less
        than epsilon.

    Parameters:
        delta: probability outside it. 0 is allowed, and has less noise for up to 9 log(1/delta)
            experts, about 100 at delta = 1e-5.
        learning_rate_scale: multiplies eta, which determines gamma; never affects privacy.
        noise: "laplace", as in the paper, or "gaussian", which needs a delta above 0.

    Example:
        >>> policy = bl.policy("dp-exp4", arms=5, experts=20, horizon=10**6, epsilon=1.0,
        ...                    delta=1e-5)
        >>> batch = policy.constants()
        >>> batch.batch, round(batch.mixing, 6), round(batch.noise_scale, 6)
        (2791, 0.224288, 0.363607)
        >>> round(policy.regret_bound(None, 10**6))
        649609
        >>> gaussian = bl.policy("dp-exp4", arms=5, experts=20, horizon=10**6, epsilon=1.0,
        ...                      delta=1e-5, noise="gaussian")
        >>> round(gaussian.regret_bound(None, 10**6))
        401672
    """

    name = "dp-exp4"
    reference = "Asi, Raman, Talwar 2025"
    see_also = "ldp-exp4, dp-htinf-experts, exp4"
    examples = ({"learning_rate_scale": 0.1},)
    kernels = Kernels(begin, choose, learn, forget)
    lost_reward = LOST_LOSS
    horizon: Horizon
    epsilon: Epsilon
    delta: Delta
    learning_rate_scale: LearningRateScale = 1.0
    noise: Noise = "laplace"
    outstanding: Outstanding = 4096

    def __post_init__(self) -> None:
        super().__post_init__()
        each = self.epsilon / (3.0 * math.sqrt(self._cost))
        total = min(self.experts * each, advanced_epsilon(each, self.experts, self.delta))
        if self.noise == "laplace" and total > self.epsilon * (1.0 + 1e-12):
            raise self.refuse(
                "delta",
                f"is too large for epsilon = {rounded_up(self.epsilon)}: the paper's noise "
                f"composes to epsilon = {rounded_up(total, '.3g')}; lower delta",
            )
        if (mixing := self.constants().mixing) > MOST_MIXING:
            raise self.refuse(
                "horizon",
                f"is too short: gamma, the share of uniform draws, would be {mixing:.2g}, above "
                f"{MOST_MIXING:g}; raise horizon or epsilon, or lower learning_rate_scale",
            )

    @property
    def _cost(self) -> float:
        """n: a release has epsilon / (3 sqrt(n)), or Gaussian noise of that variance."""
        if self.noise == "gaussian":
            if self.delta == 0.0:
                raise self.refuse("delta", 'must be above 0 for noise = "gaussian"; raise it')
            if fault := gaussian_fault(self.epsilon, self.delta, self.experts):
                raise self.refuse("epsilon", fault)
            shift = gaussian_shift(self.epsilon, self.delta)
            return self.experts / 18.0 * (self.epsilon / shift) ** 2
        if self.delta == 0.0:
            return (self.experts / 3.0) ** 2
        return self.experts * -math.log(self.delta)

    def constants(self) -> Params:
        K, T, epsilon, n = float(self.arms), float(self.horizon), self.epsilon, self._cost
        L, few = math.log(self.experts * T), math.log(max(self.experts, 2))
        eta = self.learning_rate_scale * (n**0.5 * L * few / (T * epsilon)) ** (1 / 3) / K**0.5
        tau = (n * L**2 * T / (epsilon**2 * few)) ** (1 / 3)
        gamma = max(
            (eta * n * K**2 * L**2 / (epsilon * tau) ** 2) ** (1 / 3),
            12.0 * eta * K * n**0.5 * L / (epsilon * tau),
        )
        batch, width = math.ceil(tau), K / gamma
        each, gaussian = epsilon / (3.0 * math.sqrt(n)), self.noise == "gaussian"
        return Params(
            experts=self.experts,
            outstanding=min(self.outstanding, batch),
            learning_rate=eta,
            batch=batch,
            mixing=gamma,
            width=width,
            step=grid_step(width),
            epsilon=epsilon if gaussian else each,
            delta=self.delta if gaussian else 0.0,
            noise_scale=width / (batch * each),
        )

    def propensity(self, state: Any, arm: int) -> float | None:
        return expert_weights.last_chance(state.weights)

    def proved_bound(self, environment: Any, horizon: int) -> float | None:
        """tau log N / eta + gamma T + eta T (K + 2 lambda^2) + 2 tau.

        The proof is that of Theorem 4.5. The variance of the noise, 2 lambda^2, replaces the bound
        10 lambda^2 L^2 on the largest squared draw. The proof assumes that no draw exceeds
        4 lambda L, which fails for N T draws with probability (N T)^-3. Gaussian draws of that
        variance exceed it less often, with probability exp(-4 L^2) each.
        """
        if horizon > self.horizon or not self.competes_in(environment):
            return None
        p = self.constants()
        each = p.mixing + p.learning_rate * (self.arms + 2.0 * p.noise_scale**2)
        return p.batch * (math.log(self.experts) / p.learning_rate + 2.0) + horizon * each
