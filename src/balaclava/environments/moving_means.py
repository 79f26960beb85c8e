"""The base class of environments whose means change from round to round."""

from typing import Any

import numpy as np

from balaclava.environments.base import Environment


class MovingEnvironment(Environment):
    """Rewards 0 and 1 with means that depend on the round.

    Regret is against the best arm of each round. `means` are averages over the rounds: their gaps
    compare single arms, and do not define regret.
    """

    reward_range = (0.0, 1.0)
    independent = False
    largest_gap = 1.0

    def regret(self, rounds: np.ndarray, pulls: np.ndarray, totals: np.ndarray) -> np.ndarray:
        """The sum of the gaps of the rounds; each is to the best arm of its round."""
        return totals

    def checked_chances(self, parameter: str, values: Any) -> np.ndarray:
        """Probabilities of each arm, as an array; `parameter` names them in errors."""
        try:
            chances = np.array(values, dtype=np.float64)
        except (TypeError, ValueError):
            chances = np.empty(0)
        if chances.ndim != 1 or chances.size == 0 or not ((chances >= 0) & (chances <= 1)).all():
            raise self.refuse(parameter, "needs a list of means in [0, 1], one per arm")
        return chances
