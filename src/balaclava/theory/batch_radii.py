"""Truncation levels and confidence radii for private means of an arm's batches.

Batch j has n_j new rewards X, truncated to Y = (X - c_j) 1{|X - c_j| <= B_j}. Their sum plus
Lap(2 B_j / epsilon) is released as S_j; under local privacy every Y has its own such noise. The
estimate after batch m is a weighted mean of c_j + S_j / n_j, j <= m. It exceeds the true mean mu by
more than

    R = (sum of F_j(x_j) + L) / (sum of n_j x_j / B_j),    F_j = n_j psi_j + l  (n_j (psi_j + l)),
    psi_j(x) = log((1 - alpha) exp(A) + alpha exp(max(A, x (1 + s_j / B_j)))),
    A(x) = (s_j / B_j)^p max(x, e^x - 1 - x)  for p <= 2,
    A(x) = (s_j / B_j)^p x + (s_j / B_j)^2 (e^x - 1 - x)  for p > 2,
    l(x) = -log(1 - 4 x^2 / epsilon^2)

with probability at most exp(-L), and falls below it likewise. This holds for all numbers B_j > 0
and x_j in [0, epsilon/2) that are fixed beforehand; the weights are n_j x_j / B_j. A share of at
most alpha of the rewards is arbitrary. The others have E|X - c_j|^p <= s_j^p and mean mu.

Proof.
    Write X for X - c_j. Let theta = x / B, and z = theta Y, which is in [-x, x]. For p <= 2,
    e^z - 1 - z <= (e^x - 1 - x) |z / x|^p, as the ratio of the left side to |z|^p is largest at
    z = x. Let h be the part of E|X|^p that is due to |X| <= B. The rest, at most s^p - h, bounds
    B^(p-1) E|X| 1{|X| > B}, the shift of the mean by truncation. Then
    E exp(theta (Y - mu)) <= exp(E e^z - 1 - theta mu) and

        E e^z - 1 - theta mu <= theta (s^p - h) B^(1-p) + (e^x - 1 - x) h B^(-p) <= A(x):

    truncation and chance are never both at their worst. For p > 2, E Y^2 <= s^2 takes the place
    of h. An outlier has theta (Y - mu) <= x + x s / B, as |mu| <= s. It has probability alpha, so
    that E exp(theta (Y - mu)) <= exp(psi). Laplace noise of scale 2B / epsilon has
    log E exp(theta w) = l(x). All draws of all batches are independent, so for the weighted sum
    the exponents add up, and Markov's inequality gives R. The other side is the same for -X.

Each radius is the least over a grid of B_m and x_1, ..., x_m, with B_1, ..., B_{m-1} of earlier
batches. Every choice is valid, so that a coarser grid only makes the radius larger.

With a central moment, E|X - mu|^p <= u, and |mu| <= D, batch 1 has c = 0. The centre moves to the
latest estimate whenever its radius r is the smallest so far. Then (E|X - c|^p)^(1/p) is at most
s = u^(1/p) + r (Minkowski), which tends to u^(1/p). Given the past, c_j is a fixed number. The
proof holds while |c_j - mu| is within its radius; an earlier failure is already counted.
"""

import functools
import math
from typing import NamedTuple

import numpy as np

from balaclava.privacy.exact_noise import grid_step
from balaclava.privacy.mechanisms.truncation import exact_step

# Nats: the first release is off by more than u^(1/p) with probability exp(-8). A guess.
_FIRST_RELEASE_LOG = 8.0
# Points of the grid of levels. Every level is valid; more points give slightly smaller radii.
_LEVEL_POINTS = 240
# Rewards of the last batch: more than any run has, and sums of a few such sizes fit an int64.
_ENDLESS_BATCH = 2**60
# Factor on a radius for the rounding of releases, which is a millionth of the noise.
_ROUNDING_FACTOR = 1 + 2.0**-16
# The positive root of x = e^x - 1 - x, where A gets steeper.
_STEEPER_FROM = 1.2564312086261697


class Premises(NamedTuple):
    """Assumptions on the rewards, and their protection."""

    epsilon: float
    order: float  # p
    scale: float  # u^(1/p)
    contamination: float  # alpha
    mean_range: float | None  # D, if u bounds the central moment
    local: bool  # whether each reward has its own noise


class Schedule(NamedTuple):
    """By batch, from 0. The last size, level and step are those of a batch that never ends."""

    sizes: np.ndarray
    levels: np.ndarray
    steps: np.ndarray  # grid step to which truncated rewards are rounded
    radii: np.ndarray
    shares: np.ndarray  # [m, j]: the weight of batch j in the estimate after batch m
    moves: np.ndarray  # whether the estimate becomes the next centre


class Exponents(NamedTuple):
    """F(x) and n x / B on the grid of x, for one level or several."""

    cost: np.ndarray
    gain: np.ndarray


def breakdown_point(order: float) -> float:
    """Share of outliers above which no level gives a radius below u^(1/p).

    That is, (1 - alpha) b^(1-p) + alpha (b + 1) >= 1 at every level B = b u^(1/p).

    Example:
        >>> round(breakdown_point(2.0), 4)
        0.2
    """
    b = np.geomspace(1.0, 1e3, 4001)
    share = b ** (1.0 - order)
    return float(((1.0 - share) / (b + 1.0 - share)).max())


def exponents(premises: Premises, scale: float, size: int, levels: np.ndarray) -> Exponents:
    """F and n x / B of `size` rewards with (E|X - c|^p)^(1/p) <= scale, by level."""
    x = arguments(premises.epsilon)
    ratio = (scale / levels)[:, None]
    bennett = np.expm1(x) - x
    if premises.order <= 2.0:
        psi = ratio**premises.order * np.maximum(x, bennett)
    else:
        psi = ratio**premises.order * x + ratio**2 * bennett
    if premises.contamination > 0.0:
        worst = np.maximum(psi, x * (1.0 + ratio))
        alpha = premises.contamination
        psi = np.logaddexp(math.log1p(-alpha) + psi, math.log(alpha) + worst)
    noise = -np.log1p(-((2.0 * x / premises.epsilon) ** 2))
    draws = size if premises.local else 1
    return Exponents(size * psi + draws * noise, size * x / levels[:, None])


@functools.lru_cache(maxsize=64)
def arguments(epsilon: float) -> np.ndarray:
    """The grid of x: from 0, which omits a batch, to epsilon/2 or to where A gets steeper."""
    top = min(0.999 * 0.5 * epsilon, _STEEPER_FROM)
    fine = np.geomspace(1e-9, 0.5, 150, endpoint=False), np.linspace(0.5, 1.0, 50)
    return top * np.concatenate([[0.0], *fine])


def least_radius(log: float, earlier: list[Exponents], new: Exponents) -> tuple[float, list[int]]:
    """R, and its grid points: the x of each earlier batch, then the level and x of the new one.

    The least ratio of two sums is the R at which sum F - R sum n x / B + L has the minimum 0, and
    this sum is minimised batch by batch (Dinkelbach 1967).
    """
    alone = (new.cost[:, 1:] + log) / new.gain[:, 1:]
    level, place = divmod(int(np.argmin(alone)), alone.shape[1])
    radius, places = math.inf, [0] * len(earlier) + [level, place + 1]
    while True:
        cost, gain = log + new.cost[places[-2], places[-1]], new.gain[places[-2], places[-1]]
        for batch, x in zip(earlier, places, strict=False):
            cost, gain = cost + batch.cost[0, x], gain + batch.gain[0, x]
        if not cost / gain < radius * (1.0 - 1e-9):
            return float(min(cost / gain, radius)), places
        radius = cost / gain
        places = [int(np.argmin(batch.cost[0] - radius * batch.gain[0])) for batch in earlier]
        places += divmod(int(np.argmin(new.cost - radius * new.gain)), new.cost.shape[1])


def level_grid(premises: Premises, scale: float, pulls: int) -> np.ndarray:
    """A grid of levels that contains about the best one for this many rewards."""
    return scale * np.geomspace(0.5, 4.0 * (8.0 + pulls) ** (1.0 / premises.order), _LEVEL_POINTS)


@functools.lru_cache(maxsize=64)
def first_size(premises: Premises, most: int) -> int:
    """Smallest power of two, from 16 on, at which the radius of one release is u^(1/p)."""
    size = 16
    while size < most:
        grid = level_grid(premises, 1.0, size)
        if least_radius(_FIRST_RELEASE_LOG, [], exponents(premises, 1.0, size, grid))[0] <= 1.0:
            break
        size *= 2
    return max(min(size, most), 1)


@functools.lru_cache(maxsize=64)
def schedule(
    premises: Premises, first: int, horizon: int, failure_probability: float, radius_scale: float
) -> Schedule:
    """Batches of first, first, 2 first, 4 first, ... rewards, as many as fit the horizon.

    With a raw moment, all estimates of an arm are at most a radius below its mean, except with
    `failure_probability`; with a central moment, they are within a radius of it on both sides.
    """
    batches = max(int(math.log2(max(horizon / first, 1.0))) + 1, 1)
    sizes = [first * 2 ** max(m - 1, 0) for m in range(batches)]
    central = premises.mean_range is not None
    log = math.log(max((2 if central else 1) * batches / failure_probability, 2.0))
    error, spared = premises.mean_range or 0.0, math.sqrt(min(radius_scale, 1.0))
    levels, radii = np.zeros(batches + 1), np.zeros(batches)
    shares, moves = np.zeros((batches, batches)), np.zeros(batches, np.bool_)
    earlier: list[Exponents] = []
    for m, size in enumerate(sizes):
        scale = premises.scale + error
        grid = level_grid(premises, scale, sum(sizes[: m + 1]))
        new = exponents(premises, scale, size, grid)
        radius, (*places, level, place) = least_radius(log, earlier, new)
        earlier.append(Exponents(new.cost[level : level + 1], new.gain[level : level + 1]))
        gains = [batch.gain[0, x] for batch, x in zip(earlier, [*places, place], strict=True)]
        shares[m, : m + 1] = np.array(gains) / sum(gains)
        # A smaller radius needs less noise and allows more bias: the level takes half of the
        # saving, on a log scale. It stays above `scale`: all rewards may be as large as that.
        levels[m] = min(grid[level], scale + spared * (grid[level] - scale))
        step = grid_step(grid[level]) if premises.local else exact_step(grid[level], float(size))
        radii[m] = radius_scale * (radius * _ROUNDING_FACTOR + step)
        if central and radii[m] < error:
            error, moves[m] = float(radii[m]), True
    levels[-1] = levels[-2]
    sizes.append(_ENDLESS_BATCH)
    steps = [exact_step(level, float(size)) for level, size in zip(levels, sizes, strict=True)]
    batch_schedule = Schedule(np.array(sizes), levels, np.array(steps), radii, shares, moves)
    for array in batch_schedule:
        array.flags.writeable = False  # shared by all policies with the same parameters
    return batch_schedule
