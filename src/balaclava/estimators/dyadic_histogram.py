"""Noisy histograms on signed powers of two, from which truncation levels are chosen.

The k-th bin on a side holds 2^(k-1-64) < |x| <= 2^(k-64), the middle bin smaller numbers. `shares`
is the fraction of rewards in each bin, with Laplace noise of scale `grain`.
"""

import math

import numpy as np

from balaclava._core.kernels import kernel

# Bins on each side of 0: magnitudes from 2^-64 to 2^64. More cost noise in empty bins.
SIDE = 128
BINS = 2 * SIDE + 1
# Thresholds above which a bin counts as occupied, in noise scales. Guesses, except for the first.
# A bin far from all occupied ones: noise exceeds it in less than 0.1 % of histograms.
ISOLATED_BIN = math.log(BINS) + 10.0
# A bin next to an occupied one, and the increase for each bin between.
ADJACENT_BIN = 6.0
EXTRA_PER_GAP = 1.0
# Noise scales of mass that the bin after the last occupied one may hold undetected. A guess.
HIDDEN_MASS = 1.0
# Mean and variance of x uniform on (1/2, 1].
BIN_MEAN = 3.0 / 4.0
BIN_VARIANCE = 1.0 / 48.0


@kernel(borrows=True)
def bin_index(x: float) -> int:
    fraction, exponent = math.frexp(abs(x))
    if fraction == 0.5:  # a power of two belongs to the bin below
        exponent -= 1
    size = min(max(exponent + SIDE // 2, 0), SIDE) if x != 0.0 else 0
    return SIDE + size if x > 0.0 else SIDE - size


@kernel(borrows=True)
def bin_limit(k: int) -> float:
    """The largest |x| of the k-th bin from the middle."""
    return math.ldexp(1.0, k - SIDE // 2)


@kernel(borrows=True)
def fullest(shares: np.ndarray, grain: float) -> int:
    """Distance of the fullest bin from the middle, or -1 if none exceeds the noise."""
    best = 0
    for i in range(BINS):
        if shares[i] > shares[best]:
            best = i
    return abs(best - SIDE) if shares[best] > ISOLATED_BIN * grain else -1


@kernel(borrows=True)
def last_seen(shares: np.ndarray, grain: float, side: int, start: int) -> int:
    """The farthest occupied bin on a side (1 or -1), or 0; the fullest is at `start`."""
    near, last = start, 0
    for k in range(1, SIDE + 1):
        needed = min(ADJACENT_BIN + EXTRA_PER_GAP * max(k - near - 1, 0), ISOLATED_BIN)
        if shares[SIDE + side * k] > needed * grain:
            near, last = max(near, k), k
    return last


@kernel(borrows=True)
def end_tail(shares: np.ndarray, grain: float, side: int, last: int) -> None:
    """Empty the bins beyond the last occupied one, but for hidden mass in the next."""
    for k in range(1, SIDE + 1):
        i = SIDE + side * k
        shares[i] = max(shares[i], 0.0)
        if last == 0 or k > last + 1:
            shares[i] = 0.0
        elif k >= last:
            shares[i] += HIDDEN_MASS * grain


@kernel(borrows=True)
def denoise(shares: np.ndarray, grain: float, centred: bool) -> bool:
    """Remove the noise of empty bins in place; return False if no bin exceeds the noise.

    `centred` says that rewards lie on both sides of 0.
    """
    start = fullest(shares, grain)
    if start < 0:
        return False
    up, down = last_seen(shares, grain, 1, start), last_seen(shares, grain, -1, start)
    # Truncating undetected large rewards would hide a good arm permanently.
    end_tail(shares, grain, 1, max(up, start))
    end_tail(shares, grain, -1, max(down, start) if centred else down)
    shares[SIDE] = max(shares[SIDE], 0.0)
    return True


@kernel(borrows=True)
def cut_level(shares: np.ndarray, side: int, part: float) -> float:
    """Lowest level that truncates at most `part` of the side's mean; 0 if the side is empty."""
    mean = 0.0
    for k in range(1, SIDE + 1):
        mean += BIN_MEAN * bin_limit(k) * shares[SIDE + side * k]
    if mean == 0.0:
        return 0.0
    beyond, weight = 0.0, 0.0
    for k in range(SIDE, 1, -1):
        weight += shares[SIDE + side * k]
        beyond += BIN_MEAN * bin_limit(k) * shares[SIDE + side * k]
        if beyond - bin_limit(k - 1) * weight > part * mean:
            return bin_limit(k)
    return bin_limit(1)


@kernel(borrows=True)
def clipped_mean(shares: np.ndarray, low: float, high: float) -> float:
    """Mean of the numbers, clipped to [-low, high]."""
    mean = 0.0
    for k in range(1, SIDE + 1):
        x = BIN_MEAN * bin_limit(k)
        mean += shares[SIDE + k] * min(x, high) - shares[SIDE - k] * min(x, low)
    return mean


@kernel(borrows=True)
def clipped_variance(shares: np.ndarray, low: float, high: float) -> float:
    """Variance of the numbers, clipped to [-low, high]; at least the variance within bins."""
    square, within, mean = 0.0, 0.0, clipped_mean(shares, low, high)
    for k in range(1, SIDE + 1):
        x = BIN_MEAN * bin_limit(k)
        above, below = shares[SIDE + k], shares[SIDE - k]
        square += above * min(x, high) ** 2 + below * min(x, low) ** 2
        within += BIN_VARIANCE * (above * min(bin_limit(k), high) ** 2)
        within += BIN_VARIANCE * (below * min(bin_limit(k), low) ** 2)
    return max(square - mean * mean, 0.0) + within
