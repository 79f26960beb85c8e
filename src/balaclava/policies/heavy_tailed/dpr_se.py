"""DPR-SE: robust private elimination (Tao, Wu, Zhao, Wang 2022, Algorithm 3)."""

import math
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from balaclava._core.kernels import kernel
from balaclava._core.states import MOST_PLANNED, range_faults
from balaclava.frames import epochs as frame
from balaclava.policies.base import Kernels, PrivateRealPolicy, register
from balaclava.policies.heavy_tailed.truncated_elimination import (
    LOG_2,
    Params,
    TruncatedEliminationPolicy,
    learn_truncated,
)
from balaclava.privacy.mechanisms.laplace import laplace_release
from balaclava.privacy.mechanisms.truncation import exact_step


class State(NamedTuple):
    """The open epochs; by row, the values fixed when each opened."""

    epochs: frame.Epochs
    level: np.ndarray  # B, beyond which a reward counts as 0
    step: np.ndarray  # of the grid on which the sums of the epoch are exact
    length: np.ndarray  # R, which B is for
    radius: np.ndarray  # 6 err, for R rewards

    def faults(self, decisions: int) -> Iterator[str]:
        yield from range_faults(0, MOST_PLANNED, length=self.length)
        yield from range_faults(0.0, math.inf, level=self.level, step=self.step, radius=self.radius)


@kernel(borrows=True)
def log_term(params: Params, active: int, epoch: int) -> float:
    """ell = log(4 |S| tau^2 / beta)."""
    return math.log(4.0 * active * epoch * epoch / params.beta)


@kernel(borrows=True)
def epoch_length(params: Params, active: int, epoch: int) -> int:
    """R: enough pulls of each active arm for 12 err to be less than 2^-tau / 2."""
    ratio = log_term(params, active, epoch) / min(params.epsilon, 1.0)
    gap = math.log(24.0 * params.radius_scale) + epoch * LOG_2
    # u^(1/v) (24 / D)^((1+v)/v), in logarithms: it may exceed every horizon and float.
    power = (params.log_bound + params.order * gap) / (params.order - 1.0) + math.log(ratio)
    return math.ceil(math.exp(min(power, math.log(2.0**61 / active))) + 1.0)


@kernel(borrows=True)
def truncation_level(params: Params, active: int, epoch: int, length: int) -> float:
    """B = (u R epsilon / ell)^(1/(1+v))."""
    ratio = length * min(params.epsilon, 1.0) / log_term(params, active, epoch)
    return math.exp((params.log_bound + math.log(ratio)) / params.order)


@kernel(borrows=True)
def error_radius(params: Params, active: int, epoch: int, length: int) -> float:
    """err = u^(1/(1+v)) (ell / (R epsilon))^(v/(1+v)) = u / B^v."""
    ratio = length * min(params.epsilon, 1.0) / log_term(params, active, epoch)
    return math.exp((params.log_bound - (params.order - 1.0) * math.log(ratio)) / params.order)


@kernel
def begin(params: Params) -> State:
    return State(
        epochs=frame.begin_epochs(params.arms),
        level=np.ones(2),
        step=np.ones(2),
        length=np.ones(2, np.int64),
        radius=np.ones(2),
    )


@kernel(borrows=True)
def choose(params: Params, state: State, t: int, context: Any, rng: Any) -> tuple[int, int]:
    epochs = state.epochs
    if frame.needs_epoch(epochs):
        active, epoch = frame.active_arms(epochs), epochs.number[0] + 1
        length = epoch_length(params, active, epoch)
        row = frame.open_epoch(epochs, length, -1)
        state.level[row] = truncation_level(params, active, epoch, length)
        state.step[row] = exact_step(state.level[row], frame.capacity(length))
        state.length[row] = length
        state.radius[row] = 6.0 * params.radius_scale * error_radius(params, active, epoch, length)
    return frame.next_decision(params, epochs, rng)


@kernel(borrows=True)
def release(params: Params, state: State, arm: int, row: int, rng: Any) -> None:
    """Release an arm's sum of the epoch, with the radius 6 err."""
    epochs = state.epochs
    total = laplace_release(rng, epochs.sums[arm, row], 2.0 * state.level[row], params.epsilon)
    # With n < R rewards, noise and sampling error are at most R/n times as large.
    missing = max(1.0, state.length[row] / epochs.rewards_in_epoch[arm, row])
    frame.keep_release(epochs, arm, row, total, state.radius[row] * missing)


@kernel(borrows=True)
def finish(params: Params, state: State, row: int) -> None:
    """Remove the arms that are behind by more than 12 err."""
    epochs = state.epochs
    frame.eliminate_arms(epochs)
    frame.end_epoch(epochs, epoch_length(params, frame.active_arms(epochs), epochs.oldest[0] + 1))


learn, forget = learn_truncated(release, finish)


@register
class DPRSE(TruncatedEliminationPolicy, PrivateRealPolicy):
    r"""Private elimination on truncated means, for rewards with a known moment.

    For a trusted server that holds the rewards. Its regret has the best possible order;
    dpr-batch-ucb has the same order with far smaller constants. The paper's constants make the
    first epoch longer than most horizons (see `first_epoch`): set `radius_scale` to 0.1 or less,
    which also shortens the epochs.

    Given E|X|^(1+v) <= u, in epoch tau = 1, 2, ... with active set S let D = 2^-tau,
    ell = log(4|S|tau^2/beta), and pull each arm of S

    .. math:: R = \lceil u^{1/v} 24^{(1+v)/v} \ell / (\varepsilon D^{(1+v)/v}) + 1 \rceil

    times. Rewards beyond B = (u R epsilon / ell)^(1/(1+v)) count as 0. Let m_a be the mean of the
    epoch's rewards + Lap(2B/(R epsilon)). Remove a if max m - m_a > 12 err, where

    .. math:: \mathrm{err} = u^{1/(1+v)} (\ell / (R \varepsilon))^{v/(1+v)}.

    The analysis ends at epsilon 1: above it, 1 replaces epsilon in R, B and err, but not in the
    noise. `radius_scale` c replaces 24 and 12 by 24 c and 12 c. Arms take turns in random order.
    With n < R rewards, because some were lost, err is taken R/n times as large. The published proof
    is for full epochs.

    Sums are exact on a grid that grows with R. Up to R = 10^8 the 12 err cover rounding. With more
    pulls of an arm in an epoch they do not, and `regret_bound` returns None.

    Privacy:
        epsilon-differential privacy of the whole trajectory (Theorem 3), for all rewards. Each
        reward enters one released sum, of sensitivity 2B. Lengths, levels and the active set follow
        from earlier releases. An epoch that the horizon cuts off releases nothing.

    Parameters:
        moment_bound: u. Do not compute it from the rewards to protect.

    Example:
        >>> bl.policy("dpr-se", arms=5, epsilon=1.0, horizon=10**6, moment_order=1.9,
        ...           moment_bound=8.142063093163385).first_epoch
        612090
    """

    name = "dpr-se"
    reference = "Tao, Wu, Zhao, Wang 2022"
    see_also = "dpr-batch-ucb, dpr-ucb, ldpr-se, robust-ucb"
    epoch_length = staticmethod(epoch_length)
    truncation_level = staticmethod(truncation_level)
    allowed_error = 6.0
    failures = math.pi**2 / 8.0
    kernels = Kernels(begin, choose, learn, forget)
    examples = (
        {"horizon": 600, "radius_scale": 0.03},
        {"horizon": 600, "radius_scale": 0.01, "moment_order": 1.4, "epsilon": 3.0},
    )

    def error(self, shortest: float, longest: float) -> float:
        """1 (truncation) + sqrt(2 e) + e/3 (sampling) + 2 (noise) + rounding, e = min(eps, 1).

        By Bernstein's inequality on both sides, except with probability 3 beta / (4 |S| tau^2), or
        pi^2/8 beta in all epochs together. The pulls of an arm are at most

            (4/3) u^(1/v) (48 c / gap)^((1+v)/v) log(4 K tau^2 / beta) / e + 2 tau

        for gaps up to 1/2, c the radius_scale and tau the first epoch with 2^-tau <= gap.
        """
        params, epsilon = self.constants(), min(self.epsilon, 1.0)
        # A step divided by err, since err / B = ell / (R e).
        level = truncation_level(params, self.arms, 1, int(longest))
        rounding = exact_step(level, frame.capacity(int(longest))) / level * longest * epsilon
        return 3.0 + math.sqrt(2.0 * epsilon) + epsilon / 3.0 + rounding / log_term(params, 2, 1)
