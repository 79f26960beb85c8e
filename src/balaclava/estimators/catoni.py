"""Catoni's M-estimator of a mean (Catoni 2012), as in Bubeck, Cesa-Bianchi, Lugosi 2013."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from balaclava._core.kernels import kernel
from balaclava.estimators.sample_pool import CHUNK, SamplePool, append, begin_pool

_SMALL_STEP = 1e-6  # in units of 1/a; see catoni_root
_MANY_STEPS = 1100  # halvings that take any pair of floats to the same place
_FAR = 1e75  # samples further off than this, in units of 1/a, count as this far: keeps x^2 finite
_BIG = 1e150


class Catoni(NamedTuple):
    """All samples, their range, and what each arm's last estimate was made of."""

    samples: SamplePool
    low: np.ndarray  # the smallest sample, by arm
    high: np.ndarray  # the largest
    solved: np.ndarray  # samples of the last estimate
    solved_at: np.ndarray  # log t of the last estimate


@kernel
def begin_catoni(arms: int, horizon: int) -> Catoni:
    """No samples."""
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
    """Whether n or log t has grown by more than the share `refresh` since the last estimate."""
    share = 1.0 + refresh
    return bool(count > share * state.solved[arm] or log_t > share * state.solved_at[arm])


@kernel(borrows=True)
def catoni_mean(
    state: Catoni, arm: int, count: int, log_t: float, variance: float, start: float
) -> float:
    """The root m of sum psi(a (X_i - m)) = 0, looked for from `start`; needs n > 4 log t."""
    state.solved[arm] = count
    state.solved_at[arm] = log_t
    low, high = float(state.low[arm]), float(state.high[arm])
    a = catoni_scale(count, log_t, variance)
    return catoni_root(state.samples, arm, count, a, low, high, float(start))


@kernel(borrows=True)
def catoni_scale(count: int, log_t: float, variance: float) -> float:
    """a = sqrt(4 log t / (n (w + 4 w log t / (n - 4 log t)))): the one for delta = 1/t^2."""
    rest = count - 4.0 * log_t
    return math.sqrt(4.0 * log_t / (count * (variance + 4.0 * variance * log_t / rest)))


@kernel(borrows=True)
def catoni_root(
    samples: SamplePool, arm: int, count: int, a: float, low: float, high: float, start: float
) -> float:
    """Newton's method, kept between the samples by halving.

    |psi''| < psi'/3, so a step of s (in units of 1/a) leaves an error below s^2/3: the step that
    is small enough to be the last leaves less than 1e-12.
    """
    m = min(max(start, low), high)
    for _ in range(_MANY_STEPS):
        total, slope = _influence(samples, arm, count, a, m)
        if total > 0.0:
            low = m
        else:
            high = m
        following = m + total / (slope * a)
        if low <= following <= high:
            last = abs(following - m) * a <= _SMALL_STEP
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

    Logarithms are slow: the arguments are multiplied, and one logarithm taken of many.
    """
    total, slope = 0.0, 0.0
    above, below = 1.0, 1.0
    chunk = samples.first[arm]
    left = count
    while left > 0:
        for i in range(min(left, CHUNK)):
            x = a * (float(samples.values[chunk, i]) - m)
            size = min(abs(x), _FAR)
            growth = 1.0 + size + 0.5 * size * size
            slope += (1.0 + size) / growth
            if x > 0.0:
                above *= growth
                if above > _BIG:
                    total += math.log(above)
                    above = 1.0
            else:
                below *= growth
                if below > _BIG:
                    total -= math.log(below)
                    below = 1.0
        left -= CHUNK
        chunk = samples.following[chunk]
    return total + math.log(above) - math.log(below), slope
