"""Lower bounds on epsilon from samples of two neighbouring inputs."""

import math
from typing import NamedTuple

import numpy as np

from balaclava._core.extras import require_extra
from balaclava.simulation.analysis.statistics import clopper_pearson

# The probability that an audit calls a claim violated that holds.
VIOLATION_ERROR = 1e-4
_OVERFLOW_EPSILON = 700.0  # exp() of more overflows a 64-bit float
_STAKES = np.linspace(0.01, 0.99, 99)  # shares of the largest allowed stake; a guess


def epsilon_lower(
    left: np.ndarray | int,
    right: np.ndarray | int,
    trials: np.ndarray | int,
    delta: float,
    error: float,
    right_trials: np.ndarray | int | None = None,
) -> np.ndarray:
    """A lower bound on epsilon from the counts of an event on two neighbouring streams.

    (epsilon, delta)-privacy means P(left) <= e^epsilon P(right) + delta. With each probability
    bounded at error/2 (Clopper, Pearson), the bound fails with probability at most `error`.
    `right_trials` is by default `trials`.
    """
    low, _ = clopper_pearson(left, trials, error / 2)
    _, high = clopper_pearson(right, trials if right_trials is None else right_trials, error / 2)
    with np.errstate(divide="ignore", invalid="ignore"):
        epsilon = np.log((low - delta) / high)
    return np.where(low > delta, np.maximum(epsilon, 0.0), 0.0)


def cautious_log_ratio(
    p: np.ndarray,
    q: np.ndarray,
    delta: float,
    deviations: float,
    p_trials: np.ndarray | float = 1.0,
    q_trials: np.ndarray | float = 1.0,
) -> np.ndarray:
    """log((p - delta) / q), less some of its standard deviations by the normal approximation.

    It estimates `epsilon_lower`, to rank events. Without numbers of trials, a deviation is that of
    one trial.
    """
    deviation = np.sqrt((1 - p) * p / (p_trials * (p - delta) ** 2) + (1 - q) / (q * q_trials))
    with np.errstate(divide="ignore", invalid="ignore"):
        value: np.ndarray = np.log((p - delta) / q) - deviations * deviation
    return value


class ThresholdEvent(NamedTuple):
    """The event that a value is at least (or at most) a threshold."""

    side: int  # the sample, 0 or 1, in which it is likelier
    at_least: bool
    threshold: float

    def __str__(self) -> str:
        return f"{'at least' if self.at_least else 'at most'} {self.threshold:.4g}"

    def bound(self, samples: list[np.ndarray], delta: float, error: float) -> float:
        """The lower bound on epsilon that the event gives on new samples of equal size."""
        likely, unlikely = (
            count_beyond(samples[side], np.array([self.threshold]), self.at_least)
            for side in (self.side, 1 - self.side)
        )
        size = samples[0].size
        return float(epsilon_lower(likely, unlikely, size, delta, error)[0])


def best_threshold(
    samples: list[np.ndarray], thresholds: int, delta: float, error: float
) -> ThresholdEvent:
    """The quantile that distinguishes two samples of equal size best, as a threshold.

    Measure it on other samples: the best of many events is partly luck.
    """
    grid = np.unique(np.quantile(np.concatenate(samples), np.linspace(0, 1, thresholds)))
    best = (-1.0, ThresholdEvent(0, True, float(grid[0])))
    for at_least in (True, False):
        counts = [count_beyond(sample, grid, at_least) for sample in samples]
        for side in (0, 1):
            bounds = epsilon_lower(counts[side], counts[1 - side], samples[0].size, delta, error)
            i = int(bounds.argmax())
            best = max(best, (float(bounds[i]), ThresholdEvent(side, at_least, float(grid[i]))))
    return best[1]


def count_beyond(sample: np.ndarray, thresholds: np.ndarray, at_least: bool) -> np.ndarray:
    """Number of values that are at least (or at most) each threshold."""
    ordered = np.sort(sample)
    if at_least:
        return ordered.size - np.searchsorted(ordered, thresholds, side="left")
    return np.searchsorted(ordered, thresholds, side="right")


def log_wealth(counts: np.ndarray, epsilon: float, delta: float) -> float:
    """The logarithm of the wealth of a bettor against (epsilon, delta) who began with 1.

    counts[x, y] is the number of pairs of independent games with the event x times on the left and
    y times on the right stream. If the claim holds, X - e^epsilon Y - delta has a mean of at most
    0. Then 1 + stake (X - e^epsilon Y - delta) is at most 1 on average for every stake that keeps
    it positive. So the wealth, averaged over a fixed grid of stakes, ever exceeds 1/error with
    probability at most `error` (Ville).
    """
    require_extra("scipy", "an audit")
    from scipy.special import logsumexp

    if epsilon > _OVERFLOW_EPSILON:  # no bet against such a claim can win
        return 0.0
    stakes = _STAKES / (math.exp(epsilon) + delta)
    gains = np.zeros_like(stakes)
    for x in (0, 1):
        for y in (0, 1):
            gain = np.log1p(stakes * (x - math.exp(epsilon) * y - delta))
            gains += float(counts[x, y]) * gain
    return float(logsumexp(gains) - math.log(stakes.size))
