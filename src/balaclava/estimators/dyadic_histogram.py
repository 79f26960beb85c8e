"""Histograms on signed powers of two, with noise: where rewards are, and where to cut them off.

The k-th bin on a side has 2^(k-1-64) < |x| <= 2^(k-64), the middle one what is less. `shares` is
the part of some rewards in each bin, with Laplace noise of scale `grain`.
"""

from __future__ import annotations

import math

import numpy as np

from balaclava._core.kernels import kernel

SIDE = 128  # bins on each side of 0
BINS = 2 * SIDE + 1
# In scales of its noise, what a bin has if it is not empty: FAR of all others, which noise does
# less than once in a thousand histograms; next to a bin that is not empty NEAR, and AWAY more for
# every bin between.
FAR = math.log(BINS) + 10.0
NEAR = 6.0
AWAY = 1.0
HIDDEN = 1.0  # scales of noise that the bin after the last one seen may hold unseen
BIN_MEAN = 3.0 / 4.0  # mean of x for x uniform on (1/2, 1]
BIN_VARIANCE = 1.0 / 48.0  # and its variance


@kernel(borrows=True)
def bin_of(x: float) -> int:
    """The bin of a number: 0 in the middle, the largest at the ends."""
    fraction, exponent = math.frexp(abs(x))
    if fraction == 0.5:  # a power of two is the largest of its bin
        exponent -= 1
    size = min(max(exponent + SIDE // 2, 0), SIDE) if x != 0.0 else 0
    return SIDE + size if x > 0.0 else SIDE - size


@kernel(borrows=True)
def size_of(k: int) -> float:
    """The largest |x| of the k-th bin from the middle."""
    return math.ldexp(1.0, k - SIDE // 2)


@kernel(borrows=True)
def fullest(shares: np.ndarray, grain: float) -> int:
    """How far from the middle the fullest bin is, or -1 where none stands out of the noise."""
    best = 0
    for i in range(BINS):
        if shares[i] > shares[best]:
            best = i
    return abs(best - SIDE) if shares[best] > FAR * grain else -1


@kernel(borrows=True)
def last_seen(shares: np.ndarray, grain: float, side: int, start: int) -> int:
    """The furthest bin on a side (1 or -1) that is not empty, or 0; the fullest is at `start`."""
    near, last = start, 0
    for k in range(1, SIDE + 1):
        needed = min(NEAR + AWAY * max(k - near - 1, 0), FAR)
        if shares[SIDE + side * k] > needed * grain:
            near, last = max(near, k), k
    return last


@kernel(borrows=True)
def end_tail(shares: np.ndarray, grain: float, side: int, last: int) -> None:
    """Beyond the last bin that was seen, keep what the noise may hide in the next one."""
    for k in range(1, SIDE + 1):
        i = SIDE + side * k
        shares[i] = max(shares[i], 0.0)
        if last == 0 or k > last + 1:
            shares[i] = 0.0
        elif k >= last:
            shares[i] += HIDDEN * grain


@kernel(borrows=True)
def smooth(shares: np.ndarray, grain: float, centred: bool) -> bool:
    """Take the noise out of a histogram as well as can be; False: nothing stands out of it.

    `centred`: rewards lie on both sides of 0.
    """
    start = fullest(shares, grain)
    if start < 0:
        return False
    up, down = last_seen(shares, grain, 1, start), last_seen(shares, grain, -1, start)
    # Cutting off unseen gains would hide a good arm for good.
    end_tail(shares, grain, 1, max(up, start))
    end_tail(shares, grain, -1, max(down, start) if centred else down)
    shares[SIDE] = max(shares[SIDE], 0.0)
    return True


@kernel(borrows=True)
def cut_level(shares: np.ndarray, side: int, part: float) -> float:
    """The lowest level that cuts off no more than this part of the side's mean; 0: it is empty."""
    mean = 0.0
    for k in range(1, SIDE + 1):
        mean += BIN_MEAN * size_of(k) * shares[SIDE + side * k]
    if mean == 0.0:
        return 0.0
    beyond, weight = 0.0, 0.0
    for k in range(SIDE, 1, -1):
        weight += shares[SIDE + side * k]
        beyond += BIN_MEAN * size_of(k) * shares[SIDE + side * k]
        if beyond - size_of(k - 1) * weight > part * mean:
            return size_of(k)
    return size_of(1)


@kernel(borrows=True)
def mean_of(shares: np.ndarray, low: float, high: float) -> float:
    """Of numbers moved into [-low, high]."""
    mean = 0.0
    for k in range(1, SIDE + 1):
        x = BIN_MEAN * size_of(k)
        mean += shares[SIDE + k] * min(x, high) - shares[SIDE - k] * min(x, low)
    return mean


@kernel(borrows=True)
def variance_of(shares: np.ndarray, low: float, high: float) -> float:
    """Of numbers moved into [-low, high]; never less than that within the bins."""
    square, within, mean = 0.0, 0.0, mean_of(shares, low, high)
    for k in range(1, SIDE + 1):
        x = BIN_MEAN * size_of(k)
        above, below = shares[SIDE + k], shares[SIDE - k]
        square += above * min(x, high) ** 2 + below * min(x, low) ** 2
        within += BIN_VARIANCE * (above * min(size_of(k), high) ** 2)
        within += BIN_VARIANCE * (below * min(size_of(k), low) ** 2)
    return max(square - mean * mean, 0.0) + within
