"""Catoni's M-estimator of a mean (Catoni 2012), as in Bubeck, Cesa-Bianchi, Lugosi 2013."""

import math
from typing import NamedTuple

import numpy as np

from balaclava._core.kernels import kernel
from balaclava.estimators.sample_pool import CHUNK, SamplePool, append, begin_pool

# Newton step, in units of 1/a, that ends the search: it leaves an error below 1e-12 (catoni_root).
_LAST_CATONI_STEP = 1e-6
# Steps at most: a guard for bisection over the range of floats.
_MOST_CATONI_STEPS = 1100
# In units of 1/a: larger distances count as this one, so that x^2 and products stay finite.
_FARTHEST_SAMPLE = 1e75
# Products above it are replaced by their logarithm; one more factor, 5e149 at most, is finite.
_LARGEST_PRODUCT = 1e150


class Catoni(NamedTuple):
    """All samples, their range, and the data of each arm's last estimate."""

    samples: SamplePool
    low: np.ndarray  # the smallest sample, by arm
    high: np.ndarray  # the largest
    solved: np.ndarray  # number of samples of the last estimate
    solved_at: np.ndarray  # log t of the last estimate


@kernel
def begin_catoni(arms: int, horizon: int) -> Catoni:
    return Catoni(
        samples=begin_pool(arms, horizon),
        low=np.full(arms, math.inf),
        high=np.full(arms, -math.inf),
        solved=np.zeros(arms, np.int64),
        solved_at=np.zeros(arms),
    )


@kernel(borrows=True)
def learn_catoni(state: Catoni, arm: int, count: int, value: float) -> None:
    """Add a sample to the `count` samples of the arm."""
    append(state.samples, arm, count, value)
    state.low[arm] = min(state.low[arm], value)
    state.high[arm] = max(state.high[arm], value)


@kernel(borrows=True)
def is_due(state: Catoni, arm: int, count: int, log_t: float, refresh: float) -> bool:
    """Whether n or log t has grown by a factor above 1 + `refresh` since the last estimate."""
    share = 1.0 + refresh
    return bool(count > share * state.solved[arm] or log_t > share * state.solved_at[arm])


@kernel(borrows=True)
def catoni_mean(
    state: Catoni, arm: int, count: int, log_t: float, variance: float, start: float
) -> float:
    """The root m of sum psi(a (X_i - m)) = 0, searched from `start`; needs n > 4 log t."""
    state.solved[arm] = count
    state.solved_at[arm] = log_t
    low, high = float(state.low[arm]), float(state.high[arm])
    a = catoni_scale(count, log_t, variance)
    return catoni_root(state.samples, arm, count, a, low, high, float(start))


@kernel(borrows=True)
def catoni_scale(count: int, log_t: float, variance: float) -> float:
    """a = sqrt(4 log t / (n (w + 4 w log t / (n - 4 log t)))), for delta = 1/t^2."""
    rest = count - 4.0 * log_t
    return math.sqrt(4.0 * log_t / (count * (variance + 4.0 * variance * log_t / rest)))


@kernel(borrows=True)
def catoni_root(
    samples: SamplePool, arm: int, count: int, a: float, low: float, high: float, start: float
) -> float:
    """Newton's method with bisection, between the least and the largest sample.

    |psi''| < psi'/3, so a step of s (in units of 1/a) leaves an error below s^2/3, that is below
    1e-12 at the last step.
    """
    m = min(max(start, low), high)
    for _ in range(_MOST_CATONI_STEPS):
        total, slope = _influence(samples, arm, count, a, m)
        if total > 0.0:
            low = m
        else:
            high = m
        following = m + total / (slope * a)
        if low <= following <= high:
            last = abs(following - m) * a <= _LAST_CATONI_STEP
        else:
            following = 0.5 * low + 0.5 * high
            last = following == m
        m = following
        if last:
            break
    return m


@kernel(borrows=True)
def _influence(
    samples: SamplePool, arm: int, count: int, a: float, m: float
) -> tuple[float, float]:
    """The sums of psi(x) = sign(x) log(1 + |x| + x^2/2) and of psi'(x) over x = a (X_i - m).

    Logarithms are slow, so it takes one of the product of many arguments.
    """
    total, slope = 0.0, 0.0
    above, below = 1.0, 1.0
    chunk = samples.first[arm]
    left = count
    while left > 0:
        for i in range(min(left, CHUNK)):
            x = a * (float(samples.values[chunk, i]) - m)
            size = min(abs(x), _FARTHEST_SAMPLE)
            growth = 1.0 + size + 0.5 * size * size
            slope += (1.0 + size) / growth
            if x > 0.0:
                above *= growth
                if above > _LARGEST_PRODUCT:
                    total += math.log(above)
                    above = 1.0
            else:
                below *= growth
                if below > _LARGEST_PRODUCT:
                    total -= math.log(below)
                    below = 1.0
        left -= CHUNK
        chunk = samples.following[chunk]
    return total + math.log(above) - math.log(below), slope
