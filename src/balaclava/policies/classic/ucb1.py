"""UCB1 (Auer, Cesa-Bianchi, Fischer 2002, Figure 1)."""

import math
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from balaclava._core.declared import RadiusScale
from balaclava._core.kernels import kernel
from balaclava._core.states import range_faults
from balaclava.frames.tally import Tally, begin_tally, learn_tally, unknown_arm
from balaclava.policies.base import Kernels, Policy, register
from balaclava.policies.theorem_conditions import draws_its_means


class Indices(NamedTuple):
    """A tally, and the parts of each arm's index that change only with its own rewards."""

    tally: Tally
    means: np.ndarray
    widths: np.ndarray  # 1 / sqrt(n)

    def faults(self, decisions: int) -> Iterator[str]:
        yield from range_faults(0.0, math.inf, widths=self.widths)


@kernel
def begin(params: Any) -> Indices:
    arms = params.arms
    return Indices(tally=begin_tally(params), means=np.zeros(arms), widths=np.zeros(arms))


@kernel(borrows=True)
def choose(params: Any, state: Indices, t: int, context: Any, rng: Any) -> tuple[int, int]:
    best = unknown_arm(state.tally)
    if best < 0:
        scale = params.radius_scale * math.sqrt(2.0 * math.log(t))
        best, highest = 0, -math.inf
        for arm in range(state.means.size):
            index = state.means[arm] + scale * state.widths[arm]
            if index > highest:
                best, highest = arm, index
    state.tally.asked[best] += 1
    return best, 0


@kernel(borrows=True)
def learn(
    params: Any, state: Indices, t: int, arm: int, reward: float, phase: int, rng: Any
) -> None:
    learn_tally(params, state.tally, t, arm, reward, phase, rng)
    renew(state, arm)


@kernel(borrows=True)
def renew(state: Indices, arm: int) -> None:
    n = state.tally.pulls[arm]
    state.means[arm] = state.tally.sums[arm] / n
    state.widths[arm] = 1.0 / math.sqrt(n)


@register
class UCB1(Policy):
    """Play the arm whose mean could be highest: mean + sqrt(2 log t / n).

    The standard baseline. Its bonus is right for rewards in [0, 1] and for any 1-sub-Gaussian
    reward; for other scales set `radius_scale`. On rewards in [0, 1] kl-ucb and imed are better.

    After one pull of each arm, play the arm with the largest mean + radius_scale sqrt(2 log t / n).

    Example:
        >>> agent = bl.policy("ucb1", arms=2).agent(seed=0)
        >>> for _ in range(100):
        ...     decision = agent.ask()
        ...     agent.tell(decision, reward=float(decision.arm))
        >>> agent.ask().arm
        1
    """

    name = "ucb1"
    fixed_arms = ""
    reference = "Auer, Cesa-Bianchi, Fischer 2002"
    see_also = "kl-ucb, imed, thompson-beta"
    kernels = Kernels(begin, choose, learn)
    radius_scale: RadiusScale = 1.0

    def proved_bound(self, environment: Any, horizon: int) -> float | None:
        """Theorem 1: sum of 8 log T / gap, plus (1 + pi^2/3) times the sum of gaps."""
        low, high = environment.reward_range
        if self.radius_scale != 1.0 or low < 0.0 or high > 1.0:
            return None
        if not draws_its_means(self, environment):
            return None
        gaps = environment.gaps[environment.gaps > 0]
        return float((8 * math.log(horizon) / gaps + (1 + math.pi**2 / 3) * gaps).sum())
