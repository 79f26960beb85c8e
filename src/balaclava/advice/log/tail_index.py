"""How fast large rewards become rare."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from balaclava.simulation.analysis.statistics import NORMAL_REACH


@dataclass(frozen=True)
class TailIndex:
    """How fast large rewards become rare: P(|X| > x) falls like x^-index."""

    index: float
    low: float  # of the 95 % confidence interval
    high: float
    used: int  # of the largest rewards


def hill_estimate(rewards: np.ndarray) -> TailIndex | None:
    """Hill's estimate of the tail index of |X|; None where too few rewards are not 0.

    One over the mean of log(X_i / X_(k+1)) over the k largest. Its standard error is index /
    sqrt(k), which takes the tail beyond X_(k+1) to be a power law: read it as a rough figure.

    Example:
        >>> law = np.random.default_rng(1).pareto(2.5, 100_000) + 1
        >>> tail = hill(law)
        >>> tail.low < 2.5 < tail.high, tail.used
        (True, 632)
    """
    sizes = np.sort(np.abs(rewards))[::-1]
    used = min(max(int(2 * math.sqrt(sizes.size)), 10), sizes.size // 4)
    if used < 5 or sizes[used] <= 0:
        return None
    mean = float(np.log(sizes[:used] / sizes[used]).mean())
    if mean <= 0:  # the largest are all alike: no tail at all
        return None
    index = 1 / mean
    reach = NORMAL_REACH * index / math.sqrt(used)
    return TailIndex(index, max(index - reach, 0.0), index + reach, used)
