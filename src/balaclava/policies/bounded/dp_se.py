"""DP-SE: private successive elimination (Sajed and Sheffet 2019, Algorithm 2)."""

import math
from typing import Any, NamedTuple

import numpy as np

from balaclava._core.declared import Epsilon, FailureProbability, Horizon, RadiusScale
from balaclava._core.kernels import kernel
from balaclava.frames import epochs
from balaclava.policies.base import (
    Kernels,
    PrivateBoundedPolicy,
    failure_or_inverse_horizon,
    register,
)
from balaclava.policies.intervals import FROM_EPOCHS
from balaclava.policies.pooled_policies import SAME_EPOCHS, PooledPolicy
from balaclava.policies.theorem_conditions import unit_gaps
from balaclava.privacy.mechanisms.laplace import laplace_release
from balaclava.theory.elimination_regret import removal_epochs, worst_regret


class Params(NamedTuple):
    arms: int
    reward_range: tuple[float, float]
    epsilon: float
    beta: float
    radius_scale: float
    explore: float
    holdout: float


@kernel(borrows=True)
def log_terms(params: Params, active: int, epoch: int) -> tuple[float, float]:
    """log(8 |S| e^2 / beta) and log(4 |S| e^2 / beta)."""
    ratio = 4.0 * active * epoch * epoch / params.beta
    return math.log(2.0 * ratio), math.log(ratio)


@kernel(borrows=True)
def epoch_length(params: Params, active: int, epoch: int) -> int:
    """R: enough pulls of each active arm for a radius of 2^-e / 2, noise included."""
    sampling, noise = log_terms(params, active, epoch)
    gap = 0.5**epoch / params.radius_scale
    pulls: float = max(32.0 * sampling / (gap * gap), 8.0 * noise / (params.epsilon * gap)) + 1.0
    return math.ceil(min(pulls, 2.0**53))


@kernel
def begin(params: Params) -> epochs.Epochs:
    return epochs.begin_epochs(params.arms)


@kernel(borrows=True)
def choose(params: Params, state: epochs.Epochs, t: int, context: Any, rng: Any) -> tuple[int, int]:
    if epochs.needs_epoch(state):
        epochs.open_epoch(
            state, epoch_length(params, epochs.active_arms(state), state.number[0] + 1), -1
        )
    return epochs.next_decision(params, state, rng)


@kernel(borrows=True)
def release(params: Params, state: epochs.Epochs, arm: int, row: int, rng: Any) -> None:
    """Release an arm's sum of the epoch, with the radius h + c."""
    sampling, noise = log_terms(params, epochs.active_arms(state), state.oldest[0])
    n = state.rewards_in_epoch[arm, row]
    released = laplace_release(rng, state.sums[arm, row], 1.0, params.epsilon)
    radius = math.sqrt(sampling / (2.0 * n)) + noise / (params.epsilon * n)
    epochs.keep_release(state, arm, row, released, params.radius_scale * radius)


@kernel(borrows=True)
def finish(params: Params, state: epochs.Epochs, row: int) -> None:
    """Remove the arms that are behind by more than 2h + 2c."""
    epochs.eliminate_arms(state)
    epochs.end_epoch(state, epoch_length(params, epochs.active_arms(state), state.oldest[0] + 1))


learn, forget = epochs.learn_in_epochs(release, finish)


@register
class DPSE(PooledPolicy, PrivateBoundedPolicy):
    r"""Pull all arms equally, release noisy means once an epoch, drop the arms that fall behind.

    The best-known private elimination policy, simple and easy to defend. Its epochs are long: for
    short horizons and for low regret prefer dp-imed or dp-klucb.

    In epoch e = 1, 2, ... with active set S, pull each arm of S

    .. math::
        R = \lceil \max\{32 \log(8 |S| e^2/\beta) / D^2,\;
        8 \log(4 |S| e^2/\beta) / (\varepsilon D)\} + 1 \rceil

    times, D = 2^-e, and let m_a be the mean of these pulls + Lap(1/(epsilon R)). Remove a if
    max m - m_a > 2h + 2c, where

    .. math:: h = \sqrt{\log(8 |S| e^2/\beta) / (2R)},

    .. math:: c = \log(4 |S| e^2/\beta) / (\varepsilon R).

    Arms take turns in random order. If rewards are lost, each arm's mean, h and c are those of the
    rewards that arrived. The published proof is for full epochs.

    Privacy:
        epsilon-differential privacy of the whole trajectory (Theorem 4.2). Each reward enters one
        released sum, of sensitivity 1; the order of decisions alone says which. Epoch lengths and
        the active set follow from earlier releases. An epoch that the horizon cuts off releases
        nothing.

    Parameters:
        failure_probability: beta, 1/horizon by default.
        radius_scale: multiplies h and c, and shortens the epochs to match; privacy is unaffected.

    Example:
        >>> bl.policy("dp-se", arms=5, epsilon=1.0, horizon=10**6).first_epoch
        2242
    """

    name = "dp-se"
    fixed_arms = SAME_EPOCHS
    reference = "Sajed, Sheffet 2019"
    see_also = "gdp-elim-new, dp-imed, successive-elimination"
    kernels = Kernels(begin, choose, learn, forget)
    winner_reason = "it plays all remaining arms equally often"
    estimation = FROM_EPOCHS
    epsilon: Epsilon
    horizon: Horizon | None = None
    failure_probability: FailureProbability | None = None
    radius_scale: RadiusScale = 1.0
    examples = ({"horizon": 600},)

    def __post_init__(self) -> None:
        super().__post_init__()
        failure_or_inverse_horizon(self)

    def constants(self) -> Params:
        return self.fill(Params, beta=failure_or_inverse_horizon(self))

    @property
    def first_epoch(self) -> int:
        """Pulls of each arm in the first epoch; no arm is dropped earlier."""
        return epoch_length(self.constants(), self.arms, 1)

    def proved_bound(self, environment: Any, horizon: int) -> float | None:
        """Theorem 4.3 with its constants; None for a radius_scale below 1.

        With probability at most (pi^2/12) beta some epoch has a mean that is off by more than h or
        noise beyond c. Otherwise the best arm stays, and an arm of gap 2^-e or more leaves by the
        end of epoch e: R makes 4 (h + c) less than 2^-e for every active set.
        """
        scaled = unit_gaps(self, environment)
        if scaled is None or self.radius_scale < 1.0:
            return None
        gaps, width = scaled
        if not (gaps > 0).any():
            return 0.0
        params, last = self.constants(), removal_epochs(gaps[gaps > 0])
        lengths = [float(epoch_length(params, self.arms, e + 1)) for e in range(last.max())]
        pulls = np.full(self.arms, math.inf)
        pulls[gaps > 0] = np.cumsum(lengths)[last - 1]
        fails = min(math.pi**2 / 12.0 * params.beta, 1.0)
        return width * (worst_regret(gaps, pulls, horizon) + fails * horizon * float(gaps.max()))
