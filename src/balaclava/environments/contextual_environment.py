"""The base class of environments with contexts: features, means, and regret given the context.

The features of a round are in `scene.features`: a row per arm, or one row for all arms if each arm
has its own coefficients ("disjoint"). The regret of a round is the best mean given its context,
minus the mean of the arm.
"""

from collections.abc import Callable
from typing import Annotated, Any, Literal, NamedTuple

import numpy as np

from balaclava._core.declared import Range
from balaclava._core.kernels import kernel
from balaclava.environments.base import Environment

FeatureTable = Annotated[np.ndarray, Range(meaning="features: one row per person"), 2]
Order = Annotated[Literal["random", "listed"], Range(meaning="order of the rows")]


class Stage(NamedTuple):
    """The scene of a game."""

    world: Any
    features: np.ndarray  # [row, feature], of this round
    means: np.ndarray  # [arm], given the context
    best: np.ndarray  # one element: the largest mean


@kernel(borrows=True)
def row_of_round(rows: int, listed: bool, t: int, rng: Any) -> int:
    """The row of a table for this round: the next one, or a random one."""
    if listed:
        return (t - 1) % rows
    return int(rng.random() * rows)


@kernel(borrows=True)
def store_best(stage: Stage) -> None:
    stage.best[0] = stage.means[0]
    for arm in range(1, stage.means.size):
        stage.best[0] = max(stage.best[0], stage.means[arm])


@kernel
def features_of_round(stage: Stage, t: int) -> np.ndarray:
    """The context that a policy gets."""
    return stage.features


@kernel(borrows=True)
def gap_of_round(stage: Stage, t: int, arm: int, reward: float) -> float:
    """The expected regret of the arm, given the context."""
    return stage.best[0] - stage.means[arm]


class ContextualEnvironment(Environment):
    """An environment whose rounds differ by their context.

    `means` are those of always playing the same arm. Their gaps compare single arms, and do not
    define regret.
    """

    @property
    def advise(self) -> Callable[..., Any]:
        return features_of_round

    reward_range = (0.0, 1.0)
    largest_gap = 1.0

    def regret(self, rounds: np.ndarray, pulls: np.ndarray, totals: np.ndarray) -> np.ndarray:
        """The sum of the gaps of the rounds, given their contexts."""
        return totals
