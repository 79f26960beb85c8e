"""Worlds that a log leaves possible: its averages are estimates, policies play on draws."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from balaclava.advice.log.arm_estimates import is_binary
from balaclava.advice.log.log_summary import LogSummary
from balaclava.environments.base import Environment
from balaclava.environments.base import environment as make_environment

WORLD_LAWS = {
    True: "the chance of a 1 on each arm is drawn from Beta(1/2 + ones, 1/2 + zeros)",
    False: "the rows of each arm are resampled, as many as there are (the bootstrap)",
}


class DrawnWorld(NamedTuple):
    """A world, which arm of the log each of its arms is, and what a round at random loses there."""

    world: Environment
    order: np.ndarray
    loss: float


def draw_worlds(log: LogSummary, seed: int) -> Iterator[DrawnWorld]:
    """One world after the other, without end.

    Arms come in another order each time: a policy that prefers the first gains nothing by it.

    Rewards 0 and 1: means from the posterior under Jeffreys' prior, so that an arm without a
    success may yet have some. Others: as many rows of each arm, drawn with replacement. Where rows
    have weights, or several belong to one person, there are as many as they are worth.
    """
    rng = np.random.default_rng(seed)
    samples = log.samples
    binary = is_binary(np.concatenate(samples))
    effective = [max(row.effective, 1.0) for row in log.arms]
    means = [row.mean for row in log.arms]
    while True:
        order = rng.permutation(len(samples))
        if binary:
            ones = np.multiply(means, effective)
            zeros = np.maximum(effective - ones, 0.0)
            chances = rng.beta(ones + 0.5, zeros + 0.5)
            world = make_environment("bernoulli", means=chances[order])
        else:
            drawn = [_resampled(samples[i], log.chances[i], effective[i], rng) for i in order]
            world = make_environment("empirical", samples=drawn)
        yield DrawnWorld(world, order, float(world.gaps.mean()))


def _resampled(
    rewards: np.ndarray, chances: np.ndarray | None, rows: float, rng: np.random.Generator
) -> np.ndarray:
    count = max(round(rows), 2)
    if chances is None:
        return rewards[rng.integers(rewards.size, size=count)]
    ends = np.cumsum(chances)
    places = np.searchsorted(ends, np.sort(rng.random(count)) * ends[-1], side="right")
    return rewards[np.minimum(places, rewards.size - 1)]
