"""Means that change at given rounds (Garivier, Moulines 2011)."""

from collections.abc import Sequence
from functools import cached_property
from typing import Annotated, Any, ClassVar, NamedTuple

import numpy as np

from balaclava._core.declared import Range
from balaclava._core.kernels import kernel
from balaclava.environments.base import Scene, register
from balaclava.environments.moving_means import MovingEnvironment

Period = Annotated[int, Range(1, meaning="rounds after which the schedule starts again")]


class World(NamedTuple):
    starts: np.ndarray  # [segment]: its first round, from 1
    segments: np.ndarray  # means[segment, arm]
    best: np.ndarray  # [segment]: the largest mean
    period: int  # 0: the schedule does not repeat


@kernel(borrows=True)
def segment_of(world: World, t: int) -> int:
    """The segment of round t, by bisection."""
    if world.period > 0:
        t = (t - 1) % world.period + 1
    low, high = 0, world.starts.size
    while high - low > 1:
        middle = (low + high) // 2
        if world.starts[middle] <= t:
            low = middle
        else:
            high = middle
    return low


@kernel(borrows=True)
def draw(world: World, t: int, arm: int, rng: Any) -> float:
    return 1.0 if rng.random() < world.segments[segment_of(world, t), arm] else 0.0


@kernel(borrows=True)
def gap_to_best(world: World, t: int, arm: int, reward: float) -> float:
    segment = segment_of(world, t)
    return float(world.best[segment] - world.segments[segment, arm])


@register
class Changing(MovingEnvironment):
    """Rewards 0 and 1 whose means change at given rounds, and are constant between them.

    Use it to see what a policy loses when the best arm changes: a season, a new price elsewhere.
    With `period` the schedule repeats, such as the days of a week. Regret is against the best arm
    of each round.

    Parameters:
        schedule: pairs of a first round and the means from then on; the first round of all is 1.
        period: rounds after which the schedule starts again; by default never.

    Example:
        >>> world = bl.environment("changing", schedule=[(1, [0.7, 0.5]), (501, [0.3, 0.5])])
        >>> policy = bl.policy("random", arms=2)
        >>> results = bl.simulate(policy, world, horizon=1000, repetitions=1, seed=1)
        >>> round(float(results.final_regret("random")[0]))
        99
    """

    name = "changing"
    reference = "Garivier, Moulines 2011"
    see_also = "drifting, switching, bernoulli"
    draw = staticmethod(draw)
    scene = Scene(score=gap_to_best)
    examples: ClassVar[tuple[dict[str, Any], ...]] = (
        {"schedule": [(1, [0.2, 0.7]), (101, [0.6, 0.3])]},
        {"schedule": [(1, [0.2, 0.7]), (6, [0.6, 0.3])], "period": 7},
    )
    schedule: object
    period: Period | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        pairs = self._checked_schedule()
        object.__setattr__(self, "schedule", pairs)
        if self.period is not None and self.period < pairs[-1][0]:
            raise self.refuse("period", f"ends before the last change, at round {pairs[-1][0]}")

    def _checked_schedule(self) -> tuple[tuple[int, tuple[float, ...]], ...]:
        advice = "give pairs of a first round, from 1 on, and the means from then on"
        entries: Any = self.schedule
        if not isinstance(entries, Sequence) or isinstance(entries, str) or not entries:
            raise self.refuse("schedule", f"is not a list; {advice}")
        pairs, last = list[tuple[int, tuple[float, ...]]](), 0
        for pair in entries:
            if not isinstance(pair, Sequence) or isinstance(pair, str) or len(pair) != 2:
                raise self.refuse("schedule", f"has an entry that is not a pair; {advice}")
            start = pair[0]
            if isinstance(start, bool) or not isinstance(start, int | np.integer) or start <= last:
                raise self.refuse("schedule", f"has rounds that do not ascend; {advice}")
            means = self.checked_chances("schedule", pair[1])
            if pairs and means.size != len(pairs[0][1]):
                raise self.refuse("schedule", "has several numbers of arms; give every arm a mean")
            last = int(start)
            pairs.append((last, tuple(means.tolist())))
        if pairs[0][0] != 1:
            raise self.refuse("schedule", f"does not start at round 1; {advice}")
        return tuple(pairs)

    @cached_property
    def _world(self) -> World:
        pairs: Any = self.schedule
        starts = np.array([start for start, _ in pairs], np.int64)
        segments = np.array([means for _, means in pairs])
        return World(starts, segments, segments.max(axis=1), self.period or 0)

    def constants(self) -> World:
        return self._world

    @property
    def means(self) -> np.ndarray:
        """The means over a period; without one, over the segments."""
        world = self._world
        if self.period is None:
            return np.asarray(world.segments.mean(axis=0))
        lengths = np.diff(world.starts, append=self.period + 1)
        return np.asarray(lengths @ world.segments / self.period)
