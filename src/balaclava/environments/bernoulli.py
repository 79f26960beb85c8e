"""Rewards 0 and 1."""

from typing import Annotated, Any

import numpy as np

from balaclava._core.declared import Range
from balaclava._core.kernels import kernel
from balaclava.environments.base import Environment, checked_order, register

Probabilities = Annotated[np.ndarray, Range(0, 1, "chance of a reward of 1"), 1]


@kernel(borrows=True)
def draw(world: Any, t: int, arm: int, rng: Any) -> float:
    return 1.0 if rng.random() < world.means[arm] else 0.0


@register
class Bernoulli(Environment):
    """Rewards 0 and 1: clicks, cures, conversions.

    Example:
        >>> bl.environment("bernoulli", means=[0.2, 0.5]).moment(2, central=True)
        0.25
    """

    name = "bernoulli"
    see_also = "two-point, stochastic-losses"
    reward_range = (0.0, 1.0)
    draw = staticmethod(draw)
    means: Probabilities

    def moments(self, order: float, *, central: bool = False) -> np.ndarray:
        order, p = checked_order(order), self.means
        centre = p if central else np.zeros_like(p)
        return p * np.abs(1 - centre) ** order + (1 - p) * np.abs(centre) ** order
