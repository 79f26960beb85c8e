"""Regret of playing the highest of indices theta ~ N(mean, 2/n), constants included.

Each arm starts with m rewards in [0, 1]. For every lam below half the smallest gap, an arm of
gap D is pulled in T rounds, on average, at most

    max{L, m} + 1 + S(2 lam^2) + S(lam^2/16) + S(lam^2/2) + 4.23 S(2 lam^2),
    L = 4 log T / (D - 2 lam)^2 rounded up,   S(a) = sum over n >= m of exp(-n a)

times; `gaussian_index_regret` takes the best lam of a grid. Wang and Zhu (2024, Theorem 11) have
2 log T / (D - 2 lam)^2 and an unnamed constant times 1 / lam^4. The 2 comes from their Fact 6,
which is false (errata, Wang 9): a Gaussian of variance 2/n exceeds its mean by sqrt(2 log T / n)
with probability near 1/sqrt(T), and only by sqrt(4 log T / n) with one below 1/T.

Proof, after Agrawal and Goyal (2013). Let mu be the best mean and nu that of the arm.
    Pulls with a mean of at least nu + lam: one for each n, with probability exp(-2 n lam^2)
    (Hoeffding).
    Pulls with a smaller mean and an index of at least mu - lam: from n >= L on such an index has
    probability exp(-(D - 2 lam)^2 n / 4) / 2 <= 1 / (2T) in each round, which gives L and 1/2.
    Pulls with an index below mu - lam: sum over n >= m of E[1/p - 1], p the probability that the
    index of the best arm with n rewards is at least mu - lam (their Lemma 20). Let mu - d be the
    mean of these rewards. If d < lam/2, 1/p - 1 <= exp(-n lam^2 / 16). If d <= lam, p >= 1/2, and
    d >= lam/2 has probability exp(-n lam^2 / 2). Beyond, with z = (d - lam) sqrt(n/2), 1/p is at
    most sqrt(2 pi) (z + 1) exp(z^2 / 2) (Birnbaum 1942). As d has the tail exp(-2 n d^2),
    integrating by parts gives at most 4.23 exp(-2 n lam^2).
"""

import math

import numpy as np

# Grid of lam, in smallest gaps: every lam in (0, 1/2) gives a valid bound.
_LAM_GRID = np.linspace(0.002, 0.498, 249)


def tail_sum(rate: float, first: int) -> float:
    """Sum over n >= first of exp(-n rate)."""
    return math.exp(-first * rate) / -math.expm1(-rate)


def best_arm_misses(lam: float, first: int) -> float:
    """Upper bound on the sum over n >= first of E[1/p - 1]."""
    square = lam * lam
    return (
        tail_sum(square / 16.0, first)
        + tail_sum(square / 2.0, first)
        + 4.23 * tail_sum(2.0 * square, first)
    )


def gaussian_index_regret(gaps: np.ndarray, first: int, horizon: int) -> float:
    """Upper bound on the regret, for gaps of means in [0, 1].

    Example:
        >>> round(gaussian_index_regret(np.array([0.0, 0.5]), 8, 10**6))
        1063
    """
    worse = gaps[gaps > 0]
    if worse.size == 0:
        return 0.0
    least, log = float(worse.min()), math.log(max(horizon, 2))
    totals = []
    for lam in least * _LAM_GRID:
        pulls = np.maximum(np.ceil(4.0 * log / (worse - 2.0 * lam) ** 2), first)
        always = 1.0 + tail_sum(2.0 * lam * lam, first) + best_arm_misses(float(lam), first)
        totals.append(float(worse @ (pulls + always)))
    return min(totals)
