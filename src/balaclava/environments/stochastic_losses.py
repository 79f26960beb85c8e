"""Random losses 0 and 1."""

from typing import Annotated

import numpy as np

from balaclava._core.declared import Range
from balaclava.environments.base import register, sum_over_arms
from balaclava.environments.bernoulli import draw
from balaclava.environments.loss_environment import LossEnvironment

Probabilities = Annotated[np.ndarray, Range(0, 1, "chance of a loss of 1"), 1]


@register
class StochasticLosses(LossEnvironment):
    """Losses 0 and 1, independent, with a fixed probability per arm.

    Regret is the sum of the gaps of the arms pulled, as for rewards.

    Example:
        >>> bl.environment("stochastic-losses", means=[0.5, 0.4, 0.5]).gaps.round(3).tolist()
        [0.1, 0.0, 0.1]
    """

    name = "stochastic-losses"
    see_also = "bernoulli, losses, switching"
    draw = staticmethod(draw)
    means: Probabilities

    @property
    def largest_gap(self) -> float:
        return float(self.gaps.max())  # regret is defined by the means

    def loss_rows(self, first: int, last: int) -> np.ndarray:
        return np.broadcast_to(self.means, (last - first, self.arms))

    def arm_losses(self, rounds: np.ndarray) -> np.ndarray:
        return np.outer(rounds, self.means)

    def own_losses(self, pulls: np.ndarray, totals: np.ndarray) -> np.ndarray:
        return sum_over_arms(pulls, self.means)
