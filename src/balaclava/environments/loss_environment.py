"""What environments of losses share: regret against the best arm or expert in hindsight."""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar, Literal

import numpy as np

from balaclava.environments.base import Environment

_CHUNK = 1 << 16  # rounds that are summed at once


class LossEnvironment(Environment):
    """Losses in [0, 1] of an adversary that chose them before the first round.

    A subclass says what each arm has lost by some rounds; the best arm is the one that lost
    least by then. Gaps are those of the mean losses, the least being best.
    """

    feedback: ClassVar[Literal["reward", "loss"]] = "loss"

    @property
    def reward_range(self) -> tuple[float, float]:
        return (0.0, 1.0)

    @property
    def gaps(self) -> np.ndarray:
        gaps: np.ndarray = self.means - self.means.min()
        return gaps

    @property
    def largest_gap(self) -> float:
        return 1.0  # one arm may lose 1 in a round in which the best one loses 0

    def loss_rows(self, first: int, last: int) -> np.ndarray:
        """losses[round, arm] of rounds first + 1 to last."""
        raise NotImplementedError

    def arm_losses(self, rounds: np.ndarray) -> np.ndarray:
        """losses[i, arm]: what each arm lost in the first rounds[i] rounds."""
        return summed_by(rounds, self.loss_rows)

    def own_losses(self, pulls: np.ndarray, totals: np.ndarray) -> np.ndarray:
        """What a policy lost, by its pulls and by the sum of what they gave."""
        return totals

    def regret(self, rounds: np.ndarray, pulls: np.ndarray, totals: np.ndarray) -> np.ndarray:
        """Own loss less that of the best arm in hindsight, each over the same rounds."""
        regret: np.ndarray = self.own_losses(pulls, totals) - self.arm_losses(rounds).min(axis=1)
        return regret


def summed_by(rounds: np.ndarray, rows: Callable[[int, int], np.ndarray]) -> np.ndarray:
    """The sum of the rows up to each of the rounds, without a table of running sums.

    `rows(first, last)` gives the rows of rounds first + 1 to last.
    """
    sums: list[np.ndarray] = []
    total, row = np.zeros(()), 0
    for last in rounds.tolist():
        while row < last:
            until = min(last, row + _CHUNK)
            total = total + rows(row, until).sum(axis=0)
            row = until
        sums.append(total)
    return np.array(sums)
