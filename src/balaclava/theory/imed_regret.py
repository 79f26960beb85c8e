"""Regret of IMED with batch sizes fixed in advance and an exact index.

An arm has n_1 < n_2 < ... pulls after its batches. Each arm gets its first batch before any arm
gets a second. The released mean x_m of its n_m rewards holds m Laplace draws of scale 1/epsilon.
R_m(x, y) is the rate of x or less at the mean y (`estimators.noisy_kl`), at the best tilt s. The
next batch is of the arm with the least R_m(x_m, y) + log n_m, where y is the largest released
mean, clipped to [0, 1]. Rewards of an arm are independent, have one mean, lie in [0, 1], and arrive
at once.

Theorem. Let arm a have the mean p, and let q be the largest mean. For all d, e > 0 with d + e <
q - p, arm a is pulled in T rounds on average at most

    n_{L+1} + sum over m of (n_{m+1} - n_m) u_m exp(-R_m(1 - p - d, 1 - p))
            + sum over m of g n_m exp(-G_m) (v_m(G_m) + integral of v_m(r) dr)

times. L is the last m with R_m(p + d, q - e) + log n_m <= log T (0 if there is none), g the largest
n_{m+1}/n_m, G_m = R_m(q - e, q), and the integral is from G_m to G_m + log max(T/(g n_m), 1). u_m
is 1 - s at the best tilt of its rate, and v_m(r) is 1 - s at the best tilt of the x with
R_m(x, q) = r. Sums and g are over n_m < T. A term of the second sum is at most T exp(-G_m).

For n_m = ceil(b c^(m-1)) the first term is at most (c + o(1)) log T / d_epsilon(p + d, q - e),
since R_m >= n_m d_epsilon - m log n_m - O(1) and m = O(log n_m). The first sum is bounded, and the
second of the order of log log T, since v_m(r) <= m/(r - O(n_m)). With small d and e: pulls over
log T are in the limit at most c / d_epsilon(p, q). Private policies that are good on all Bernoulli
arms cannot have less than 1 / d_epsilon(p, q) if q < 1 (`theory.bounds.private_kl_instance`).

Proof. R_m is a supremum over s in [0, 1) of functions that decrease in x, increase in y, and are 0
at s = 0. A Laplace draw is at most -v with a probability of at most c_s exp(-s epsilon v), for
every real v, with c_s = (2s/(1 + s))^s / (1 + s): the maximum of P exp(s epsilon v) is at
exp(epsilon v) = 2s/(1 + s). Use this for the last of m draws, and Markov's inequality for the sum
of rewards and other draws. The bound of `estimators.noisy_kl` is then multiplied by
c_s (1 - s^2) <= 1 - s, so that for an arm of mean q

    P(x_m <= x) <= (1 - s) exp(-R_m(x, q)),

and W = R_m(x_m, q) >= r has at most the probability v_m(r) exp(-r) for each r > 0. For rewards
1 - X the same gives P(x_m >= p + d) <= u_m exp(-R_m(1 - p - d, 1 - p)). Each of these is about one
arm's sequence of rewards and draws; a run reads a prefix of it. n_m and m are fixed.

1. Arm a begins its batch m + 1 while y >= q - e. As q - e > p + d > 0, the leader's released mean
   is at least y, and its index is the log of its pulls, at most log T. So R_m(x_m, y) + log n_m <=
   log T. If x_m <= p + d, then R_m(p + d, q - e) + log n_m <= log T, and m <= L: all such batches
   together, and the first, have at most n_{L+1} pulls.
2. If x_m > p + d, the batch has n_{m+1} - n_m pulls: the first sum.
3. Arm a begins a batch while y < q - e. Let a best arm, the same throughout, have released k
   batches: x_k < q - e, its index is at most R_k(x_k, q - e) + log n_k, and arm a's is no larger.
   So arm a has at most n_k exp(R_k(x_k, q - e)) pulls before the batch, and g times as many after
   it. For this k, all such batches together have at most that many pulls, and at most T.
   The rate increases in y
   by n (1 - u)/(1 - y + y u) with u = exp(-epsilon s) at the best s, and so faster for a larger
   s; the best s decreases in x. So for x <= q - e

       R_k(x, q) - R_k(x, q - e) >= R_k(q - e, q) - R_k(q - e, q - e) = G_k,

   and R_k(x_k, q - e) <= W - G_k. The mean of min(T, g n_k exp(W - G_k)) over W >= G_k is at most
   the term of the second sum, by the tail of W; the sum is over all k.

Each batch of arm a but the first begins in one of the three ways.
"""

import functools
import itertools
import math
from collections.abc import Sequence

import numpy as np

from balaclava.estimators.noisy_kl import best_tilt, exponent, tilted_mean

# Parts of the gap in the grid of d and e. Every choice is valid.
_GAP_PARTS = 10
# Ratio of 1 - s from one point of the integral to the next. Every ratio gives a valid bound.
_TILT_RATIO = 0.9
# 1 - s at which the points end; beyond, the last value bounds the integrand.
_LEAST_DISTANCE = 1e-9
# Nats: exp(-750) is 0 in floats, and no horizon has a larger logarithm.
_MOST_NATS = 750.0


@functools.lru_cache(maxsize=100_000)
def _rate(n: int, x: float, q: float, epsilon: float, draws: int) -> tuple[float, float]:
    """R_m(x, q), and 1 - s at its best tilt."""
    s = best_tilt(n, x, q, epsilon, draws)
    return exponent(s, n, x, q, epsilon, draws), 1.0 - s


@functools.lru_cache(maxsize=20_000)
def _tail(n: int, x: float, q: float, epsilon: float, draws: int) -> tuple[np.ndarray, np.ndarray]:
    """Rates r from R_m(x, q) on, and 1 - s at each: it falls, so a left sum bounds its integral.

    At the tilt s the slope of the exponent is 0 where x = z(s) - 2 m s / (epsilon n (1 - s^2)).
    """
    first, rest = _rate(n, x, q, epsilon, draws)
    rates, rests = [first], [rest]
    while first < _MOST_NATS and rates[-1] < first + _MOST_NATS and rest > _LEAST_DISTANCE:
        rest *= _TILT_RATIO
        s = 1.0 - rest
        x = tilted_mean(s, q, epsilon) - 2.0 * draws * s / (epsilon * n * (1.0 - s * s))
        rates.append(max(exponent(s, n, x, q, epsilon, draws), rates[-1]))
        rests.append(rest)
    return np.array([*rates, first + _MOST_NATS]), np.array([*rests, 0.0])


def imed_pulls(
    mean: float, best: float, sizes: Sequence[int], horizon: int, epsilon: float
) -> float:
    """The theorem's bound on the expected pulls of an arm, with the best d and e of a grid.

    `mean` is p, `best` is q, and `sizes` are n_1, n_2, ...; the last is at least `horizon`.

    >>> sizes = [math.ceil(30 * 1.5**m) for m in range(16)]
    >>> round(imed_pulls(0.3, 0.7, sizes, 10**4, epsilon=1.0))
    290
    """
    gap, growth = best - mean, max([after / n for n, after in itertools.pairwise(sizes)] or [1.0])
    batches = [(m, n) for m, n in enumerate(sizes, 1) if n < horizon]
    shares = [part * gap / _GAP_PARTS for part in range(1, _GAP_PARTS)]

    def overestimated(d: float) -> float:
        """The first sum: batches after the arm's mean was released above p + d."""
        total = 0.0
        for m, n in batches:
            rate, rest = _rate(n, 1.0 - mean - d, 1.0 - mean, epsilon, m)
            total += (sizes[m] - n) * rest * math.exp(-rate)
        return total

    def underestimated(e: float) -> float:
        """The second sum: batches while the best arm's mean was released below q - e."""
        total = 0.0
        for m, n in batches:
            rates, rests = _tail(n, best - e, best, epsilon, m)
            most = growth * n
            until = np.minimum(rates, rates[0] + math.log(max(horizon / most, 1.0)))
            waits = most * (rests[0] + float(np.diff(until) @ rests[:-1]))
            total += math.exp(-rates[0]) * min(waits, horizon)
        return total

    def regular(d: float, e: float) -> int:
        """n_{L+1}."""
        last = 0
        for m, n in batches:
            if _rate(n, mean + d, best - e, epsilon, m)[0] + math.log(n) <= math.log(horizon):
                last = m
        return sizes[last]

    second_sums = [(e, underestimated(e)) for e in shares]
    bounds = [
        regular(d, e) + first + second
        for d, first in [(d, overestimated(d)) for d in shares]
        for e, second in second_sums
        if d + e < gap * (1.0 - 0.5 / _GAP_PARTS)
    ]
    return min(*bounds, horizon)
