"""Uniform random play: it uses no reward, so its decisions reveal none."""

from typing import Any, NamedTuple

import numpy as np

from balaclava._core.kernels import kernel
from balaclava.policies.base import Kernels, Policy, register
from balaclava.privacy.guarantee import Guarantee


class State(NamedTuple):
    """Empty: no reward is stored."""

    traces: np.ndarray


@kernel
def begin(params: Any) -> State:
    return State(np.zeros(0))


@kernel(borrows=True)
def choose(params: Any, state: State, t: int, context: Any, rng: Any) -> tuple[int, int]:
    return int(rng.random() * params.arms), 0


@kernel(borrows=True)
def learn(params: Any, state: State, t: int, arm: int, reward: float, phase: int, rng: Any) -> None:
    pass


@register
class AtRandom(Policy):
    """Play each arm with the same chance and ignore the rewards.

    Use it where a private policy could not learn enough to do better: few rounds, a small epsilon,
    many arms. It is the baseline for every other policy. Each arm gets the same share of decisions,
    so the rewards can be analysed like those of a fixed trial. That analysis needs its own privacy
    mechanism: the guarantee covers the decisions only.

    In each round draw the arm uniformly from 1, ..., K.

    Privacy:
        Epsilon 0 for all decisions of a run together: none depends on a reward.

    Example:
        >>> world = bl.environment("bernoulli", means=[0.2, 0.8])
        >>> results = bl.simulate(bl.policy("random", arms=2), world,
        ...                       horizon=10_000, repetitions=10, seed=1)
        >>> round(float(results.final_regret("random").mean()) / (10_000 * 0.3), 2)
        1.0
    """

    name = "random"
    see_also = "dp-imed, ldp-ucb-bernoulli"
    fixed_arms = ""
    rewards = "any"
    model = "central"
    scope = "trajectory"
    kernels = Kernels(begin, choose, learn)

    @property
    def guarantee(self) -> Guarantee:
        return Guarantee(epsilon=0.0, assumptions=("no reward is used",))

    def checked_context(self, context: Any) -> Any:
        """Accept any context and ignore it."""
        return None

    def chances(self, state: Any) -> np.ndarray | None:
        return np.full(self.arms, 1.0 / self.arms)

    def proved_bound(self, environment: Any, horizon: int) -> float | None:
        """Exact, also with outliers: every round costs the mean gap."""
        return float(horizon * environment.gaps.mean()) if environment.independent else None
