"""LDPR-SE: robust elimination on private reports (Tao, Wu, Zhao, Wang 2022, Algorithm 4)."""

import math
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from balaclava._core.kernels import kernel
from balaclava._core.states import MOST_PLANNED, range_faults
from balaclava.frames import epochs as frame
from balaclava.policies.base import Kernels, register
from balaclava.policies.heavy_tailed.truncated_elimination import (
    LOG_2,
    Params,
    TruncatedEliminationPolicy,
)
from balaclava.policies.local_policies import LocalRealPolicy, truncated_laplace_report


class State(NamedTuple):
    """The open epochs, with sums of reports; by row, the values fixed when each opened."""

    epochs: frame.Epochs
    level: np.ndarray  # B, which the server sends with the decision
    length: np.ndarray  # R, which B is for
    radius: np.ndarray  # 7 err, for R reports

    def faults(self, decisions: int) -> Iterator[str]:
        yield from range_faults(0, MOST_PLANNED, length=self.length)
        yield from range_faults(0.0, math.inf, level=self.level, radius=self.radius)


@kernel(borrows=True)
def log_term(params: Params, active: int, epoch: int) -> float:
    """ell = log(8 |S| tau^2 / beta)."""
    return math.log(8.0 * active * epoch * epoch / params.beta)


@kernel(borrows=True)
def log_samples(params: Params, epoch: int) -> float:
    """The logarithm of u^(2/v) (28 / D)^(2(1+v)/v) / epsilon^2."""
    gap = math.log(28.0 * params.radius_scale) + epoch * LOG_2
    power = (params.log_bound + params.order * gap) / (params.order - 1.0)
    return 2.0 * (power - math.log(params.epsilon))


@kernel(borrows=True)
def epoch_length(params: Params, active: int, epoch: int) -> int:
    """R: enough reports of each active arm for 14 err to be at most 2^-tau / 2."""
    ell = log_term(params, active, epoch)
    most = math.log(2.0**60 / (active * ell))  # longer than every horizon
    samples = math.exp(min(log_samples(params, epoch), most))
    least = min(min(max(params.epsilon, 1.0), 1e9) ** 2, math.exp(most))
    return math.ceil(samples * ell + least * ell)


@kernel(borrows=True)
def log_ratio(params: Params, active: int, epoch: int, length: int) -> float:
    """The logarithm of sqrt(R) epsilon / sqrt(ell)."""
    return 0.5 * math.log(length / log_term(params, active, epoch)) + math.log(params.epsilon)


@kernel(borrows=True)
def truncation_level(params: Params, active: int, epoch: int, length: int) -> float:
    """B = (u sqrt(R) epsilon / sqrt(ell))^(1/(1+v))."""
    return math.exp((params.log_bound + log_ratio(params, active, epoch, length)) / params.order)


@kernel(borrows=True)
def error_radius(params: Params, active: int, epoch: int, length: int) -> float:
    """err = u^(1/(1+v)) (sqrt(ell) / (sqrt(R) epsilon))^(v/(1+v)) = u / B^v."""
    shrunk = (params.order - 1.0) * log_ratio(params, active, epoch, length)
    return math.exp((params.log_bound - shrunk) / params.order)


@kernel
def begin(params: Params) -> State:
    return State(
        epochs=frame.begin_epochs(params.arms),
        level=np.ones(2),
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
        state.length[row] = length
        state.radius[row] = 7.0 * params.radius_scale * error_radius(params, active, epoch, length)
    return frame.next_decision(params, epochs, rng)


@kernel(borrows=True)
def report_level(params: Params, state: State, arm: int, phase: int) -> float:
    """B of the decision's epoch: public, since it follows from earlier reports."""
    return float(state.level[frame.epoch_row(state.epochs, max(phase, 0))])


@kernel(borrows=True)
def release(params: Params, state: State, arm: int, row: int, rng: Any) -> None:
    """Use the sum of an arm's reports, which are already private, with the radius 7 err."""
    epochs = state.epochs
    # With n < R reports, err is at most R/n times as large.
    missing = max(1.0, state.length[row] / epochs.rewards_in_epoch[arm, row])
    frame.keep_release(epochs, arm, row, epochs.sums[arm, row], state.radius[row] * missing)


@kernel(borrows=True)
def finish(params: Params, state: State, row: int) -> None:
    """Remove the arms that are behind by more than 14 err."""
    epochs = state.epochs
    frame.eliminate_arms(epochs)
    frame.end_epoch(epochs, epoch_length(params, frame.active_arms(epochs), epochs.oldest[0] + 1))


learn_report, forget = frame.learn_in_state(release, finish)


@kernel(borrows=True)
def learn(
    params: Params, state: State, t: int, arm: int, reward: float, phase: int, rng: Any
) -> None:
    if frame.is_learned(state.epochs, arm, phase):
        level = report_level(params, state, arm, phase)
        report = truncated_laplace_report(params, reward, level, rng)
        learn_report(params, state, t, arm, report, phase, rng)


@register
class LDPRSE(TruncatedEliminationPolicy, LocalRealPolicy):
    r"""Elimination on rewards that each participant truncates and reports with Laplace noise.

    For heavy-tailed rewards that only the participant's device may see. Local privacy is costly:
    with the paper's constants the first epoch has billions of pulls (see `first_epoch`). Set
    `radius_scale` to 0.1 or less, which also shortens the epochs. If a trusted server holds the
    rewards, dpr-se has far lower regret.

    Given E|X|^(1+v) <= u, in epoch tau = 1, 2, ... with active set S let D = 2^-tau,
    ell = log(8|S|tau^2/beta), and pull each arm of S

    .. math::
        R = \lceil u^{2/v} 28^{2(1+v)/v} \ell / (\varepsilon^2 D^{2(1+v)/v})
        + \max(1, \varepsilon^2) \ell \rceil

    times. A device with reward x reports `x 1{|x| <= B} + Lap(2B/epsilon)`, where
    B = (u sqrt(R) epsilon / sqrt(ell))^(1/(1+v)) is public. With m_a the mean of the epoch's
    reports, remove a if max m - m_a > 14 err, where

    .. math:: \mathrm{err} = u^{1/(1+v)} (\sqrt{\ell} / (\sqrt{R} \varepsilon))^{v/(1+v)}.

    The paper's listing has other constants, with which the proof fails. Its last ell, without
    max(1, epsilon^2), is for epsilon up to 1. `radius_scale` c replaces 28 and 14 by 28 c and 14 c.

    Privacy:
        epsilon-local differential privacy of each report (Theorem 6), hence epsilon-differential
        privacy of the whole trajectory. Rewards truncated at B differ by at most 2B, for every B:
        the report is as private if the server sends another level.

    Parameters:
        moment_bound: u.

    Example:
        The server's agent sends the level, and the device makes the report.

        >>> import balaclava as bl
        >>> policy = bl.policy("ldpr-se", arms=5, epsilon=1.0, horizon=10**6, moment_order=1.9,
        ...                    moment_bound=8.142063093163385)
        >>> policy.first_epoch
        44487672069
        >>> agent = policy.agent()
        >>> decision = agent.ask()
        >>> level = agent.report_level(decision)
        >>> round(level, 4)
        900.24
        >>> agent.tell_report(decision, policy.report(0.3, level))
    """

    name = "ldpr-se"
    reference = "Tao, Wu, Zhao, Wang 2022"
    cites = "Tao, Wu, Zhao, Wang 2022; Zhou, Zhang 2024"
    see_also = "ldpr-batch-ucb, dpr-se, ldp-ucb-laplace"
    epoch_length = staticmethod(epoch_length)
    truncation_level = staticmethod(truncation_level)
    allowed_error = 7.0
    failures = math.pi**2 / 12.0
    report_level = staticmethod(report_level)
    report_kernel = staticmethod(truncated_laplace_report)
    learn_report = staticmethod(learn_report)
    kernels = Kernels(begin, choose, learn, forget)
    examples = (
        {"horizon": 600, "radius_scale": 0.02},
        {"horizon": 600, "radius_scale": 0.01, "moment_order": 1.4, "epsilon": 3.0},
    )

    def error(self, shortest: float, longest: float) -> float:
        """The error of a mean of R reports, with r = R / ell, is the sum of

        - 1 for truncation: u / B^v = err;
        - sqrt(2 epsilon) r^(-1/4) + epsilon r^(-1/2) / 3 for sampling: Bernstein, truncated
          rewards being at most B, of second moment u B^(1-v), where B^(1+v) = u epsilon sqrt(r);
        - 2 (1 + r log(1 + 1/r)) sqrt(1 + 1/r) for noise, which is the Chernoff bound
          (s - R log(1 - z)) / sqrt(z) on a sum of R Laplace draws, in units of their scale
          2B/epsilon, at s = ell and z = 1 / (1 + r), with B sqrt(ell) / (epsilon sqrt(R)) = err;
        - epsilon sqrt(r) 2^-21 for rounding to the grid;

        except with probability 4 beta / (8 |S| tau^2), or pi^2/12 beta in all epochs together.
        Theorem 7 as printed is false; this bound holds for the algorithm. Epochs grow by
        4^((1+v)/v) >= 16, and 2^tau < 2 / gap, so an arm is pulled at most

            (16/15) u^(2/v) (56 c / gap)^(2(1+v)/v) l / epsilon^2 + tau (max(1, epsilon^2) l + 1)

        times for gaps up to 1/2, l = log(8 K tau^2 / beta), c the radius_scale: regret of order
        gap^(-(2+v)/v).
        """
        params = self.constants()
        r = shortest / log_term(params, self.arms, 1)
        return (
            1.0
            + math.sqrt(2.0 * self.epsilon) / r**0.25
            + self.epsilon / (3.0 * math.sqrt(r))
            + 2.0 * (1.0 + r * math.log1p(1.0 / r)) * math.sqrt(1.0 + 1.0 / r)
            + self.epsilon * math.sqrt(longest / log_term(params, 2, 1)) * 2.0**-21
        )
