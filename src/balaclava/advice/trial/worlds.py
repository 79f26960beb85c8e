"""Environments drawn from a log: its averages are uncertain, so policies play on draws of them."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from balaclava.advice.log.arm_estimates import is_binary
from balaclava.advice.log.log_summary import LogSummary
from balaclava.advice.trial.mean_draws import ArmAverages
from balaclava.environments.base import Environment
from balaclava.environments.base import environment as make_environment

_WORLDS_DRAWN_TOGETHER = 64
_MAX_ROWS = 20_000  # of an arm that a world resamples, for speed
_POOLED_ROWS = 200  # rows of all arms that are worth one more row of each arm
_ROWS_PER_WORLD = 4  # rows of an arm in a world for each of the log, so that its mean is precise
_FEWEST_ROWS = 5_000  # of an arm in a world, for the same reason
_LEAST_ERROR = 1e-9  # of an average, relative to the largest, if no reward differs from the others
_MAX_CONTEXTS = 2_000  # rows of the log in a drawn world, for memory and speed


class DrawnWorld(NamedTuple):
    environment: Environment
    order: np.ndarray  # the log's arm behind each arm
    mean_gap: float  # expected regret per round of playing at random


def log_environment(log: LogSummary) -> Environment:
    """The log itself as an environment: each arm resampled."""
    return make_environment("empirical", samples=log.logged.by_arm)


class LogWorlds:
    """Worlds that agree with a log: means drawn from its uncertainty (`mean_draws`).

    Rewards 0 and 1 are averaged on the scale arcsin(sqrt(share)), on which their errors depend on
    the rows alone (Anscombe 1948), so that an arm without a success may still have some. Other
    rewards: the rows of the arm, weighted so that they have the drawn mean. Weighted and repeated
    rows count by their effective sample size. The order of the arms is random, so that a preference
    for the first arm gains nothing.
    """

    def __init__(self, log: LogSummary) -> None:
        self.binary = is_binary(log.logged.rewards)
        effective = np.array([max(row.effective, 1.0) for row in log.arms])
        means = np.array([row.mean for row in log.arms])
        if self.binary:
            shares = (means * effective + 3 / 8) / (effective + 3 / 4)
            self.averages = ArmAverages(np.arcsin(np.sqrt(shares)), 1 / np.sqrt(4 * effective + 2))
            return
        variances = effective * np.array([row.error for row in log.arms]) ** 2
        usual = float(np.average(variances, weights=effective))
        # One more row of the usual variance, so that an arm whose rows are all alike has an error.
        errors = np.sqrt((effective * variances + usual) / (effective + 1) / effective)
        floor = _LEAST_ERROR * max(float(np.abs(means).max()), 1e-300)
        self.averages = ArmAverages(means, np.maximum(errors, floor))
        own = [WeightedRows.of(*each) for each in zip(log.samples, log.weights, strict=True)]
        self._pooled = WeightedRows.pooled(own, effective)
        few = self._pooled.thinned(_POOLED_ROWS)
        self._rows = [
            WeightedRows.pooled((rows.thinned(_MAX_ROWS), few), (count, 1.0))
            for rows, count in zip(own, effective, strict=True)
        ]
        self._pooled = self._pooled.thinned(_MAX_ROWS)

    @property
    def equal(self) -> float:
        """The share of worlds with equal arms: the p-value of the test that all are equal."""
        return self.averages.equal

    def means(self, count: int, rng: np.random.Generator, *, ties: bool = True) -> np.ndarray:
        """Means [world, arm] of worlds; `ties` tells whether all arms of a world may be equal."""
        means = self.averages.draw(count, rng, ties=ties)
        return np.sin(np.clip(means, 0, np.pi / 2)) ** 2 if self.binary else means

    def gaps(self, count: int, seed: int) -> np.ndarray:
        """Expected regret per round of playing at random, in many worlds."""
        means = self.means(count, np.random.default_rng(seed))
        return np.where(np.ptp(means, axis=1) > 0, means.max(axis=1) - means.mean(axis=1), 0.0)

    def draw(self, seed: int, *, ties: bool = True) -> Iterator[DrawnWorld]:
        """Worlds without end."""
        rng = np.random.default_rng(seed)
        while True:
            for means in self.means(_WORLDS_DRAWN_TOGETHER, rng, ties=ties):
                order = rng.permutation(means.size)
                world = self._world(means, order)
                yield DrawnWorld(world, order, float(world.gaps.mean()))

    def _world(self, means: np.ndarray, order: np.ndarray) -> Environment:
        if self.binary:
            return make_environment("bernoulli", means=means[order])
        if np.ptp(means) == 0:
            samples = [self._pooled.with_mean(means[0])] * means.size
        else:
            samples = [self._rows[i].with_mean(means[i]) for i in order]
        return make_environment("empirical", samples=samples)


class WeightedRows(NamedTuple):
    """Rewards in ascending order, and weights that add up to 1."""

    rewards: np.ndarray
    weights: np.ndarray

    @classmethod
    def of(cls, rewards: np.ndarray, weights: np.ndarray | None) -> "WeightedRows":
        weights = np.ones(rewards.size) if weights is None else weights
        order = np.argsort(rewards, kind="stable")
        return cls(rewards[order], weights[order] / weights.sum())

    @classmethod
    def pooled(cls, parts: Sequence["WeightedRows"], totals: Iterable[float]) -> "WeightedRows":
        """All rows of the parts, each part with its total weight."""
        weights = [total * part.weights for part, total in zip(parts, totals, strict=True)]
        return cls.of(np.concatenate([part.rewards for part in parts]), np.concatenate(weights))

    def sample(self, weights: np.ndarray, count: int) -> np.ndarray:
        """`count` rows in proportion to the weights, up to rounding (systematic sampling)."""
        ends = np.floor(np.cumsum(weights) * (count / weights.sum()) + 0.5)
        return np.repeat(self.rewards, np.diff(ends, prepend=0.0).astype(np.int64))

    def thinned(self, most: int) -> "WeightedRows":
        """At most so many rows, of equal weight if they are fewer than before."""
        if self.rewards.size <= most:
            return self
        return WeightedRows(self.sample(self.weights, most), np.full(most, 1 / most))

    def with_mean(self, mean: float) -> np.ndarray:
        """Rows with about that mean: weights that rise or fall linearly with the reward.

        >>> rows = WeightedRows.of(np.array([0.0, 1.0, 2.0]), None)
        >>> float(rows.with_mean(1.2).mean()), float(rows.with_mean(0.9).mean())
        (1.2, 0.9)
        """
        if self.rewards[0] == self.rewards[-1]:
            return self.rewards
        centre = float(self.weights @ self.rewards)
        offsets = self.rewards - centre
        slope = (mean - centre) / float(self.weights @ offsets**2)
        slope = min(max(slope, -1 / offsets[-1]), -1 / offsets[0])  # no weight may be negative
        count = max(_ROWS_PER_WORLD * self.rewards.size, _FEWEST_ROWS)
        return self.sample(self.weights * (1 + slope * offsets), count)


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
