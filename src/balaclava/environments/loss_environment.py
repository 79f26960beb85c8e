"""The base class of environments of losses: regret against the best arm in hindsight."""

from collections.abc import Callable
from typing import ClassVar, Literal

import numpy as np

from balaclava.environments.base import Environment

_SUMMED_ROUNDS = 1 << 16  # rounds summed at once, so that memory does not grow with the horizon


class LossEnvironment(Environment):
    """Losses in [0, 1] of an oblivious adversary, which chooses them before the first round.

    A subclass gives the losses of each arm. The best arm at a checkpoint is the one that lost least
    by then. Gaps are those of the mean losses; the least mean is best.
    """

    feedback: ClassVar[Literal["reward", "loss"]] = "loss"
    reward_range = (0.0, 1.0)

    @property
    def gaps(self) -> np.ndarray:
        return self.means - self.means.min()

    @property
    def largest_gap(self) -> float:
        return 1.0  # an arm may lose 1 in a round in which the best arm loses 0

    def loss_rows(self, first: int, last: int) -> np.ndarray:
        """losses[round, arm] of rounds first + 1 to last."""
        raise NotImplementedError

    def arm_losses(self, rounds: np.ndarray) -> np.ndarray:
        """losses[i, arm]: the loss of each arm in the first rounds[i] rounds."""
        return sums_at(rounds, self.loss_rows)

    def own_losses(self, pulls: np.ndarray, totals: np.ndarray) -> np.ndarray:
        """The loss of a policy, from its pulls and the sum of its losses."""
        return totals

    def regret(self, rounds: np.ndarray, pulls: np.ndarray, totals: np.ndarray) -> np.ndarray:
        """The policy's loss minus that of the best arm in hindsight, over the same rounds."""
        return self.own_losses(pulls, totals) - self.arm_losses(rounds).min(axis=1)


def sums_at(rounds: np.ndarray, rows: Callable[[int, int], np.ndarray]) -> np.ndarray:
    """The sum of the rows up to each of the rounds, without a table of running sums.

    `rows(first, last)` returns the rows of rounds first + 1 to last.
    """
    sums: list[np.ndarray] = []
    total, row = np.zeros(()), 0
    for last in rounds.tolist():
        while row < last:
            until = min(last, row + _SUMMED_ROUNDS)
            total = total + rows(row, until).sum(axis=0)
            row = until
        sums.append(total)
    return np.array(sums)
