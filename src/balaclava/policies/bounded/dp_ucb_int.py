"""DP-UCB-INT: indices refreshed at intervals (Tossou and Dimitrakakis 2016, Algorithm 3)."""

import math
from collections.abc import Iterator
from typing import Annotated, Any, NamedTuple

import numpy as np

from balaclava._core.declared import Delta, Epsilon, RadiusScale, Range
from balaclava._core.kernels import kernel
from balaclava._core.states import MOST_PLANNED, range_faults
from balaclava.policies.base import Kernels, PrivateBoundedPolicy, register
from balaclava.privacy.accounting import interval_epsilon, smallest_interval
from balaclava.privacy.mechanisms.laplace import laplace_release

# Pulls of one arm between refreshes; no run is long enough for a longer interval.
LONGEST_INTERVAL = 2**40


class Params(NamedTuple):
    arms: int
    reward_range: tuple[float, float]
    interval: int
    v: float
    radius_scale: float


class State(NamedTuple):
    """Rewards of each arm, and the index as of its last refresh."""

    asked: np.ndarray  # [arms]: decisions handed out
    wait: np.ndarray  # [arms]: rewards until the next refresh
    sums: np.ndarray  # [arms]: of all rewards told; never released without noise
    pulls: np.ndarray  # [arms]: rewards in the index, a multiple of the interval
    indices: np.ndarray  # [arms]: private
    unknown: np.ndarray  # one element: how many arms have no index yet
    best: np.ndarray  # one element: the arm of the largest index

    def faults(self, decisions: int) -> Iterator[str]:
        arms = self.sums.size
        yield from range_faults(0, MOST_PLANNED, wait=self.wait)
        yield from range_faults(0, arms, unknown=self.unknown)
        yield from range_faults(0, arms - 1, best=self.best)
        yield from range_faults(-math.inf, math.inf, indices=self.indices)
        yield from range_faults(0, decisions, asked=self.asked, pulls=self.pulls)


@kernel
def begin(params: Params) -> State:
    arms = params.arms
    return State(
        asked=np.zeros(arms, np.int64),
        wait=np.full(arms, params.interval),
        sums=np.zeros(arms),
        pulls=np.zeros(arms, np.int64),
        indices=np.full(arms, -math.inf),
        unknown=np.full(1, arms),
        best=np.zeros(1, np.int64),
    )


@kernel(borrows=True)
def choose(params: Params, state: State, t: int, context: Any, rng: Any) -> tuple[int, int]:
    arm = state.best[0]  # indices change in `learn` only
    if state.unknown[0] > 0:
        arm = next_in_turn(params, state, t)
    state.asked[arm] += 1
    return arm, 0


@kernel(borrows=True)
def next_in_turn(params: Params, state: State, t: int) -> int:
    """Round robin; if rewards are late or lost, the arm without an index asked least often."""
    if t <= params.arms * params.interval:
        return int((t - 1) % params.arms)
    pick = -1
    for arm in range(params.arms):
        if state.pulls[arm] == 0 and (pick < 0 or state.asked[arm] < state.asked[pick]):
            pick = arm
    return pick


@kernel(borrows=True)
def learn(
    params: Params, state: State, t: int, arm: int, reward: float, phase: int, rng: Any
) -> None:
    state.sums[arm] += reward
    state.wait[arm] -= 1
    if state.wait[arm] != 0:
        return
    if state.pulls[arm] == 0:
        state.unknown[0] -= 1
    state.wait[arm] = params.interval
    state.pulls[arm] += params.interval
    n = state.pulls[arm]
    # Lap(n^-(1 - v/2)) on the mean is Lap(1 / epsilon_j) on the sum.
    total = laplace_release(rng, state.sums[arm], 1.0, math.pow(n, -0.5 * params.v))
    first_round = max(t, params.arms * params.interval) + 1  # the round in which it is first used
    state.indices[arm] = total / n + params.radius_scale * math.sqrt(
        2.0 * math.log(first_round) / n
    )
    best = 0
    for a in range(1, params.arms):
        if state.indices[a] > state.indices[best]:
            best = a
    state.best[0] = best


@register
class DPUCBInt(PrivateBoundedPolicy):
    r"""UCB1 whose indices are refreshed, with noise, once per interval of an arm's pulls.

    Its noise is small because it promises (epsilon, delta) instead of pure epsilon, and refreshes
    once per interval. It starts with arms x interval rounds of round robin, which is long if
    epsilon is small; a shorter horizon is allowed. The bonus does not allow for the noise, and the
    index of an arm that is not pulled never changes. So with small gaps a run may lock onto a wrong
    arm.

    Pull each arm f times in turn. Then play the arm with the largest index. When an arm's n-th
    reward arrives and n is a multiple of f, refresh its index,

    .. math:: s / n + \mathrm{Lap}(n^{-(1 - v/2)}) + \sqrt{2 \log t / n},

    s the sum of its rewards so far. Otherwise the index, log t included, does not change.

    Privacy:
        (epsilon, delta)-differential privacy of the whole trajectory, for any length. The j-th
        refresh of an arm, at n = j f, is the Laplace mechanism on a sum, at epsilon_j = n^(-v/2). A
        reward enters every later refresh of its arm. By advanced composition they cost together

        .. math::
            \sum_j \varepsilon_j (e^{\varepsilon_j} - 1)
            + \sqrt{2 \log(1/\delta) \sum_j \varepsilon_j^2},

        which is finite since v > 1. `interval` is the smallest f for which that is at most
        epsilon. The paper's f = ceil(1/epsilon) is too small: f = 1 costs 21.9 at delta = 0.01, and
        epsilon = 1 needs f = 77. Once f is 1 a larger epsilon has no effect.

    Parameters:
        epsilon, delta: the guarantee of the whole run; delta above 0.
        v: in (1, 1.5], how fast later refreshes become cheaper and noisier.

    Example:
        >>> bl.policy("dp-ucb-int", arms=5, epsilon=1.0, delta=0.01).interval
        77
    """

    name = "dp-ucb-int"
    fixed_arms = ""
    reference = "Tossou, Dimitrakakis 2016"
    see_also = "dp-ucb, dp-ucb-bound, dp-imed"
    kernels = Kernels(begin, choose, learn)
    epsilon: Epsilon
    delta: Delta
    v: Annotated[float, Range(1, 1.5, "decay of the refreshes' epsilons", open_low=True)] = 1.1
    radius_scale: RadiusScale = 1.0
    examples = ({}, {"epsilon": 8.0, "v": 1.5})

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.delta == 0:
            raise self.refuse(
                "delta", "is not allowed, since refreshes never end; give a delta above 0"
            )
        if interval_epsilon(LONGEST_INTERVAL, self.delta, self.v) > self.epsilon:
            raise self.refuse(
                "epsilon", "is too small for any index to be refreshed; raise epsilon or delta"
            )

    @property
    def interval(self) -> int:
        """f: pulls of an arm from one refresh of its index to the next."""
        return smallest_interval(self.epsilon, self.delta, self.v)

    def constants(self) -> Params:
        return self.fill(Params)
