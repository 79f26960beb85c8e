"""The regret of IMED in batches of sizes that are fixed in advance, if its index is exact.

An arm has n_1 < n_2 < ... pulls after its batches, and the released mean x_m of its n_m rewards
holds m draws of noise. R_m(x, y) is the rate of x or less at the mean y (`estimators.noisy_kl`).
The next batch goes to the arm with the least R_m(x_m, y) + log n_m, where y is the largest released
mean, moved into [0, 1]. Rewards of an arm are independent, in [0, 1], and come at once.

Theorem. Let arm a have the mean p, and let q be the largest mean. For all d, e > 0 with d + e <
q - p, and g the largest n_{m+1}/n_m, arm a is pulled in T rounds on average at most

    n_{L+1} + sum over m of (n_{m+1} - n_m) exp(-R_m(1 - p - d, 1 - p))
            + sum over m of g n_m exp(-G_m) (1 + log max(T/(g n_m), 1)),

where L is the last m with R_m(p + d, q - e) + log n_m <= log T (0 if there is none), and G_m =
R_m(q - e, q); sums go over n_m < T. The first term is g log T / d_epsilon(p + d, q - e) for large
T, the second is bounded, and the third is of the order of log T: so the regret is of the order that
no private policy can beat (`theory.bounds.private_kl_instance`), with larger constants.

Proof. R_m is a supremum over s in [0, 1) of functions that fall with x, rise with y, and are 0 at
s = 0. By Markov's inequality, P(x_m <= x) <= exp(-R_m(x, q)) for an arm of mean q, so that
W = R_m(x_m, q) >= r has at most the probability exp(-r) for each r > 0; for rewards 1 - X the same
says P(x_m >= p + d) <= exp(-R_m(1 - p - d, 1 - p)). What counts is each arm's own sequence of
rewards and draws, of which a run reads a part: n_m and m are fixed.

1. Arm a begins its batch m + 1 while y >= q - e. The leader's index is log of its pulls, at most
   log T, so that R_m(x_m, y) + log n_m <= log T. If x_m <= p + d, then R_m(p + d, q - e) + log n_m
   <= log T, and m <= L: all such batches together, and the first, have n_{L+1} pulls at most.
2. If x_m > p + d, the batch has n_{m+1} - n_m pulls: the first sum.
3. Arm a begins a batch while y < q - e. Let the best arm have released k batches: x_k < q - e, its
   index is at most R_k(x_k, q - e) + log n_k, and arm a's is no larger. So arm a has at most
   n_k exp(R_k(x_k, q - e)) pulls before the batch, and g times as many after it. For this k, all
   such batches together have no more, nor more than T. The rate rises with y by n (1 - u)/(1 - y +
   y u) with u = exp(-epsilon s) at the best s, and the best s falls as x rises; so for x <= q - e

       R_k(x, q) - R_k(x, q - e) >= R_k(q - e, q) - R_k(q - e, q - e) = G_k,

   and R_k(x_k, q - e) <= W - G_k. The mean of min(T, g n_k exp(W - G_k)) where W >= G_k is at most
   g n_k exp(-G_k) (1 + log(T/(g n_k))), by the tail of W: the second sum, over all k.

Each batch of arm a begins in one of the three ways.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Sequence

from balaclava.estimators.noisy_kl import noisy_kl

_PARTS = 10  # of the gap, in which d and e are looked for
_rate = functools.lru_cache(maxsize=100_000)(noisy_kl)


def imed_pulls(
    mean: float, best: float, sizes: Sequence[int], horizon: int, epsilon: float
) -> float:
    """The theorem's bound on the mean pulls of an arm, with the best d and e of a grid.

    `sizes` are the pulls after each batch; the last is `horizon` or more.

    >>> sizes = [math.ceil(30 * 1.5**m) for m in range(16)]
    >>> round(imed_pulls(0.3, 0.7, sizes, 10**4, epsilon=1.0))
    391
    """
    gap, growth = best - mean, max([after / n for n, after in itertools.pairwise(sizes)] or [1.0])
    batches = [(m, n) for m, n in enumerate(sizes, 1) if n < horizon]
    shares = [part * gap / _PARTS for part in range(1, _PARTS)]

    def lucky(d: float) -> float:
        return sum(
            (sizes[m] - n) * math.exp(-_rate(n, 1.0 - mean - d, 1.0 - mean, epsilon, m))
            for m, n in batches
        )

    def misled(e: float) -> float:
        total = 0.0
        for m, n in batches:
            most, chance = growth * n, math.exp(-_rate(n, best - e, best, epsilon, m))
            total += chance * min(most * (1.0 + math.log(max(horizon / most, 1.0))), horizon)
        return total

    def due(d: float, e: float) -> int:
        last = 0
        for m, n in batches:
            if _rate(n, mean + d, best - e, epsilon, m) + math.log(n) <= math.log(horizon):
                last = m
        return sizes[last]

    unlucky = [(e, misled(e)) for e in shares]
    return min(
        due(d, e) + first + second
        for d, first in [(d, lucky(d)) for d in shares]
        for e, second in unlucky
        if d + e < gap * (1.0 - 0.5 / _PARTS)
    )
