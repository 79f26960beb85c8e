"""DPR-SE: robust private elimination (Tao, Wu, Zhao, Wang 2022, Algorithm 3)."""

from __future__ import annotations

import math
from typing import Any, ClassVar, NamedTuple

import numpy as np

from balaclava._declared import Epsilon, FailureProbability, Horizon, MomentBound, RadiusScale
from balaclava._kernel import kernel
from balaclava.estimation.phases import (
    Phases,
    active_arms,
    begin_phases,
    choose_in_phases,
    drop_behind,
    open_phase,
    take,
)
from balaclava.policies.base import (
    Kernels,
    PrivateRealPolicy,
    failure_probability_of,
    register,
)
from balaclava.policies.heavy_tailed._moments import (
    TailOrder,
    meets_moment_bound,
    most_regret,
    removal_epochs,
    require_levels,
)
from balaclava.privacy.laplace import laplace_release
from balaclava.privacy.truncation import exact_step, truncated_onto

_LOG_2 = math.log(2.0)


class Params(NamedTuple):
    """What the kernels see."""

    arms: int
    epsilon: float
    order: float  # 1 + v
    log_bound: float  # log u
    beta: float
    radius_scale: float


class State(NamedTuple):
    """The current epoch."""

    phases: Phases
    level: np.ndarray  # B, beyond which a reward counts as 0
    step: np.ndarray  # of the grid on which the sums of the epoch are exact


@kernel
def log_term(params: Any, active: int, epoch: int) -> float:
    """ell = log(4 |S| tau^2 / beta)."""
    return math.log(4.0 * active * epoch * epoch / params.beta)


@kernel
def epoch_length(params: Any, active: int, epoch: int) -> int:
    """R: enough pulls of each active arm for 12 err to be less than 2^-tau / 2."""
    ratio = log_term(params, active, epoch) / min(params.epsilon, 1.0)
    gap = math.log(24.0 * params.radius_scale) + epoch * _LOG_2
    # u^(1/v) (24 / D)^((1+v)/v), in logarithms: it may be beyond any horizon and any float.
    power = (params.log_bound + params.order * gap) / (params.order - 1.0) + math.log(ratio)
    return math.ceil(math.exp(min(power, math.log(2.0**61 / active))) + 1.0)


@kernel
def truncation_level(params: Any, active: int, epoch: int, length: int) -> float:
    """B = (u R epsilon / ell)^(1/(1+v))."""
    ratio = length * min(params.epsilon, 1.0) / log_term(params, active, epoch)
    return math.exp((params.log_bound + math.log(ratio)) / params.order)


@kernel
def error_radius(params: Any, active: int, epoch: int, length: int) -> float:
    """err = u^(1/(1+v)) (ell / (R epsilon))^(v/(1+v)) = u / B^v."""
    ratio = length * min(params.epsilon, 1.0) / log_term(params, active, epoch)
    return math.exp((params.log_bound - (params.order - 1.0) * math.log(ratio)) / params.order)


@kernel
def open_epoch(params: Any, state: State) -> None:
    """Start the next epoch with what the active arms and its number give."""
    phases = state.phases
    active, epoch = active_arms(phases), phases.number[0] + 1
    length = epoch_length(params, active, epoch)
    state.level[0] = truncation_level(params, active, epoch, length)
    state.step[0] = exact_step(state.level[0], float(length))
    open_phase(phases, length, True)


@kernel
def begin(params: Any) -> State:
    state = State(begin_phases(params), np.ones(1), np.ones(1))
    if params.arms > 1:
        open_epoch(params, state)
    return state


@kernel
def choose(params: Any, state: State, t: int, context: Any, rng: Any) -> tuple[int, int]:
    return choose_in_phases(params, state.phases, t, context, rng)


@kernel
def learn(params: Any, state: State, t: int, arm: int, reward: float, phase: int, rng: Any) -> None:
    phases = state.phases
    if not take(phases, arm, truncated_onto(reward, state.level[0], state.step[0]), phase):
        return
    active, epoch, length = active_arms(phases), phases.number[0], phases.length[0]
    for a in range(params.arms):
        if phases.active[a]:
            phases.sums[a] = laplace_release(
                rng, phases.sums[a], 2.0 * state.level[0], params.epsilon
            )
    # 12 err, times the number of pulls: sums are compared, not means.
    margin = 12.0 * params.radius_scale * error_radius(params, active, epoch, length) * length
    if drop_behind(phases, margin):
        open_epoch(params, state)


@register
class DPRSE(PrivateRealPolicy):
    """Private elimination on truncated means, for rewards with a known moment.

    The private policy for heavy tails with the best proved regret, where one trusted party holds
    the rewards. The paper's constants make the first epoch longer than most horizons (see
    `first_epoch`): set `radius_scale` to 0.1 or less, which shortens the epochs too.

    Given E|X|^(1+v) <= u, in epoch tau = 1, 2, ... with active set S let D = 2^-tau,
    ell = log(4|S|tau^2/beta), and pull each arm of S

        R = ceil(u^(1/v) 24^((1+v)/v) ell / (epsilon D^((1+v)/v)) + 1)

    times. Rewards beyond B = (u R epsilon / ell)^(1/(1+v)) count as 0. Let m_a be the mean of the
    epoch's rewards + Lap(2B/(R epsilon)). Remove a if

        max m - m_a > 12 err,  err = u^(1/(1+v)) (ell / (R epsilon))^(v/(1+v)).

    For epsilon above 1, where the analysis ends, 1 stands for it in R, B and err; the noise keeps
    the true epsilon. `radius_scale` c puts 24 c and 12 c in the place of 24 and 12.

    Privacy:
        epsilon-differential privacy of the whole trajectory (Theorem 3), for all rewards. Each
        reward enters one released sum, of sensitivity 2B; lengths, levels and the active set
        follow from what was released before. An epoch that the horizon cuts off releases nothing.

    Parameters:
        epsilon: privacy loss.
        moment_order: 1 + v, above 1 and at most 2.
        moment_bound: u. It must not be worked out from the rewards that are to be protected.
        horizon: rounds that will be played; sets failure_probability.
        failure_probability: beta, 1/horizon by default.
        radius_scale: multiplies err in the test, and shortens the epochs to match; privacy is
            untouched.

    Example:
        >>> import balaclava as bl
        >>> bl.policy("dpr-se", arms=5, epsilon=1.0, horizon=10**6, moment_order=1.9,
        ...           moment_bound=8.142063093163385).first_epoch
        612090

    References:
        Tao, Wu, Zhao, Wang. Optimal rates of (locally) differentially private heavy-tailed
        multi-armed bandits. AISTATS 2022.

    See Also:
        dpr-ucb, ldpr-se, dp-se, robust-ucb
    """

    name = "dpr-se"
    reference = "Tao, Wu, Zhao, Wang 2022"
    phased = True
    kernels: ClassVar[Kernels] = Kernels(begin, choose, learn)
    epsilon: Epsilon
    moment_order: TailOrder
    moment_bound: MomentBound
    horizon: Horizon | None = None
    failure_probability: FailureProbability | None = None
    radius_scale: RadiusScale = 1.0
    examples = (
        {"horizon": 600, "radius_scale": 0.03},
        {"horizon": 600, "radius_scale": 0.01, "moment_order": 1.4, "epsilon": 3.0},
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        length, params = self.first_epoch, self.constants()
        require_levels(
            self,
            truncation_level(params, self.arms, 1, length),
            truncation_level(params, 1, 1, 2**62),
        )

    def constants(self) -> Params:
        return Params(
            self.arms,
            self.epsilon,
            self.moment_order,
            math.log(self.moment_bound),
            failure_probability_of(self),
            self.radius_scale,
        )

    @property
    def first_epoch(self) -> int:
        """Pulls of each arm in the first epoch: before that nothing can be dropped."""
        return epoch_length(self.constants(), self.arms, 1)

    def regret_bound(self, environment: Any, horizon: int) -> float | None:
        """A bound with all constants; None where the moment bound or the proof does not hold.

        Let e = min(epsilon, 1). In units of err a truncated mean is off by at most 1 (what is cut
        off) + sqrt(2 e) + e/3 (Bernstein, two sides) + 2 (noise) + the rounding to the grid, save
        with probability 3 beta / (4 |S| tau^2): in all epochs together pi^2/8 beta. Otherwise, if
        that sum is at most 6 c, c the radius_scale, the best arm stays, and an arm of gap >= D
        leaves at the end of epoch tau, since R makes 24 c err < D. So an arm is pulled at most
        R_1 + ... + R_tau times, tau the first epoch with 2^-tau <= gap, which is at most

            (4/3) u^(1/v) (48 c / gap)^((1+v)/v) log(4 K tau^2 / beta) / e + 2 tau

        for gaps up to 1/2. The bound adds these up, as far as the horizon goes, and the whole
        horizon for the case that an estimate fails.
        """
        gaps = environment.gaps
        if not (gaps > 0).any():
            return 0.0
        params = self.constants()
        last = removal_epochs(gaps[gaps > 0])
        lengths = np.array(
            [float(epoch_length(params, self.arms, tau + 1)) for tau in range(last.max())]
        )
        epsilon = min(self.epsilon, 1.0)
        longest = min(lengths[-1], float(horizon))
        # A step, over err: err / B = ell / (R e).
        level = truncation_level(params, self.arms, 1, longest)
        rounding = exact_step(level, longest) / level * longest * epsilon
        rounding /= log_term(params, 2, 1)
        error = 1.0 + math.sqrt(2.0 * epsilon) + epsilon / 3.0 + 2.0 + rounding
        if error > 6.0 * self.radius_scale or not meets_moment_bound(self, environment):
            return None
        pulls = np.full(self.arms, math.inf)
        pulls[gaps > 0] = lengths.cumsum()[last - 1]
        fails = min(math.pi**2 / 8.0 * params.beta, 1.0)
        return most_regret(gaps, pulls, horizon) + fails * horizon * float(gaps.max())
