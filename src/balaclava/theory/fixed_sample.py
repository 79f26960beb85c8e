"""Exact tests and limits for means of fixed samples that were released with noise.

An arm's n rewards are bits of mean p. Their sum is released in k parts, each with its own draw of
Laplace noise of scale b, and x is the total divided by n. Nothing here is a normal approximation.

Laws.
    x is rounded up to a lattice, and so is each draw before it is added: the sum of a binomial law
    and k two-sided geometric laws, by recursions over the lattice. Mass beyond the lattice, or that
    rounding errors lose, counts as +infinity. So the law on the lattice is stochastically larger
    than that of x. 1 - x is the mean of the bits 1 - X with noise of the same law, so the same
    recursions bound x from below.

    Released noise is discrete Laplace on a grid of step g = 2^-20, of a scale s between 1/epsilon
    and (1 + 2 g)/epsilon. Let L be continuous, of the larger scale above 0 and of the smaller one
    below. With r = e^(-g/s)

        P(noise >= j g) = r^j/(1 + r) <= r^(j-1)/2 <= P(L + g >= j g)         for j >= 1,
        P(noise < j g) = r^(1-j)/(1 + r) >= r^(1-j)/2 >= P(L + g < j g)       for j <= 0.

    So noise is stochastically below L + g, and by symmetry above -(L + g).

Limits of one mean.
    The chance of a total of at least x grows with p. The lower limit is the largest p at which it
    is known to be below failure/2: Clopper and Pearson's interval, noise included.

The best of K arms.
    Arm b may be named if it beats every rival a: if q_a <= failure, where q_a is a p-value for "no
    arm is better than a". For a rival with mean v, and another arm with mean u and n' rewards, let
    d = u - v, y = (n v + n' u)/(n + n'), A = 1/n + 1/n' and B the variance of the noise in d. Then

        z(u, v) = d / sqrt(A y (1 - y) + B),    v and y clipped to [0, 1].

    q_a is the chance that some arm has z(u, v) >= t, t that of b, if all arms have the mean of a,
    at worst over the means in an interval that fails with probability gamma; plus gamma (Berger
    and Boos 1994). t is studentised so that the worst mean is little worse than the true one.

Proof.
    z grows with u: A y (1 - y) + B = Q(d) is concave in d up to y = 1, so d Q' <= Q - Q(0) <= Q,
    and d^2/Q grows; beyond, Q = B. So z(u, v) >= t means u >= c(v). With the least c of all larger
    v, the set R_t only grows: it then holds with u every larger u, with v every smaller v. The R_t
    are nested. The chance of R_t therefore grows with the means of the other arms, and falls with
    that of a.

    Let a be a best arm, of mean p. A wrong arm b is named only if q_a <= failure. The largest z of
    any arm over a is at least t, so its p-value is no larger. Unless the interval misses p, q_a is
    at least gamma + P_p(R_T), T that largest z, where P_p has all means at p. The true means of
    the other arms are no larger, so P_p(R_T) is at most s with probability at most s. Together:
    gamma + (failure - gamma). No union over arms is needed: the chance of R_t is that of any arm.

    On a cell [p1, p2] of means, P_p(R_t) is at most its value with a at p1 and the others at p2.
    Cells are halved until the bound is below the level, or they are too short to matter. Rewards
    are rounded to the grid g before they become bits, so the others are put at p2 + g.

Differences of two means.
    "The mean of b is at most that of a, p, plus s" is tested with d = u - v in place of z. The
    chance of a d as large grows with s for each p, and the interval of p does not depend on s. So
    the values s that are refuted are those below a limit, which halving finds.

Several looks.
    Look j of L at the data so far has the share (j/L)^3 - ((j-1)/L)^3 of the failure probability.
    The shares add up to 1, so that all looks together fail with at most that probability.
"""

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from balaclava.theory.confidence_sequences import REWARD_GRID, laplace_scale

MOST_LOOKS = 5
# Lattice points a standard deviation of a difference. Rounding raises p-values by 1 to 3 per cent;
# with half as many points by twice that.
_LATTICE_POINTS = 256.0
_MOST_POINTS = 2.0**16  # of a lattice; a coarser one is valid
# Nats: mass beyond the lattice is below e^-8 of the level.
_SPARE_NATS = 8.0
# Share of the level for the interval of the rival's mean: costs 2 per cent of it.
_INTERVAL_SHARE = 0.02
# Lengths of cells in standard deviations of a difference: the first, and the least.
_FIRST_CELL, _LEAST_CELL = 0.2, 0.01
# Of the interval in which a limit is searched, some ten standard deviations.
_LIMIT_HALVINGS, _DIFFERENCE_HALVINGS = 14, 10
_NOISE_TILT = 0.75  # of the Chernoff bound on noise: any value in (0, 1) is valid
_LEAST_DECAY = 1e-20  # smaller factors are dropped; the mass that is lost counts as +infinity
_LATTICE_ROUNDING = 1e-9  # of lattice points: far above the rounding errors of floats


def look_share(look: int, looks: int) -> float:
    """Share of the failure probability that a look may spend."""
    now, before = look / looks, (look - 1.0) / looks
    return now * now * now - before * before * before


def tail_reach(n: int, variance: float, draws: int, epsilon: float, nats: float) -> float:
    """Bernstein's and Chernoff's bound on the error of a mean, beyond which is mass e^-nats."""
    noise = (nats - draws * math.log(1.0 - _NOISE_TILT * _NOISE_TILT)) / _NOISE_TILT
    sampling = math.sqrt(2.0 * n * variance * nats) + 2.0 * nats / 3.0
    return (sampling + noise * laplace_scale(epsilon) + 1.0) / n


def decayed(law: np.ndarray, factor: float) -> np.ndarray:
    """Sums over i <= j of law[i] factor^(j - i), by doubling."""
    total, shift = law.copy(), 1
    while shift < law.size and factor > _LEAST_DECAY:
        more = total.copy()
        more[shift:] += factor * total[:-shift]
        total, shift, factor = more, 2 * shift, factor * factor
    return total


def binomial_pmf(n: int, mean: float, nats: float) -> tuple[int, np.ndarray]:
    """The first value within `nats` of the mean, and the probabilities from there on."""
    if mean <= 0.0 or mean >= 1.0:
        return n if mean >= 1.0 else 0, np.ones(1)
    reach = math.sqrt(2.0 * n * mean * (1.0 - mean) * nats) + 2.0 * nats / 3.0
    first = max(int(n * mean - reach), 0)
    values = np.arange(first, min(int(n * mean + reach) + 1, n))
    logs = np.zeros(values.size + 1)
    odds = mean / (1.0 - mean)
    logs[1:] = np.cumsum(np.log((n - values) / (values + 1.0) * odds))
    chances = np.exp(logs - logs.max())
    return first, chances / chances.sum()


def mean_law(
    n: int, mean: float, draws: int, epsilon: float, nats: float, low: float, step: float, size: int
) -> np.ndarray:
    """Law of a released mean, rounded up to the lattice low + i step; the rest is +infinity."""
    first, chances = binomial_pmf(n, min(max(mean, 0.0), 1.0), nats)
    sums = first + np.arange(chances.size) + draws * REWARD_GRID
    places = np.ceil((sums / n - low) / step + _LATTICE_ROUNDING)
    places = np.clip(places, 0, size).astype(np.int64)
    law: np.ndarray = np.bincount(places, chances, size + 1)[:size]
    up = math.exp(-step * n / laplace_scale(epsilon))
    down = math.exp(-step * n * epsilon)
    for _ in range(draws):
        falls = decayed(law[::-1], down)[::-1]
        rises = decayed(law, up)
        law = (0.5 - 0.5 * down) * falls
        law[1:] += (0.5 - 0.5 * up) * rises[:-1]
    return law * (1.0 - 2.0 * math.exp(-nats))  # two tails are beyond the chances above


def mean_tail(total: float, n: int, mean: float, draws: int, epsilon: float, level: float) -> float:
    """Bound on the chance of a released sum of at least `total`."""
    nats, x = math.log(1.0 / level) + _SPARE_NATS, total / n - REWARD_GRID
    reach = tail_reach(n, mean * (1.0 - mean), draws, epsilon, nats)
    deviation = math.sqrt(mean * (1.0 - mean) / n + 2.0 * draws / (epsilon * n * epsilon * n))
    step = max(max(deviation, 1.0 / n) / _LATTICE_POINTS, 2.0 * reach / _MOST_POINTS)
    size = math.ceil(2.0 * reach / step) + 1
    law = mean_law(n, mean, draws, epsilon, nats, mean - reach, step, size)
    first = math.ceil((x - mean + reach) / step - _LATTICE_ROUNDING)
    return 1.0 - float(law[: min(max(first, 0), size)].sum())


def exact_lower_limit(total: float, n: int, draws: int, epsilon: float, level: float) -> float:
    """The largest mean found at which a sum of at least `total` has a chance below `level`."""
    high = min(max(total / n, 0.0), 1.0)
    low = max(high - tail_reach(n, 0.25, draws, epsilon, math.log(1.0 / level)), 0.0)
    if mean_tail(total, n, low, draws, epsilon, level) > level:
        return 0.0
    for _ in range(_LIMIT_HALVINGS):
        middle = 0.5 * (low + high)
        if mean_tail(total, n, middle, draws, epsilon, level) <= level:
            low = middle
        else:
            high = middle
    return max(low - REWARD_GRID, 0.0)


def exact_mean_interval(
    mean: float, rewards: int, draws: int, epsilon: float, failure: float
) -> tuple[float, float]:
    """Interval for the mean of bits that fails with probability at most `failure`.

    `mean` is that of `rewards` bits, released in `draws` parts; see Limits above.

    Example:
        >>> low, high = exact_mean_interval(0.6123, 1_000, 1, 1.0, 0.05)
        >>> f"{low:.3f} {high:.3f}"
        '0.582 0.642'
    """
    if rewards < 1:
        return 0.0, 1.0
    total = mean * rewards
    low = exact_lower_limit(total, rewards, draws, epsilon, 0.5 * failure)
    high = 1.0 - exact_lower_limit(rewards - total, rewards, draws, epsilon, 0.5 * failure)
    return low, high


def lead_score(worse: Any, better: Any, epsilon: float) -> Any:
    """z(u, v) above, elementwise; an arm is its rewards, released means and draws of noise."""
    spread, noise, share = score_terms(worse, better, epsilon)
    gap = better[1] - worse[1]
    y = np.minimum(np.clip(worse[1], 0.0, 1.0) + share * gap, 1.0)
    return gap / np.sqrt(spread * y * (1.0 - y) + noise)


def score_terms(worse: Any, better: Any, epsilon: float) -> tuple[float, float, float]:
    """A, B and n'/(n + n') above."""
    n, more, scale = worse[0], better[0], laplace_scale(epsilon)
    noise = scale * scale * (worse[2] / (n * n) + better[2] / (more * more))
    return 1.0 / n + 1.0 / more, 2.0 * noise, more / (n + more)


def boundary(
    worse: np.ndarray, better: np.ndarray, epsilon: float, score: float, means: np.ndarray
) -> np.ndarray:
    """c(v) above for falling `means` v of the worse arm, with the least c of all larger v."""
    spread, noise, share = score_terms(worse, better, epsilon)
    v, t = np.clip(means, 0.0, 1.0), score * score
    square = 1.0 + t * spread * share * share
    linear = 0.5 * t * spread * share * (1.0 - 2.0 * v)
    rest = t * (spread * v * (1.0 - v) + noise)
    gaps = (linear + np.sqrt(linear * linear + square * rest)) / square
    flat = v + share * gaps > 1.0
    least = means + np.where(flat, score * math.sqrt(noise), gaps)
    return np.minimum.accumulate(least)


def chance_of_score(
    released: np.ndarray, rival: int, places: np.ndarray, epsilon: float, nats: float,
    cell: tuple[float, float], lattice: tuple[float, float, int], shift: float = 0.0,
    offset: float = 0.0,
) -> float:  # fmt: skip
    """Bound on the chance that some arm reaches its place above the rival, for means in the cell.

    The rival has a mean in the cell, the others one that is larger by `shift`; the first point of
    their lattice is larger by `offset`.
    """
    (first, last), (low, step, size) = cell, lattice
    n, draws = int(released[rival, 0]), int(released[rival, 2])
    high = low + step * (size - 1)
    worse = mean_law(n, 1.0 - first, draws, epsilon, nats, 1.0 - high, step, size)
    none = np.ones(size)
    for arm in range(released.shape[0]):
        if arm != rival:
            n, draws = int(released[arm, 0]), int(released[arm, 2])
            mean = last + shift + REWARD_GRID
            law = mean_law(n, mean, draws, epsilon, nats, low + offset, step, size)
            below = np.zeros(size + 1)
            below[1:] = np.cumsum(law)
            none *= below[places[arm]]
    return 1.0 - float(worse @ none)


def is_below(
    chance: Callable[[tuple[float, float]], float], low: float, high: float, scale: float,
    level: float,
) -> bool:  # fmt: skip
    """Whether `chance` is at most `level` on cells that cover [low, high]; see Proof above."""
    length = _FIRST_CELL * scale
    while True:
        last = min(low + length, high)
        if chance((low, last)) <= level:
            if last >= high:
                return True
            low, length = last, 1.5 * length
        elif last - low <= _LEAST_CELL * scale:
            return False
        else:
            length = 0.5 * (last - low)


def common_mean(worse: np.ndarray, better: np.ndarray) -> float:
    """The mean of two arms together, not too close to 0 and 1."""
    n, more = worse[0], better[0]
    mean = (n * worse[1] + more * better[1]) / (n + more)
    return float(min(max(mean, 1.0 / (n + 2.0)), 1.0 - 1.0 / (n + 2.0)))


def lattice_for(
    released: np.ndarray, epsilon: float, nats: float, low: float, high: float, deviation: float
) -> tuple[float, float, int]:
    """First point, step and size of a lattice for arms with a mean in [low, high]."""
    largest = min(max(low, 0.5), high)  # of the variances
    fewest, draws = int(released[:, 0].min()), int(released[0, 2])
    reach = tail_reach(fewest, largest * (1.0 - largest), draws, epsilon, nats)
    width = high - low + 2.0 * reach
    step = max(deviation / _LATTICE_POINTS, width / _MOST_POINTS)
    return low - reach, step, math.ceil(width / step) + 1


def beats_rival(
    released: np.ndarray, lead: int, rival: int, epsilon: float, level: float, thorough: bool
) -> bool:
    """Whether the leader beats a rival at the level; not `thorough`: at the common mean alone.

    `released` has a row of rewards, mean and draws of noise for each arm.
    """
    score = lead_score(released[rival], released[lead], epsilon)
    if not score > 0.0:
        return False
    n, v, draws = int(released[rival, 0]), released[rival, 1], int(released[rival, 2])
    spread, noise, _ = score_terms(released[rival], released[lead], epsilon)
    middle = common_mean(released[rival], released[lead])
    low, high = middle, middle
    if thorough:
        low, high = exact_mean_interval(v, n, draws, epsilon, _INTERVAL_SHARE * level)
    nats = math.log(released.shape[0] / level) + _SPARE_NATS
    deviation = math.sqrt(spread * middle * (1.0 - middle) + noise)
    lattice = lattice_for(released, epsilon, nats, low, high, deviation)
    places = score_places(released, rival, epsilon, score, lattice)

    def chance(cell: tuple[float, float]) -> float:
        return chance_of_score(released, rival, places, epsilon, nats, cell, lattice)

    return is_below(chance, low, high, deviation, (1.0 - _INTERVAL_SHARE) * level)


def score_places(
    released: np.ndarray, rival: int, epsilon: float, score: float,
    lattice: tuple[float, float, int],
) -> np.ndarray:  # fmt: skip
    """[arm, i]: the first lattice point with the score over the rival's mean high - i step."""
    means = rival_means(lattice)
    places = np.zeros((released.shape[0], means.size), np.int64)
    for arm in range(released.shape[0]):
        if arm != rival:
            least = boundary(released[rival], released[arm], epsilon, score, means)
            places[arm] = first_places(least, lattice, 0.0)
    return places


def rival_means(lattice: tuple[float, float, int]) -> np.ndarray:
    """The lattice points, from the highest to the lowest."""
    low, step, size = lattice
    return low + step * (size - 1.0 - np.arange(size))


def first_places(least: np.ndarray, lattice: tuple[float, float, int], offset: float) -> np.ndarray:
    """The first points, of the lattice moved by `offset`, at or above `least`."""
    low, step, size = lattice
    points = np.ceil((least - REWARD_GRID - low - offset) / step - _LATTICE_ROUNDING)
    return np.clip(points, 0, size).astype(np.int64)


def best_of_sample(released: np.ndarray, epsilon: float, level: float) -> int:
    """The arm that beats every rival; -1 if there is none. It is wrong with chance `level` at most.

    Example:
        >>> best_of_sample(np.array([[300, 0.55, 1], [290, 0.71, 1], [310, 0.60, 1]]), 1.0, 0.05)
        1
    """
    if released[:, 0].min() < 1.0:
        return -1
    by_mean = [int(arm) for arm in np.argsort(-released[:, 1], kind="stable")]
    for thorough in (False, True):
        for rival in by_mean[1:]:
            if not beats_rival(released, by_mean[0], rival, epsilon, level, thorough):
                return -1
    return by_mean[0]


def is_above(
    worse: np.ndarray, better: np.ndarray, epsilon: float, shift: float, level: float
) -> bool:
    """Whether the mean of `better` is above that of `worse` by more than `shift`, at the level."""
    released, gap = np.array([worse, better]), float(better[1] - worse[1])
    n, v, draws = int(worse[0]), float(worse[1]), int(worse[2])
    low, high = exact_mean_interval(v, n, draws, epsilon, _INTERVAL_SHARE * level)
    low = max(low, -shift - REWARD_GRID)  # no mean is below 0
    if low > high:
        return True
    nats = math.log(2.0 / level) + _SPARE_NATS
    spread, noise, _ = score_terms(worse, better, epsilon)
    middle = common_mean(worse, better)
    deviation = math.sqrt(spread * middle * (1.0 - middle) + noise)
    lattice = lattice_for(released, epsilon, nats, low, high, deviation)
    offset = min(max(high + shift, 0.0), 1.0) - high
    places = np.array([first_places(rival_means(lattice) + gap, lattice, offset)] * 2)

    def chance(cell: tuple[float, float]) -> float:
        return chance_of_score(released, 0, places, epsilon, nats, cell, lattice, shift, offset)

    return is_below(chance, low, high, deviation, (1.0 - _INTERVAL_SHARE) * level)


def least_difference(worse: np.ndarray, better: np.ndarray, epsilon: float, level: float) -> float:
    """Lower limit of the mean of `better` minus that of `worse`, at least -1."""
    high = min(float(better[1] - worse[1]), 1.0)
    reach = sum(
        tail_reach(int(arm[0]), 0.25, int(arm[2]), epsilon, math.log(4.0 / level))
        for arm in (worse, better)
    )
    low = max(high - reach, -1.0)
    if not is_above(worse, better, epsilon, low, level):
        return -1.0
    for _ in range(_DIFFERENCE_HALVINGS):
        middle = 0.5 * (low + high)
        if is_above(worse, better, epsilon, middle, level):
            low = middle
        else:
            high = middle
    return low


def exact_difference_interval(
    a: Sequence[float], b: Sequence[float], epsilon: float, failure: float
) -> tuple[float, float]:
    """Interval for the mean of arm `a` minus that of arm `b`; fails with at most `failure`.

    An arm is given by its rewards, released mean and draws of noise. To have the intervals of all
    pairs hold together, divide the failure probability by the number of pairs.

    Example:
        >>> low, high = exact_difference_interval((300, 0.71, 1), (290, 0.60, 1), 1.0, 0.05)
        >>> f"{low:.3f} {high:.3f}"
        '0.027 0.192'
    """
    first, second = np.array(a, float), np.array(b, float)
    low = least_difference(second, first, epsilon, 0.5 * failure)
    return low, -least_difference(first, second, epsilon, 0.5 * failure)
