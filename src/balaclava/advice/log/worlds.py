"""Environments drawn from a log: its averages are uncertain, so policies play on draws of them."""

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from balaclava.advice.log.arm_estimates import is_binary
from balaclava.advice.log.log_summary import LogSummary
from balaclava.environments.base import Environment
from balaclava.environments.base import environment as make_environment

WORLD_LAWS = {  # how worlds are drawn, by whether all rewards are 0 or 1
    True: "the chance of a 1 on each arm is drawn from Beta(1/2 + ones, 1/2 + zeros)",
    False: "the rows of each arm are resampled, as many as there are (the bootstrap)",
}
_MAX_CONTEXTS = 2_000  # rows of the log in a drawn world, for memory and speed


class DrawnWorld(NamedTuple):
    environment: Environment
    order: np.ndarray  # the log's arm behind each arm
    mean_gap: float  # expected regret per round of playing at random


def log_environment(log: LogSummary) -> Environment:
    """The log itself as an environment: each arm resampled."""
    return make_environment("empirical", samples=log.logged.by_arm)


def draw_worlds(log: LogSummary, seed: int) -> Iterator[DrawnWorld]:
    """Worlds drawn from the uncertainty of the log, without end.

    Rewards 0 and 1: means from the posterior under Jeffreys' prior, so that an arm without a
    success may still have some. Others: the rows of each arm, drawn with replacement. Weighted and
    repeated rows count by their effective sample size. The order of the arms is random, so that a
    preference for the first arm gains nothing.
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
            drawn = [_resample(samples[i], log.weights[i], effective[i], rng) for i in order]
            world = make_environment("empirical", samples=drawn)
        yield DrawnWorld(world, order, float(world.gaps.mean()))


def _resample(
    rewards: np.ndarray, weights: np.ndarray | None, rows: float, rng: np.random.Generator
) -> np.ndarray:
    count = max(round(rows), 2)
    if weights is None:
        return rewards[rng.integers(rewards.size, size=count)]
    ends = np.cumsum(weights)
    places = np.searchsorted(ends, np.sort(rng.random(count)) * ends[-1], side="right")
    return rewards[np.minimum(places, rewards.size - 1)]


def draw_linear_worlds(
    rows: np.ndarray, theta: np.ndarray, roots: np.ndarray, seed: int
) -> Iterator[DrawnWorld]:
    """Worlds with rewards 0 and 1 whose means are linear in features of the log, without end.

    The coefficients of each arm are drawn around the fitted ones, with the covariance of their
    errors. Means outside [0, 1] are clipped.
    """
    rng = np.random.default_rng(seed)
    while True:
        order = rng.permutation(len(theta))
        drawn = theta + np.einsum("aij,aj->ai", roots, rng.standard_normal(theta.shape))
        contexts = rows[rng.integers(len(rows), size=min(len(rows), _MAX_CONTEXTS))]
        world: Any = make_environment(
            "linear",
            theta=drawn[order].ravel(),
            arms=len(theta),
            contexts="disjoint",
            table=contexts,
            outside="clip",
        )
        means = world.means_of_contexts
        yield DrawnWorld(world, order, float((means.max(axis=1) - means.mean(axis=1)).mean()))
