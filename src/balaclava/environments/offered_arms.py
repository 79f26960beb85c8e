"""Another environment whose arms are on offer in some rounds only."""

import functools
import math
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from typing import Annotated, Any, ClassVar, NamedTuple

import numpy as np

from balaclava._core.declared import Range, check
from balaclava._core.kernels import kernel
from balaclava.environments.base import (
    ENVIRONMENTS,
    FIXED_SCENE,
    Environment,
    Groups,
    Offers,
    Scene,
    attribute,
    nothing_new,
    register,
    same_world,
)
from balaclava.environments.moving_means import MovingEnvironment

Share = Annotated[float, Range(0, 1, "share of the participants", open_low=True)]
_ADVICE = "give pairs of a first round, from 1 on, and the arms from then on"


class World(NamedTuple):
    inner: Any
    starts: np.ndarray  # [segment]: its first round, from 1
    on_offer: np.ndarray  # [segment, arm]
    means: np.ndarray  # [arm]; of an inner environment whose means stay
    best: np.ndarray  # [segment]: the largest mean on offer


@kernel(borrows=True)
def segment_at(starts: np.ndarray, t: int) -> int:
    """The segment of round t, by bisection."""
    low, high = 0, starts.size
    while high - low > 1:
        middle = (low + high) // 2
        if starts[middle] <= t:
            low = middle
        else:
            high = middle
    return low


@kernel(borrows=True)
def gap_on_offer(world: World, t: int, arm: int, reward: float) -> float:
    return float(world.best[segment_at(world.starts, t)] - world.means[arm])


@functools.cache
def wrapped_draw(inner: Callable[..., float]) -> Callable[..., float]:
    @kernel(borrows=True)
    def draw(world: World, t: int, arm: int, rng: Any) -> float:
        return inner(world.inner, t, arm, rng)

    return draw


@functools.cache
def wrapped_scene(inner: Scene) -> Scene:
    """The scene around one whose score is the gap to the best of all arms in the round."""
    open_inner, renew_inner, gap = inner

    @kernel
    def open_scene(world: World) -> World:
        return World(open_inner(world.inner), world.starts, world.on_offer, world.means, world.best)

    @kernel(borrows=True)
    def renew(world: World, t: int, rng: Any) -> None:
        renew_inner(world.inner, t, rng)

    @kernel(borrows=True)
    def score(world: World, t: int, arm: int, reward: float) -> float:
        segment, least = segment_at(world.starts, t), math.inf
        for other in range(world.on_offer.shape[1]):
            if world.on_offer[segment, other]:
                least = min(least, gap(world.inner, t, other, reward))
        return gap(world.inner, t, arm, reward) - least

    fixed = open_inner is same_world
    return Scene(same_world, nothing_new, score) if fixed else Scene(open_scene, renew, score)


STATIONARY = Scene(score=gap_on_offer)


@register
class OfferedArms(Environment):
    """Another environment whose arms come and leave at given rounds.

    Use it to see what an arm costs that is added to a running experiment. The policy begins with
    the arms that are on offer first; others are added and retired as an agent does it, at the end
    of a batch if they leave. An arm that comes back is new to the policy. Regret is against the
    best arm on offer in each round. Late rewards of an arm that left are dropped.

    With `participants`, each round draws a participant who can get some of these arms only, by a
    public attribute. Regret is then against the best arm that the participant can get. Such rounds
    are not compiled: they take about a thousand times as long.

    Parameters:
        inner: an environment of all arms, or a mapping with its `name` and parameters: one whose
            arms keep their means, or changing or drifting.
        offers: pairs of a first round and the arms on offer from then on; the first round is 1.
        participants: pairs of a share of the participants and the arms that they can get; the
            shares add up to 1. By default all can get all arms on offer.

    Example:
        >>> shop = bl.environment("bernoulli", means=[0.5, 0.4, 0.7])
        >>> world = bl.environment("offered-arms", inner=shop,
        ...                        offers=[(1, [0, 1]), (2_001, [0, 1, 2]), (4_001, [0, 2])])
        >>> policy = bl.policy("dp-imed", arms=3, epsilon=5.0)
        >>> results = bl.simulate(policy, world, horizon=6_000, repetitions=1, seed=1)
        >>> results.pulls("dp-imed").tolist()
        [[1814, 186, 4000]]
    """

    name = "offered-arms"
    see_also = "changing, drifting, bernoulli"
    examples: ClassVar[tuple[dict[str, Any], ...]] = (
        {
            "inner": {"name": "bernoulli", "means": [0.2, 0.6, 0.4]},
            "offers": [(1, [0, 1]), (41, [0, 1, 2]), (81, [2, 0]), (121, [1])],
        },
        {
            "inner": {"name": "changing", "schedule": [(1, [0.2, 0.7]), (101, [0.6, 0.3])]},
            "offers": [(1, [1]), (51, [0, 1])],
        },
        {
            "inner": {"name": "bernoulli", "means": [0.2, 0.6, 0.4]},
            "offers": [(1, [0, 1]), (41, [0, 1, 2])],
            "participants": [(0.7, [0, 1, 2]), (0.3, [0])],
        },
    )
    inner: Environment
    offers: object
    participants: object = None
    means, gaps, largest_gap = (
        attribute("inner.means"),
        attribute("inner.gaps"),
        attribute("inner.largest_gap"),
    )
    holds_data, rounds = attribute("inner.holds_data"), attribute("inner.rounds")
    reward_range, arm_labels = attribute("inner.reward_range"), attribute("inner.arm_labels")
    share_of_outliers = attribute("inner.share_of_outliers")
    independent = False

    def __post_init__(self) -> None:
        if isinstance(self.inner, Mapping):
            inner = ENVIRONMENTS.from_mapping(self._label("inner"), self.inner)
            object.__setattr__(self, "inner", inner)
        super().__post_init__()
        if not (self.inner.independent or isinstance(self.inner, MovingEnvironment)):
            raise self.refuse_data(
                "inner",
                f"= {self.inner.name} has no mean for each arm and round; give an environment "
                "whose arms keep their means, or changing or drifting",
            )
        object.__setattr__(self, "offers", self._checked_offers())
        if self.participants is not None:
            object.__setattr__(self, "participants", self._checked_participants())

    def _checked_offers(self) -> tuple[tuple[int, tuple[int, ...]], ...]:
        entries: Any = self.offers
        if not isinstance(entries, Sequence) or isinstance(entries, str) or not entries:
            raise self.refuse("offers", f"is not a list; {_ADVICE}")
        pairs, last = list[tuple[int, tuple[int, ...]]](), 0
        for pair in entries:
            if not isinstance(pair, Sequence) or isinstance(pair, str) or len(pair) != 2:
                raise self.refuse("offers", f"has an entry that is not a pair; {_ADVICE}")
            start, arms = pair
            if isinstance(start, bool) or not isinstance(start, int) or start <= last:
                raise self.refuse("offers", f"has rounds that do not ascend; {_ADVICE}")
            last = start
            pairs.append((start, self._checked_arms("offers", arms)))
        if pairs[0][0] != 1:
            raise self.refuse("offers", f"does not start at round 1; {_ADVICE}")
        return tuple(pairs)

    def _checked_arms(self, parameter: str, arms: Any) -> tuple[int, ...]:
        """Numbers of arms, ascending."""
        if not isinstance(arms, Sequence) or isinstance(arms, str) or not arms:
            raise self.refuse(parameter, "has an entry without arms; give at least one")
        for arm in arms:
            if isinstance(arm, bool) or not isinstance(arm, int) or not 0 <= arm < self.arms:
                raise self.refuse(
                    parameter, f"has an arm that does not exist; arms are 0 to {self.arms - 1}"
                )
        return tuple(sorted(set(arms)))

    def _checked_participants(self) -> tuple[tuple[float, tuple[int, ...]], ...]:
        advice = "give pairs of a share and the arms that these participants can get"
        entries: Any = self.participants
        if not isinstance(entries, Sequence) or isinstance(entries, str) or not entries:
            raise self.refuse("participants", f"is not a list; {advice}")
        pairs = list[tuple[float, tuple[int, ...]]]()
        for pair in entries:
            if not isinstance(pair, Sequence) or isinstance(pair, str) or len(pair) != 2:
                raise self.refuse("participants", f"has an entry that is not a pair; {advice}")
            share = check("participants: share", pair[0], Share)
            pairs.append((share, self._checked_arms("participants", pair[1])))
        if not math.isclose(math.fsum(share for share, _ in pairs), 1.0, abs_tol=1e-9):
            raise self.refuse("participants", "has shares that do not add up to 1")
        for start, on_offer in self.arms_on_offer:
            if any(set(on_offer).isdisjoint(arms) for _, arms in pairs):
                raise self.refuse(
                    "participants", f"has some who could get no arm from round {start} on"
                )
        return tuple(pairs)

    @property
    def groups(self) -> Groups | None:
        return self.participants  # type: ignore[return-value]

    @property
    def arms_on_offer(self) -> Offers:
        return self.offers  # type: ignore[return-value]

    @property
    def public_parameters(self) -> dict[str, Any]:
        inner = {"name": self.inner.name, **self.inner.public_parameters}
        return {**self.parameters, "inner": inner}

    @cached_property
    def _world(self) -> World:
        pairs: Any = self.offers
        on_offer = np.zeros((len(pairs), self.arms), np.bool_)
        for row, (_, arms) in zip(on_offer, pairs, strict=True):
            row[list(arms)] = True
        means = np.ascontiguousarray(self.means, float)
        best = np.where(on_offer, means, -np.inf).max(axis=1)
        starts = np.array([start for start, _ in pairs], np.int64)
        return World(self.inner.constants(), starts, on_offer, means, best)

    def constants(self) -> World:
        return self._world

    @property
    def draw(self) -> Callable[..., float]:
        return wrapped_draw(self.inner.draw)

    @property
    def scene(self) -> Scene:
        return STATIONARY if self.inner.scene == FIXED_SCENE else wrapped_scene(self.inner.scene)

    def regret(self, rounds: np.ndarray, pulls: np.ndarray, totals: np.ndarray) -> np.ndarray:
        """The sum of the gaps of the rounds; each is to the best arm on offer."""
        return totals

    def moments(self, order: float, *, central: bool = False) -> np.ndarray:
        """The exact moment of each arm."""
        return self.inner.moments(order, central=central)
