"""What the environments with contexts share: a scene of features, means and the best of them.

The features of a round are written into `scene.features`: a row an arm, or, where arms have
coefficients of their own ("disjoint"), one row for all of them, the person's. Regret is that of the
round given its context: the best mean less that of the arm.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any, Literal, NamedTuple

import numpy as np

from balaclava._core.declared import Range
from balaclava._core.kernels import kernel
from balaclava.environments.base import Environment

FeatureTable = Annotated[np.ndarray, Range(meaning="features: a row a person"), 2]
Order = Annotated[Literal["random", "listed"], Range(meaning="how rows follow one another")]


class Stage(NamedTuple):
    """The scene of a game."""

    world: Any
    features: np.ndarray  # [row, feature], of this round
    means: np.ndarray  # [arm], given the context
    best: np.ndarray  # one element: the highest mean


@kernel(borrows=True)
def row_of_round(rows: int, listed: bool, t: int, rng: Any) -> int:
    """Which row of a table is this round's: the next one, or one drawn evenly."""
    if listed:
        return (t - 1) % rows
    return int(rng.random() * rows)


@kernel(borrows=True)
def note_best(stage: Stage) -> None:
    """Keep the highest mean of the round."""
    stage.best[0] = stage.means[0]
    for arm in range(1, stage.means.size):
        stage.best[0] = max(stage.best[0], stage.means[arm])


@kernel
def features_of_round(stage: Stage, t: int) -> np.ndarray:
    """The context that a policy is given."""
    return stage.features


@kernel(borrows=True)
def gap_of_round(stage: Stage, t: int, arm: int, reward: float) -> float:
    """What the arm loses in expectation, given the context."""
    return stage.best[0] - stage.means[arm]


class ContextualEnvironment(Environment):
    """An environment whose rounds differ by their context.

    `means` are those of a policy that always plays the same arm; the gaps between them are what
    the best single arm gains over the others, and not what regret is counted by.
    """

    @property
    def advise(self) -> Callable[..., Any]:
        return features_of_round

    @property
    def reward_range(self) -> tuple[float, float]:
        return (0.0, 1.0)

    @property
    def largest_gap(self) -> float:
        return 1.0

    def regret(self, rounds: np.ndarray, pulls: np.ndarray, totals: np.ndarray) -> np.ndarray:
        """The sum of the gaps of the rounds, each given its context."""
        return totals
