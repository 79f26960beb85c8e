"""Successive elimination (Even-Dar, Mannor, Mansour 2006, Algorithm 3)."""

from __future__ import annotations

import math
from typing import Any, ClassVar, NamedTuple

from balaclava._core.declared import FailureProbability, Horizon, RadiusScale
from balaclava._core.kernels import kernel
from balaclava.frames.phases import (
    Phases,
    begin_phases,
    choose_in_phases,
    drop_behind,
    open_phase,
    take,
)
from balaclava.policies.base import BoundedPolicy, Kernels, failure_probability_of, register


class Params(NamedTuple):
    """What the kernels see."""

    arms: int
    reward_range: tuple[float, float]
    radius_scale: float
    confidence: float  # log(4 K / beta)


@kernel(borrows=True)
def radius(params: Params, n: int) -> float:
    """Of each mean after n pulls; an arm is removed when two radii do not bridge its gap."""
    return float(
        params.radius_scale * math.sqrt((params.confidence + 2.0 * math.log(n)) / (2.0 * n))
    )


@kernel
def begin(params: Params) -> Phases:
    state = begin_phases(params)
    if params.arms > 1:
        open_phase(state, 1, False)
    return state


@kernel(borrows=True)
def learn(
    params: Params, state: Phases, t: int, arm: int, reward: float, phase: int, rng: Any
) -> None:
    if take(state, arm, reward, phase):
        n = state.pulls[arm]  # the same for all active arms
        if drop_behind(state, 2.0 * radius(params, n) * n):
            open_phase(state, 1, False)


@register
class SuccessiveElimination(BoundedPolicy):
    """Pull all arms in turn and drop those that are clearly worse than the best.

    The frame of the private elimination policies, and their baseline. Its regret is higher than
    that of the index policies; in return it decides in rounds, so that rewards may come late.

    After round n, in which each active arm got its n-th pull, remove arm a if

        max mean - mean_a > 2 sqrt(log(4 K n^2 / beta) / (2n)) radius_scale.

    The radius is Hoeffding's for rewards in [0, 1], over all arms and rounds: with probability
    1 - beta the best arm is never removed. The last arm is played for ever.

    Parameters:
        horizon: rounds that will be played; None if unknown.
        failure_probability: beta; 1/horizon by default, required without a horizon.
        radius_scale: multiplies the confidence radius.

    Example:
        >>> import balaclava as bl
        >>> agent = bl.policy("successive-elimination", arms=2, horizon=1000).agent(seed=0)
        >>> pulls = [0, 0]
        >>> for _ in range(1000):
        ...     decision = agent.ask()
        ...     agent.tell(decision, reward=(0.2, 0.8)[decision.arm])
        ...     pulls[decision.arm] += 1
        >>> pulls
        [102, 898]

    References:
        Even-Dar, Mannor, Mansour. Action elimination and stopping conditions for the multi-armed
        bandit and reinforcement learning problems. Journal of Machine Learning Research 7, 2006.

    See Also:
        dp-se, dpr-se, gdp-elim-new
    """

    name = "successive-elimination"
    reference = "Even-Dar, Mannor, Mansour 2006"
    phased = True
    examples = ({"horizon": 600}, {"failure_probability": 0.05})
    kernels: ClassVar[Kernels] = Kernels(begin, choose_in_phases, learn)
    horizon: Horizon | None = None
    failure_probability: FailureProbability | None = None
    radius_scale: RadiusScale = 1.0

    def __post_init__(self) -> None:
        super().__post_init__()
        failure_probability_of(self)  # refuses a policy that has neither

    def constants(self) -> Params:
        confidence = math.log(4.0 * self.arms / failure_probability_of(self))
        return Params(self.arms, self.reward_range, self.radius_scale, confidence)
