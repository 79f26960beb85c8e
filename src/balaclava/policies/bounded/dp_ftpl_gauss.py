"""DP-FTPL-Gauss: the leader under Gaussian perturbation (Wang and Zhu 2024, Algorithm 1)."""

import math
from collections.abc import Callable
from typing import Any, ClassVar, NamedTuple

from balaclava._core.declared import Delta, EpsilonOrZero
from balaclava._core.kernels import kernel
from balaclava.frames.tally import Tally, begin_tally, count_reward, starting_arm
from balaclava.policies.base import Kernels, PrivateBoundedPolicy, register
from balaclava.policies.theorem_conditions import unit_gaps
from balaclava.privacy.mechanisms import perturbed_index
from balaclava.privacy.mechanisms.base import scipy_law
from balaclava.theory.gaussian_index_regret import gaussian_index_regret


class Params(NamedTuple):
    arms: int
    reward_range: tuple[float, float]
    epsilon: float
    delta: float
    start: int


def highest_draw(draw: Callable[..., float]) -> Callable[..., Any]:
    """`choose`: pull each arm `start` times, then play the arm with the highest draw.

    `draw` is a mechanism of (rng, mean, step, epsilon, delta); one reward moves the mean by at most
    `step`.
    """

    @kernel(borrows=True)
    def choose(params: Params, state: Tally, t: int, context: Any, rng: Any) -> tuple[int, int]:
        best = starting_arm(state, params.start)
        if best < 0:
            best, highest = 0, -math.inf
            for arm in range(params.arms):
                step = 1.0 / state.pulls[arm]
                theta = draw(rng, state.sums[arm] * step, step, params.epsilon, params.delta)
                if theta > highest:
                    best, highest = arm, theta
        state.asked[best] += 1
        return best, 0

    return choose


@kernel(borrows=True)
def learn(
    params: Params, state: Tally, t: int, arm: int, reward: float, phase: int, rng: Any
) -> None:
    count_reward(state, arm, reward, params.start)


class StartPhasePolicy(PrivateBoundedPolicy):
    """A policy that pulls each arm `start_phase` times, then follows the highest random draw."""

    scope = "decision"
    fixed_arms = ""
    threshold: ClassVar[Callable[..., float]]  # of (epsilon, delta): rewards that a draw needs
    epsilon: EpsilonOrZero
    delta: Delta

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.delta == 0.0:
            raise self.refuse("delta", "is too small; give one above 0, or use dp-ftpl-new")

    def constants(self) -> Params:
        return self.fill(Params, start=self.start_phase)

    @property
    def start_phase(self) -> int:
        return perturbed_index.whole_pulls(type(self).threshold(self.epsilon, self.delta))


@register
class DPFTPLGauss(StartPhasePolicy):
    r"""Pull each arm often enough, then play the highest Gaussian draw: each decision is private.

    Thompson sampling with randomness that also hides single rewards. It protects one decision at a
    time and needs a delta that is not tiny. For delta = 0 or a small epsilon use dp-ftpl-new; to
    protect a whole run use dp-imed or dp-klucb.

    Pull each arm, in turn, until it has at least

    .. math:: N = \min\{1/(4 \pi \delta^2),\; \log(e/(4 \pi \delta^2)) / \varepsilon^2\}

    rewards (the first term when epsilon = 0). Then, in each round and for each arm with n rewards
    of mean m, draw theta ~ N(m, 2/n) and play the highest.

    The horizon may end in the start phase: then the arms are pulled in turn throughout.

    Privacy:
        (epsilon, delta)-differential privacy of each decision (Theorem 11). The start phase does
        not depend on rewards. Afterwards a changed reward moves one mean by at most 1/n, and the
        index drawn around it satisfies the inequalities of Lemma 8. The losses of decisions add
        up: the run as a whole is not protected.

    Parameters:
        epsilon: privacy loss of a decision; 0 is allowed.

    Example:
        >>> bl.policy("dp-ftpl-gauss", arms=9, epsilon=1.0, delta=0.01).start_phase
        8
    """

    name = "dp-ftpl-gauss"
    reference = "Wang, Zhu 2024"
    see_also = "dp-ftpl-new, dp-ftpl-beta, thompson-gauss"
    kernels = Kernels(begin_tally, highest_draw(perturbed_index.gaussian_index), learn)
    threshold = staticmethod(perturbed_index.gaussian_threshold)
    examples = ({}, {"epsilon": 0.0, "delta": 0.05, "reward_range": (-1.0, 3.0)})

    def index_law(self, pulls: int, total: float) -> perturbed_index.IndexLaw:
        return scipy_law("norm", total / pulls, math.sqrt(2.0 / pulls))

    def proved_bound(self, environment: Any, horizon: int) -> float | None:
        """Theorem 11 with its constants, and 4 log T where it has 2 (errata, Wang 9)."""
        scaled = unit_gaps(self, environment)
        if scaled is None:
            return None
        gaps, width = scaled
        return width * gaussian_index_regret(gaps, self.start_phase, horizon)
