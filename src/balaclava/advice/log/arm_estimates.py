"""Estimates of a log's arms: means with 95 % intervals, and a test for the best arm.

Rows count as independent unless their participants are known, and equally unless the probability of
each choice is known.
"""

import math
from statistics import NormalDist
from typing import NamedTuple

import numpy as np

from balaclava.simulation.analysis.statistics import CONFIDENCE, NORMAL_REACH


class ArmEstimate(NamedTuple):
    """The mean of an arm. `effective` is the number of independent rows with the same error."""

    label: str
    rows: int
    mean: float
    low: float  # of the 95 % interval
    high: float
    error: float  # standard error
    effective: float


class WeightedArmEstimate(NamedTuple):
    """The mean reward if this arm alone had been played: rewards weighted by 1 / propensity."""

    label: str
    effective: float
    ips: float
    ips_low: float
    ips_high: float
    snips: float  # self-normalised
    snips_low: float
    snips_high: float
    total_weight: float  # per row of the log: about 1 if the propensities are right
    weight_error: float


class BestArmTest(NamedTuple):
    """The best arm against the hardest to tell from it (`next`), which need not be the second best.

    The interval holds for all arms against the best together.
    """

    best: str
    next: str
    difference: float
    low: float
    high: float

    @property
    def conclusive(self) -> bool:
        return self.low > 0

    @property
    def sentence(self) -> str:
        gap = (
            f"the difference of their averages is {self.difference:.3g}, 95 % interval "
            f"{self.low:.3g} to {self.high:.3g}"
        )
        if self.conclusive:
            return (
                f"The best arm in this log is {self.best!r}. {self.next!r} is the hardest to tell "
                f"from it: {gap}."
            )
        return (
            f"This log does not tell which arm is best: {self.best!r} has the highest average, "
            f"but chance may explain its lead over {self.next!r}; {gap}."
        )


def estimate_arm(
    label: str, rewards: np.ndarray, weights: np.ndarray | None, participants: np.ndarray | None
) -> ArmEstimate:
    """Estimate an arm's mean, with Wilson's interval for rewards 0 and 1, a normal one otherwise.

    The standard error is that of a weighted mean; rows of one participant count as one.

    >>> row = estimate_arm("a", np.repeat([1.0, 0.0], [2, 40]), None, None)
    >>> round(row.mean, 3), round(row.low, 3), round(row.high, 3)
    (0.048, 0.013, 0.158)
    """
    weights = np.ones(rewards.size) if weights is None else weights
    mean = float(np.average(rewards, weights=weights))
    error = clustered_root(weights * (rewards - mean), participants) / float(weights.sum())
    variance = float(np.average((rewards - mean) ** 2, weights=weights))
    kish = float(weights.sum() ** 2 / (weights**2).sum())
    effective = min(variance / error**2, float(rewards.size)) if error > 0 else kish
    if is_binary(rewards):
        low, high = wilson_interval(mean, effective)
    else:
        small_sample = math.sqrt(rewards.size / max(rewards.size - 1, 1))
        reach = NORMAL_REACH * small_sample * error
        low, high = mean - reach, mean + reach
    return ArmEstimate(label, rewards.size, mean, low, high, error, effective)


def is_binary(rewards: np.ndarray) -> bool:
    """Whether every reward is 0 or 1."""
    return bool(((rewards == 0) | (rewards == 1)).all())


def wilson_interval(share: float, rows: float) -> tuple[float, float]:
    """Wilson's 95 % interval for a share."""
    square = NORMAL_REACH**2
    centre = (share + square / (2 * rows)) / (1 + square / rows)
    reach = math.sqrt(share * (1 - share) / rows + square / (4 * rows**2))
    reach *= NORMAL_REACH / (1 + square / rows)
    low = max(centre - reach, 0.0) if share > 0 else 0.0  # not 1e-20 by rounding
    return low, min(centre + reach, 1.0) if share < 1 else 1.0


def compare_best_arm(rows: list[ArmEstimate], *, binary: bool) -> BestArmTest:
    """Compare the best arm with the one that is hardest to tell from it.

    Normal intervals, with Bonferroni's correction for all differences from the best. Arms with
    rewards 0 and 1 get one success and one failure more (Agresti and Caffo 2000).
    """
    best = max(rows, key=lambda row: row.mean)
    reach = NormalDist().inv_cdf(1 - (1 - CONFIDENCE) / 2 / max(len(rows) - 1, 1))
    tests = []
    for other in rows:
        if other is not best:
            (mean, error), (mean_2, error_2) = (_shrunk(row, binary) for row in (best, other))
            half = reach * math.hypot(error, error_2)
            low, high = mean - mean_2 - half, mean - mean_2 + half
            difference = best.mean - other.mean
            tests.append(BestArmTest(best.label, other.label, difference, low, high))
    return min(tests, key=lambda test: test.low)


def _shrunk(row: ArmEstimate, binary: bool) -> tuple[float, float]:
    if not binary:
        return row.mean, row.error
    rows = row.effective + 2
    share = (row.mean * row.effective + 1) / rows
    return share, math.sqrt(share * (1 - share) / rows)


def estimate_weighted_arms(
    labels: list[str],
    arms: np.ndarray,
    rewards: np.ndarray,
    propensities: np.ndarray,
    participants: np.ndarray | None = None,
) -> list[WeightedArmEstimate]:
    """Inverse propensity estimates, plain (IPS) and self-normalised (SNIPS).

    The intervals of rewards 0 and 1 are Wilson's, also for an arm without a success.
    """
    binary = is_binary(rewards)
    rows = []
    for i, label in enumerate(labels):
        played = arms == i
        weights = np.where(played, 1 / propensities, 0.0)
        mine = None if participants is None else participants[played]
        row = estimate_arm(label, rewards[played], weights[played], mine)
        terms = weights * rewards
        ips, error = float(terms.mean()), _mean_error(terms, participants)
        low, high = ips - NORMAL_REACH * error, ips + NORMAL_REACH * error
        if binary:
            low, high = _weighted_wilson_interval(terms, weights, error)
        rows.append(
            WeightedArmEstimate(
                label,
                float(weights.sum() ** 2 / (weights**2).sum()),
                *(ips, low, high),
                *(row.mean, row.low, row.high),
                float(weights.mean()),
                _mean_error(weights, participants),
            )
        )
    return rows


def clustered_root(offsets: np.ndarray, participants: np.ndarray | None) -> float:
    """Root of the sum of squares, after offsets of one participant are summed."""
    sums = offsets if participants is None else np.bincount(participants, weights=offsets)
    return float(np.sqrt((sums**2).sum()))


def _mean_error(values: np.ndarray, participants: np.ndarray | None) -> float:
    return clustered_root(values - values.mean(), participants) / values.size


def _weighted_wilson_interval(
    terms: np.ndarray, weights: np.ndarray, error: float
) -> tuple[float, float]:
    """Wilson's interval for the mean of weighted rewards 0 and 1.

    It treats all successes as having one weight, and is exact if they do.

    >>> low, high = _weighted_wilson_interval(np.zeros(42), np.full(42, 2.0), 0.0)
    >>> low, round(high, 3)
    (0.0, 0.168)
    """
    values = terms if terms.any() else weights
    unit = float((values**2).sum() / values.sum())
    share = float(terms.mean()) / unit
    variance = share * (1 - share) * unit**2
    rows = min(variance / error**2, terms.size) if error > 0 and variance > 0 else terms.size
    low, high = wilson_interval(share, rows)
    return unit * low, unit * high
