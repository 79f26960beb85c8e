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

Late and lost rewards.
    The tables assume that the centre of batch m has the radius r_m of the estimate before it. If
    rewards are late, several batches are open, and a batch opens with an older centre, whose radius
    is r_m + d. Its level is then B' = B + k d, with k = max(2, p / (p - 1)), and the proof holds
    with psi and l of the table and x = theta B'', B'' = B + (k + 1) d. So n_j x_j / B_j falls by
    the factor f_j = B'' / B.

    Let c* lie between c and mu, with |c - c*| <= d and |c* - mu| <= r_m, and write X for X - c*.
    The estimate has Z = X if |X + c* - c| <= B', otherwise Z = c - c*. So |Z| <= B' + d = B'', and
    where X is cut off, |X| > a = B + (k - 1) d >= |Z|. Let h be the part of E|X|^p that is not cut
    off. The mean moves by at most (s^p - h) a^(-p) (a + d) <= (s^p - h) B^(1-p), as
    (1 + t)^p >= 1 + p t for t = (k - 1) d / B. With z = theta Z and p <= 2, E e^z - 1 - theta mu is
    at most B^(-p) max(x, e^x - 1 - x) times

        (s^p - h) (1 / f + (d B / (a B''))^p) + h f^(-p) <= s^p,

    since d B / (a B'') <= d / (B f) and 1 + d / B <= f. For p > 2, E Z^2 <= s^2. Outliers and noise
    are not larger than before either, in units of B''.

    If a share q of the batch's rewards arrives, n_j falls to q n_j. So for each row r of the table,
    with its own x_1, x_2, ...,

        R = (sum of (q_j n_j psi_j + l) + L) / (sum of q_j n_j x_j / (f_j B_j))

    over the released batches j. B'_j and f_j are fixed when batch j opens, by the radius of the
    centre that it has. For a fixed row, exp(the exponents of the released batches) is a
    supermartingale that starts at 1, in any order of their releases. By Ville's inequality all
    its radii hold together with probability 1 - exp(-L), and L counts the rows. So the row with the
    least R may be chosen.

    If batches count in the order in which they opened, arrivals may depend on rewards, unless some
    are lost (`confidence_sequences`). So a centre is the estimate from the batches before the first
    one that is still open.
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
    errors: np.ndarray  # radius of the centre that the level assumes; 0 with a raw moment
    # [r, j]: for row r and batch j, as shares of row r's sums over the batches j <= r
    shares: np.ndarray  # n x / B: the weight of batch j in the estimate
    costs: np.ndarray  # the part of F that grows with the number of rewards
    draws: np.ndarray  # the part of F due to one draw of noise
    logs: np.ndarray  # [r]: L


class Exponents(NamedTuple):
    """F(x) and n x / B on the grid of x, for one level or several."""

    cost: np.ndarray
    gain: np.ndarray
    draw: np.ndarray  # [x]: the part of F due to one draw of noise


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
    draw = 0.0 * noise if premises.local else noise
    return Exponents(size * psi + draws * noise, size * x / levels[:, None], draw)


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


def row_parts(
    log: float, batches: list[Exponents], rows: list[tuple[float, list[int]]]
) -> tuple[np.ndarray, ...]:
    """Shares, costs, draws and logs of the rows, each a radius R and the grid points of its x.

    A batch after the row has the x that minimises F - R n x / B.
    """
    parts = np.zeros((3, len(rows), len(rows)))
    logs = np.zeros(len(rows))
    for r, (radius, places) in enumerate(rows):
        later = [int(np.argmin(each.cost[0] - radius * each.gain[0])) for each in batches[r + 1 :]]
        for j, (batch, x) in enumerate(zip(batches, places + later, strict=True)):
            parts[:, r, j] = batch.gain[0, x], batch.cost[0, x] - batch.draw[x], batch.draw[x]
        own = parts[:, r, : r + 1]
        whole = own[1:].sum() + log
        parts[0, r] /= sum(own[0].tolist())
        parts[1:, r] /= whole
        logs[r] = log / whole
    return (*parts, logs)


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
    levels, errors, radii = np.zeros(batches + 1), np.zeros(batches + 1), np.zeros(batches)
    earlier: list[Exponents] = []
    rows: list[tuple[float, list[int]]] = []
    for m, size in enumerate(sizes):
        errors[m:], scale = error, premises.scale + error
        grid = level_grid(premises, scale, sum(sizes[: m + 1]))
        new = exponents(premises, scale, size, grid)
        radius, (*places, level, place) = least_radius(log, earlier, new)
        rows.append((radius, [*places, place]))
        earlier.append(
            Exponents(new.cost[level : level + 1], new.gain[level : level + 1], new.draw)
        )
        # A smaller radius needs less noise and allows more bias: the level takes half of the
        # saving, on a log scale. It stays above `scale`: all rewards may be as large as that.
        levels[m] = min(grid[level], scale + spared * (grid[level] - scale))
        step = grid_step(grid[level]) if premises.local else exact_step(grid[level], float(size))
        radii[m] = radius_scale * (radius * _ROUNDING_FACTOR + step)
        if central and radii[m] < error:
            error = float(radii[m])
    levels[-1] = levels[-2]
    sizes.append(_ENDLESS_BATCH)
    steps = [exact_step(level, float(size)) for level, size in zip(levels, sizes, strict=True)]
    batch_schedule = Schedule(
        np.array(sizes), levels, np.array(steps), radii, errors, *row_parts(log, earlier, rows)
    )
    for array in batch_schedule:
        array.flags.writeable = False  # shared by all policies with the same parameters
    return batch_schedule
