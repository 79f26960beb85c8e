"""Many short compiled games on given rewards: the raw material of the statistical audit.

A game is summarised by how often each arm was pulled up to some rounds (the probes). What tells
two reward streams apart is then an event such as "by round 40 arm 1 was pulled at most 3 times":
an elimination, a late second look, a commitment all show in it. Games are only counted, never
stored, so memory does not depend on their number.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

import numpy as np

from balaclava._core.kernels import compiled
from balaclava.errors import no_such_arm
from balaclava.policies.base import Policy
from balaclava.privacy.randomness import seeded
from balaclava.simulation.engine import available_cores

_WATCHED = 4  # arms whose pulls are counted: the streams differ in the first two
_BLOCKS = 16  # a random stream serves a block of games


class Event(NamedTuple):
    """Arm `arm` was pulled at least (or at most) `pulls` times in the first `round` rounds.

    And arm `given` was pulled in the round that differs, unless that is the number of arms that
    are watched, which stands for any.
    """

    given: int
    arm: int
    round: int
    pulls: int
    at_least: bool

    def __str__(self) -> str:
        how = "at least" if self.at_least else "at most"
        return f"arm {self.arm} is pulled {how} {self.pulls} times in the first {self.round} rounds"


def make_count_games(
    begin: Callable[..., Any],
    choose: Callable[..., Any],
    learn: Callable[..., Any],
    prepare: Callable[..., Any],
) -> Callable[..., Any]:
    """A loop over games that counts, for each arm and probe, how many pulls there were."""

    def count_games(
        params: Any,
        context: Any,
        rewards: np.ndarray,
        games: int,
        place: int,
        probes: np.ndarray,
        histogram: np.ndarray,
        rng: Any,
    ) -> int:
        arms, watched = rewards.shape[1], histogram.shape[1]
        given = 0
        pulls = np.zeros(arms, np.int64)
        for _ in range(games):
            state = begin(params)
            pulls[:] = 0
            t = 0
            for probe in range(probes.size):
                while t < probes[probe]:
                    t += 1
                    arm, phase = choose(params, state, t, context, rng)
                    if arm < 0 or arm >= arms:  # compiled code would write anywhere
                        return t
                    reward = prepare(params, rewards[t - 1, arm])
                    learn(params, state, t, arm, reward, phase, rng)
                    pulls[arm] += 1
                    if t == place:
                        given = arm
                for arm in range(watched):
                    histogram[min(given, watched), arm, probe, pulls[arm]] += 1
        return 0

    return count_games


def count_games(
    policy: Policy,
    rewards: np.ndarray,
    games: int,
    place: int,
    probes: np.ndarray,
    seed: int,
    *path: int,
) -> np.ndarray:
    """How many of `games` games had n pulls of an arm by a probe: counts[given, arm, probe, n].

    `given` is the arm that was pulled in round `place`; the last row is the sum over all of them.
    No probe comes before `place`.
    """
    play = compiled(make_count_games, *policy.kernels[:3], policy.prepare())
    params, context = policy.constants(), policy.practice_context
    watched = min(policy.arms, _WATCHED)
    shape = (watched + 1, watched, probes.size, int(probes[-1]) + 1)
    sizes = np.full(_BLOCKS, games // _BLOCKS)
    sizes[: games % _BLOCKS] += 1

    def block(number: int) -> np.ndarray:
        histogram = np.zeros(shape, np.int64)
        rng = seeded(seed, *path, number)
        size = int(sizes[number])
        lost = play(params, context, rewards, size, place, probes, histogram, rng)
        if lost:
            raise no_such_arm(policy.name, lost, policy.arms)
        histogram[-1] = histogram.sum(axis=0)
        return histogram

    if games < 10_000:
        return sum((block(i) for i in range(_BLOCKS)), np.zeros(shape, np.int64))
    with ThreadPoolExecutor(available_cores()) as pool:
        return sum(pool.map(block, range(_BLOCKS)), np.zeros(shape, np.int64))
