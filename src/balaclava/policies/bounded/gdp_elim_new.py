"""GDP-Elim-New: explore all arms, commit once (Wang and Zhu 2024, Algorithm 4)."""

import math
import sys
from typing import Any, NamedTuple

from balaclava._core.declared import Delta, EpsilonOrZero, Horizon
from balaclava._core.kernels import kernel
from balaclava.errors import EstimateError
from balaclava.frames import epochs
from balaclava.policies.base import Estimation, Kernels, PrivateBoundedPolicy, register
from balaclava.policies.intervals import FROM_EPOCHS
from balaclava.policies.pooled_policies import SAME_EPOCHS, PooledPolicy
from balaclava.policies.theorem_conditions import unit_gaps
from balaclava.privacy.mechanisms.truncated_laplace import exceeded_with, truncated_laplace_release


class Params(NamedTuple):
    arms: int
    reward_range: tuple[float, float]
    epsilon: float
    noise_delta: float
    log_horizon: float
    noise_reach: float  # the noise of a sum is beyond this, on either side, with probability 2/T^2
    explore: float
    holdout: float


@kernel(borrows=True)
def phase_length(params: Params, phase: int) -> int:
    """N: enough pulls of each arm for errors of 2^-k / 4 of the mean and of the noise."""
    gap = 0.5**phase
    pulls: float = max(32.0 * params.log_horizon / (gap * gap), 4.0 * params.noise_reach / gap)
    return math.ceil(min(pulls, 2.0**53))


@kernel
def begin(params: Params) -> epochs.Epochs:
    return epochs.begin_epochs(params.arms)


@kernel(borrows=True)
def choose(params: Params, state: epochs.Epochs, t: int, context: Any, rng: Any) -> tuple[int, int]:
    if epochs.needs_epoch(state):
        epochs.open_epoch(state, phase_length(params, state.number[0] + 1), -1)
    return epochs.next_decision(params, state, rng)


@kernel(borrows=True)
def release(params: Params, state: epochs.Epochs, arm: int, row: int, rng: Any) -> None:
    phase, n = state.oldest[0], state.rewards_in_epoch[arm, row]
    total = truncated_laplace_release(
        rng, state.sums[arm, row], 1.0, params.epsilon, params.noise_delta
    )
    # N rewards have errors of at most 2^-k / 2; fewer rewards have larger errors.
    missing = max(0.5, 0.5 * phase_length(params, phase) / n)
    epochs.keep_release(state, arm, row, total, 0.5**phase * missing)


@kernel(borrows=True)
def finish(params: Params, state: epochs.Epochs, row: int) -> None:
    """Commit to an arm if it is at least both radii, 2^-k, above each of the others."""
    for arm in range(state.means.size):
        ahead = True
        for other in range(state.means.size):
            reach = state.means[other] + state.radii[other] + state.radii[arm]
            if other != arm and not state.means[arm] >= reach:
                ahead = False
        if ahead:
            epochs.play_last_arm(state, arm)
    epochs.end_epoch(state, phase_length(params, state.oldest[0] + 1))


learn, forget = epochs.learn_in_epochs(release, finish)


@register
class GDPElimNew(PooledPolicy, PrivateBoundedPolicy):
    r"""Pull all arms in ever longer phases until one is clearly ahead, then commit to it.

    It protects the whole run, and is simple but wasteful: until exploration ends, a bad arm is
    pulled as often as the second best. Its regret matches the lower bound in order, with large
    constants: dp-imed and dp-klucb have far lower regret. If two arms are equally good,
    exploration never ends.

    In phase k = 1, 2, ... with D = 2^-k, pull every arm

    .. math::
        N = \lceil \max\{32 \log T / D^2,\;
        4 \log((T^2 E + T^2 \delta) / (2E + T^2 \delta)) / (\varepsilon D)\} \rceil

    times, E = exp(epsilon) - 1, and let theta be the mean of these pulls + w / N with truncated
    Laplace noise w of sensitivity 1, epsilon and delta/2. If some theta is at least D above all
    others, play that arm from then on. For epsilon = 0 the second term is
    4 (T^2 - 2) / (T^2 delta D). Arms take turns in random order. If an arm has n < N rewards,
    because some were lost, its theta must be ahead by N/n times as much; the proof is for full
    phases.

    Privacy:
        (epsilon, delta)-differential privacy of the whole trajectory. The paper proves a weaker
        notion (Theorem 18). But each reward enters one release, which by itself is
        (epsilon, delta/2)-private for every event. Decisions and phase lengths follow from released
        values, and a phase that the horizon cuts off releases nothing. So half of delta is not
        needed, and `tight_delta` uses it.

    Parameters:
        epsilon: privacy loss; 0 is allowed if delta is above 0.
        horizon: T, the rounds that will be played; at least 2.
        tight_delta: draw the noise for delta instead of the paper's delta/2, with phase lengths
            to match.

    Example:
        >>> policy = bl.policy("gdp-elim-new", arms=9, epsilon=1.0, delta=0.01, horizon=10**6)
        >>> policy.first_phase
        1769
    """

    name = "gdp-elim-new"
    fixed_arms = SAME_EPOCHS
    reference = "Wang, Zhu 2024"
    see_also = "dp-se, dp-ftpl-new, dp-imed"
    kernels = Kernels(begin, choose, learn, forget)
    winner_reason = "it plays all remaining arms equally often"
    estimation = FROM_EPOCHS
    epsilon: EpsilonOrZero
    delta: Delta = 0.0
    horizon: Horizon
    tight_delta: bool = False
    examples = (
        {"arms": 2, "delta": 0.01, "horizon": 3_000},
        {"arms": 2, "epsilon": 0.0, "delta": 0.2, "horizon": 3_000, "tight_delta": True},
    )

    def require_estimates(self, failure: float) -> Estimation:
        """Laplace intervals hold: cosh grows, so truncated noise W has a lower E e^(xW)."""
        if self.epsilon == 0.0:
            raise EstimateError(
                f"{self.name} offers no estimates with epsilon = 0: no interval is proved for "
                "uniform noise; give an epsilon above 0"
            )
        return super().require_estimates(failure)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.epsilon == 0.0 and self.delta == 0.0:
            raise self.refuse(
                "delta", "with epsilon = 0 allows no learning; raise delta or epsilon"
            )
        if self.horizon < 2:
            raise self.refuse("horizon", "is too short; give at least 2")

    def constants(self) -> Params:
        noise_delta = self.delta if self.tight_delta else self.delta / 2.0
        chance = max(2.0 / self.horizon / self.horizon, sys.float_info.min)
        return self.fill(
            Params,
            noise_delta=noise_delta,
            log_horizon=math.log(self.horizon),
            noise_reach=float(exceeded_with(chance, self.epsilon, noise_delta)),
        )

    @property
    def first_phase(self) -> int:
        """Pulls of each arm in the first phase; the policy commits no earlier."""
        return phase_length(self.constants(), 1)

    def proved_bound(self, environment: Any, horizon: int) -> float | None:
        """Theorem 18, by the smallest gap; None if two arms are best."""
        scaled = unit_gaps(self, environment)
        if scaled is None or horizon > self.horizon:
            return None
        gaps, width = scaled
        worse = gaps[gaps > 0]
        if worse.size < self.arms - 1:
            return None
        params, exploration = self.constants(), 0.0
        if worse.size:
            least = float(worse.min())
            exploration = 1024.0 * params.log_horizon / least**2 + 32.0 * params.noise_reach / least
        return width * float(exploration * worse.sum() + 4.0 * self.arms)
