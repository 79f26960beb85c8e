"""How much privacy loss a number of observed events proves: pure statistics."""

from __future__ import annotations

import math

import numpy as np

from balaclava._core.extras import require_extra
from balaclava.simulation.analysis.statistics import clopper_pearson


def epsilon_lower(
    left: np.ndarray | int,
    right: np.ndarray | int,
    trials: np.ndarray | int,
    delta: float,
    error: float,
    right_trials: np.ndarray | int | None = None,
) -> np.ndarray:
    """A lower bound on epsilon from the counts of an event on two neighbouring streams.

    (epsilon, delta)-privacy means P(left) <= e^epsilon P(right) + delta; with each probability
    bounded at error/2, the bound fails with probability at most `error`. The right stream may have
    been played another number of times.
    """
    low, _ = clopper_pearson(left, trials, error / 2)
    _, high = clopper_pearson(right, trials if right_trials is None else right_trials, error / 2)
    with np.errstate(divide="ignore", invalid="ignore"):
        epsilon = np.log((low - delta) / high)
    return np.where(low > delta, np.maximum(epsilon, 0.0), 0.0)


def log_wealth(counts: np.ndarray, epsilon: float, delta: float) -> float:
    """The logarithm of what a bettor against (epsilon, delta) has made of 1.

    counts[x, y] says how often a pair of independent games gave the event x times on the left and
    y times on the right stream. If the claim holds, X - e^epsilon Y - delta has a mean of at most
    0, so 1 + stake (X - e^epsilon Y - delta) is on average at most 1 for every stake that keeps it
    positive, and the wealth, averaged over a fixed grid of stakes, exceeds 1/error at any time
    whatever with probability at most `error` (Ville).
    """
    require_extra("scipy", "an audit")
    from scipy.special import logsumexp

    if epsilon > 700:  # e^epsilon overflows; nothing can be won against such a claim
        return 0.0
    worst = math.exp(epsilon) + delta
    stakes = np.linspace(0.01, 0.99, 99) / worst
    gains = np.zeros_like(stakes)
    for x in (0, 1):
        for y in (0, 1):
            gain = np.log1p(stakes * (x - math.exp(epsilon) * y - delta))
            gains += float(counts[x, y]) * gain
    return float(logsumexp(gains) - math.log(stakes.size))
