"""Means that move a little in every round."""

from typing import Annotated, Any, ClassVar, NamedTuple

import numpy as np

from balaclava._core.declared import Range
from balaclava._core.kernels import kernel
from balaclava.environments.base import Scene, register
from balaclava.environments.bernoulli import Probabilities
from balaclava.environments.moving_means import MovingEnvironment

Step = Annotated[float, Range(0, 0.5, "standard deviation of a mean's change in a round")]
Limit = Annotated[float, Range(0, 1, "limit of every mean")]


class Walk(NamedTuple):
    """The scene of a game: arrays only, so that a GPU can hold one for each game."""

    step: np.ndarray  # one element, as those below but `means`
    low: np.ndarray
    high: np.ndarray
    means: np.ndarray  # [arm], of this round
    best: np.ndarray  # the largest mean


@kernel
def start_walk(world: Any) -> Walk:
    return Walk(
        step=np.full(1, world.step),
        low=np.full(1, world.low),
        high=np.full(1, world.high),
        means=world.means.copy(),
        best=np.zeros(1),
    )


@kernel(borrows=True)
def reflected(x: float, low: float, high: float) -> float:
    """The point in [low, high] that x reaches if the limits are mirrors; clipped beyond one."""
    if x < low:
        x = 2.0 * low - x
    elif x > high:
        x = 2.0 * high - x
    return min(max(x, low), high)


@kernel(borrows=True)
def move_means(walk: Walk, t: int, rng: Any) -> None:
    """Move every mean, from the second round on."""
    walk.best[0] = 0.0
    for arm in range(walk.means.size):
        if t > 1:
            step = walk.step[0] * rng.standard_normal()
            walk.means[arm] = reflected(walk.means[arm] + step, walk.low[0], walk.high[0])
        walk.best[0] = max(walk.best[0], walk.means[arm])


@kernel(borrows=True)
def draw(walk: Walk, t: int, arm: int, rng: Any) -> float:
    return 1.0 if rng.random() < walk.means[arm] else 0.0


@kernel(borrows=True)
def gap_to_best(walk: Walk, t: int, arm: int, reward: float) -> float:
    return float(walk.best[0] - walk.means[arm])


@register
class Drifting(MovingEnvironment):
    """Rewards 0 and 1 whose means follow random walks between two limits.

    Each mean changes in every round by a normal step and is reflected at the limits. Walks have a
    separate random stream: in the same repetition all policies get the same means. Regret is
    against the best arm of each round.

    Parameters:
        means: the mean of each arm in the first round.
        step: the standard deviation of a change; 0.001 moves a mean by about 0.1 in 10,000 rounds.
        low: the lower limit.
        high: the upper limit.

    Example:
        >>> world = bl.environment("drifting", means=[0.4, 0.6], step=0.01)
        >>> policy = bl.policy("random", arms=2)
        >>> results = bl.simulate(policy, world, horizon=1000, repetitions=1, seed=1)
        >>> round(float(results.final_regret("random")[0]))
        193
    """

    name = "drifting"
    see_also = "changing, bernoulli"
    draw = staticmethod(draw)
    scene = Scene(start_walk, move_means, gap_to_best)
    examples: ClassVar[tuple[dict[str, Any], ...]] = (
        {"means": [0.3, 0.6], "step": 0.01, "low": 0.1, "high": 0.9},
    )
    means: Probabilities
    step: Step
    low: Limit = 0.0
    high: Limit = 1.0

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.low < self.high:
            raise self.refuse("low", f"is not below high = {self.high:g}")
        if ((self.means < self.low) | (self.means > self.high)).any():
            raise self.refuse("means", f"must lie in [{self.low:g}, {self.high:g}]")
