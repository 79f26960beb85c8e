"""What a log says of its arms: rows, mean and 95 % interval, and whether the best can be told.

Rows count as independent, unless it is said whose they are, and equally, unless it is said with
which probability each arm was played.
"""

from __future__ import annotations

import math
from statistics import NormalDist
from typing import NamedTuple

import numpy as np

from balaclava.simulation.analysis.statistics import CONFIDENCE, NORMAL_REACH


class ArmEstimate(NamedTuple):
    """An arm in the log. `effective` is how many independent rows would be as good."""

    label: str
    rows: int
    mean: float
    low: float  # of the 95 % interval
    high: float
    error: float  # the standard error
    effective: float


class WeightedArmEstimate(NamedTuple):
    """What an arm would have earned if it alone had been played: rewards weighted by 1 / p."""

    label: str
    effective: float
    ips: float
    ips_low: float
    ips_high: float
    snips: float  # self-normalised
    snips_low: float
    snips_high: float
    total_weight: float  # over the rows of the log: about 1 where the propensities are right
    weight_error: float


class BestArmTest(NamedTuple):
    """The best arm against the next. The interval holds for all arms against the best together."""

    best: str
    next: str
    difference: float
    low: float
    high: float

    @property
    def told(self) -> bool:
        """Whether chance can be excluded."""
        return self.low > 0

    @property
    def sentence(self) -> str:
        """What can be said of the best arm."""
        gap = (
            f"the difference of their averages is {self.difference:.3g}, 95 % interval "
            f"{self.low:.3g} to {self.high:.3g}"
        )
        if self.told:
            return f"The best arm in this log is {self.best!r}; next comes {self.next!r}: {gap}."
        return (
            f"This log does not tell which arm is best: {self.best!r} has the highest average, "
            f"but it cannot be told from {self.next!r}; {gap}."
        )


def estimate_arm(
    label: str, rewards: np.ndarray, weights: np.ndarray | None, people: np.ndarray | None
) -> ArmEstimate:
    """An arm's mean, with the interval for it.

    Wilson's for rewards 0 and 1, normal otherwise. The standard error is that of a weighted mean,
    and rewards of one person, who is given by number, are taken as one.

    >>> row = arm_row("a", np.repeat([1.0, 0.0], [2, 40]), None, None)
    >>> round(row.mean, 3), round(row.low, 3), round(row.high, 3)
    (0.048, 0.013, 0.158)
    """
    weights = np.ones(rewards.size) if weights is None else weights
    mean = float(np.average(rewards, weights=weights))
    offsets = weights * (rewards - mean)
    sums = offsets if people is None else np.bincount(people, weights=offsets)
    error = float(np.sqrt((sums**2).sum()) / weights.sum())
    spread = float(np.average((rewards - mean) ** 2, weights=weights))
    kish = float(weights.sum() ** 2 / (weights**2).sum())
    effective = min(spread / error**2, float(rewards.size)) if error > 0 else kish
    if is_binary(rewards):
        low, high = wilson_interval(mean, effective)
    else:
        few = math.sqrt(rewards.size / max(rewards.size - 1, 1))
        low, high = mean - NORMAL_REACH * few * error, mean + NORMAL_REACH * few * error
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
    return max(centre - reach, 0.0), min(centre + reach, 1.0)


def compare_best_arm(rows: list[ArmEstimate], *, binary: bool) -> BestArmTest:
    """The best arm against the one that is hardest to tell from it.

    Normal intervals, made wider so that all differences from the best hold together; for rewards 0
    and 1 with one success and one failure added to each arm (Agresti and Caffo 2000).
    """
    best = max(rows, key=lambda row: row.mean)
    reach = NormalDist().inv_cdf(1 - (1 - CONFIDENCE) / 2 / max(len(rows) - 1, 1))
    tellings = []
    for other in rows:
        if other is not best:
            (mean, error), (mean_2, error_2) = (_shrunk(row, binary) for row in (best, other))
            half = reach * math.hypot(error, error_2)
            gap = mean - mean_2
            tellings.append(
                BestArmTest(best.label, other.label, best.mean - other.mean, gap - half, gap + half)
            )
    return min(tellings, key=lambda telling: telling.low)


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
    people: np.ndarray | None = None,
) -> list[WeightedArmEstimate]:
    """Inverse propensity weights (IPS), plain and self-normalised, with 95 % intervals.

    The intervals of rewards 0 and 1 are Wilson's, also where an arm has no success.
    """
    binary = is_binary(rewards)
    rows = []
    for i, label in enumerate(labels):
        played = arms == i
        weights = np.where(played, 1 / propensities, 0.0)
        row = estimate_arm(
            label, rewards[played], weights[played], None if people is None else people[played]
        )
        terms = weights * rewards
        ips, error = float(terms.mean()), _error(terms, people)
        low, high = ips - NORMAL_REACH * error, ips + NORMAL_REACH * error
        if binary:
            low, high = _wilson_of_sums(terms, weights, error)
        rows.append(
            WeightedArmEstimate(
                label,
                float(weights.sum() ** 2 / (weights**2).sum()),
                *(ips, low, high),
                *(row.mean, row.low, row.high),
                float(weights.mean()),
                _error(weights, people),
            )
        )
    return rows


def _error(values: np.ndarray, people: np.ndarray | None) -> float:
    """The standard error of a mean over all rows; rows of one person count as one."""
    offsets = values - values.mean()
    sums = offsets if people is None else np.bincount(people, weights=offsets)
    return float(np.sqrt((sums**2).sum())) / values.size


def _wilson_of_sums(terms: np.ndarray, weights: np.ndarray, error: float) -> tuple[float, float]:
    """Wilson's interval for the mean of rewards 0 and 1, each multiplied by its weight.

    As if all successes had one weight, which is exact where they do: then a share is estimated.

    >>> low, high = _wilson_of_sums(np.zeros(42), np.full(42, 2.0), 0.0)
    >>> low, round(high, 3)
    (0.0, 0.168)
    """
    values = terms if terms.any() else weights
    unit = float((values**2).sum() / values.sum())
    share = float(terms.mean()) / unit
    spread = share * (1 - share) * unit**2
    rows = min(spread / error**2, terms.size) if error > 0 and spread > 0 else terms.size
    low, high = wilson_interval(share, rows)
    return unit * low, unit * high
