"""Successive elimination (Even-Dar, Mannor, Mansour 2006, Algorithm 3)."""

import math
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from balaclava._core.declared import FailureProbability, Horizon, RadiusScale
from balaclava._core.kernels import kernel
from balaclava._core.states import range_faults, stored_as
from balaclava.frames import blocks
from balaclava.policies.base import BoundedPolicy, Kernels, failure_or_inverse_horizon, register
from balaclava.policies.intervals import FROM_TALLY
from balaclava.policies.pooled_policies import SAME_EPOCHS


class Params(NamedTuple):
    arms: int
    reward_range: tuple[float, float]
    radius_scale: float
    confidence: float  # log(4 K / beta)


@stored_as(rewards_since_check="news", arms_left="left")
class State(NamedTuple):
    """Active arms and their rewards."""

    active: np.ndarray  # arms still in play
    pulls: np.ndarray  # rewards told
    sums: np.ndarray  # their sum
    rewards_since_check: np.ndarray  # one element: of active arms
    arms_left: np.ndarray  # one element: number of active arms
    blocks: blocks.Blocks

    def faults(self, decisions: int) -> Iterator[str]:
        yield from range_faults(0, decisions, rewards_since_check=self.rewards_since_check)
        yield from range_faults(1, self.pulls.size, arms_left=self.arms_left)
        yield from range_faults(0, decisions, pulls=self.pulls)


@kernel
def begin(params: Params) -> State:
    return State(
        active=np.ones(params.arms, np.bool_),
        pulls=np.zeros(params.arms, np.int64),
        sums=np.zeros(params.arms),
        rewards_since_check=np.zeros(1, np.int64),
        arms_left=np.full(1, params.arms),
        blocks=blocks.begin_blocks(params.arms),
    )


@kernel(borrows=True)
def choose(params: Params, state: State, t: int, context: Any, rng: Any) -> tuple[int, int]:
    if blocks.block_is_over(state.blocks):
        blocks.clear_members(state.blocks)
        for arm in range(params.arms):
            if state.active[arm]:
                blocks.add_member(state.blocks, arm)
        blocks.start_block(state.blocks)
    return blocks.next_turn(state.blocks, rng), 0


@kernel(borrows=True)
def radius(params: Params, n: int) -> float:
    return float(
        params.radius_scale * math.sqrt((params.confidence + 2.0 * math.log(n)) / (2.0 * n))
    )


@kernel(borrows=True)
def learn(
    params: Params, state: State, t: int, arm: int, reward: float, phase: int, rng: Any
) -> None:
    if not state.active[arm] or state.arms_left[0] == 1:
        return
    state.pulls[arm] += 1
    state.sums[arm] += reward
    state.rewards_since_check[0] += 1
    if state.rewards_since_check[0] >= state.arms_left[0]:
        state.rewards_since_check[0] = 0
        drop_behind(params, state)


@kernel(borrows=True)
def drop_behind(params: Params, state: State) -> None:
    """Remove the arms that are behind by more than both radii, each by its own rewards."""
    floor = -math.inf
    for arm in range(params.arms):
        n = state.pulls[arm]
        if state.active[arm] and n > 0:
            floor = max(floor, state.sums[arm] / n - radius(params, n))
    for arm in range(params.arms):
        n = state.pulls[arm]
        if state.active[arm] and n > 0 and state.sums[arm] / n + radius(params, n) < floor:
            state.active[arm] = False
            state.arms_left[0] -= 1
    blocks.drop_inactive(state.blocks, state.active)


@register
class SuccessiveElimination(BoundedPolicy):
    r"""Pull all arms equally and drop those that are clearly worse than the best.

    The model and baseline of the private elimination policies. Its regret is higher than that of
    the index policies, but it decides in rounds, so rewards may come late.

    The active arms take turns in random order. After round n, in which each got its n-th pull,
    remove arm a, of mean m_a, if

    .. math:: \max m - m_a > 2 c \sqrt{\log(4 K n^2 / \beta) / (2n)},

    c the `radius_scale`. If rewards are late or lost, arms are compared after as many rewards as
    there are active arms. Each has the radius of its own number of rewards. The radius is
    Hoeffding's for rewards in [0, 1] and holds over all arms and rounds: with probability 1 - beta
    the best arm is never removed. The last arm is played from then on.

    Parameters:
        horizon: rounds that will be played; None if unknown.
        failure_probability: beta; 1/horizon by default, required without a horizon.

    Example:
        >>> agent = bl.policy("successive-elimination", arms=2, horizon=1000).agent(seed=0)
        >>> for _ in range(1000):
        ...     decision = agent.ask()
        ...     agent.tell(decision, reward=(0.2, 0.8)[decision.arm])
        >>> [each.decisions for each in agent.estimates()]
        [102, 898]
    """

    name = "successive-elimination"
    fixed_arms = SAME_EPOCHS
    reference = "Even-Dar, Mannor, Mansour 2006"
    see_also = "dp-se, dpr-se, gdp-elim-new"
    examples = ({"horizon": 600}, {"failure_probability": 0.05})
    kernels = Kernels(begin, choose, learn)
    winner_reason = "it plays all remaining arms equally often"
    estimation = FROM_TALLY
    horizon: Horizon | None = None
    failure_probability: FailureProbability | None = None
    radius_scale: RadiusScale = 1.0

    def __post_init__(self) -> None:
        super().__post_init__()
        failure_or_inverse_horizon(self)

    def constants(self) -> Params:
        confidence = math.log(4.0 * self.arms / failure_or_inverse_horizon(self))
        return self.fill(Params, confidence=confidence)
