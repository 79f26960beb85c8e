"""The tail index of rewards: how fast large ones become rare."""

import math
from dataclasses import dataclass

import numpy as np

from balaclava.simulation.analysis.statistics import NORMAL_REACH

MOMENT_ORDERS = (1.05, 2.0)  # least and largest that policies are given: theorems need (1, 2]
MOMENT_ORDER_PER_INDEX = 0.95  # order of the moment per tail index; at 1 it is infinite


@dataclass(frozen=True)
class TailIndex:
    """An estimate of the index in P(|X| > x) ~ x^-index."""

    index: float
    low: float  # of the 95 % confidence interval
    high: float
    used: int  # number of the largest rewards behind it

    def describe(self, digits: str) -> str:
        """The estimate in words, its numbers in the format `digits`."""
        index, low, high = (format(each, digits) for each in (self.index, self.low, self.high))
        return (
            f"tail index {index}, 95 % confidence interval {low} to {high} (Hill, the {self.used} "
            "largest)"
        )


def hill_estimate(rewards: np.ndarray) -> TailIndex | None:
    """Hill's estimate of the tail index of |X|; None if too few rewards differ from 0.

    One over the mean of log(X_i / X_(k+1)) over the k largest. Its standard error, index / sqrt(k),
    assumes a power law beyond X_(k+1): a rough figure.

    Example:
        >>> law = np.random.default_rng(1).pareto(2.5, 100_000) + 1
        >>> tail = hill_estimate(law)
        >>> tail.low < 2.5 < tail.high, tail.used
        (True, 632)
    """
    sizes = np.sort(np.abs(rewards))[::-1]
    used = min(max(int(2 * math.sqrt(sizes.size)), 10), sizes.size // 4)
    if used < 5 or sizes[used] <= 0:
        return None
    mean = float(np.log(sizes[:used] / sizes[used]).mean())
    if mean <= 0:  # the largest are equal: there is no tail
        return None
    index = 1 / mean
    reach = NORMAL_REACH * index / math.sqrt(used)
    return TailIndex(index, max(index - reach, 0.0), index + reach, used)


def round_up_two_digits(moment: float) -> float:
    """The next number with two significant digits.

    >>> round_up_two_digits(0.1234)
    0.13
    """
    step = 10.0 ** (math.floor(math.log10(moment)) - 1)
    return float(f"{math.ceil(moment / step) * step:.2g}")
