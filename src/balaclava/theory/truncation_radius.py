"""Radius of a truncated, noisy mean of contaminated rewards around the clean mean.

Rewards are drawn from P with probability 1 - alpha and from anything else with probability alpha,
alpha <= alpha_1. P has mean m and E|X|^k <= 1, k >= 2. Rewards beyond M count as 0, and the mean
of n of them is released with noise Lap(2M / (n epsilon)). Then, with probability 1 - delta, it is
within

    sqrt(2 V L / n) + 2 M L / (3 n) + M^(1-k) + b (M + 1) + (2 M / (n epsilon)) L'

of m. Wu, Zhou, Tao, Wang (2023, Theorem 6.1) give the orders, without these constants.

Proof, mixed: V = 1 + alpha_1 M^2, b = alpha_1, L = log(4/delta), L' = log(2/delta).
    A truncated reward Y has E Y^2 <= E X^2 + alpha M^2 <= V, and is within 2M of its mean.
    Bernstein's inequality at delta/4 on each side gives the first two terms. Under P the
    truncation moves the mean by at most E|X| 1{|X| > M} <= M^(1-k). An outlier moves it by at most
    M + |m| <= M + 1, with probability alpha. The noise exceeds its term with probability delta/2.

Proof, counted: V = 1, b = 2 alpha_1, L = log(6/delta), L' = log(3/delta), as in the paper.
    Of n >= (3/alpha_1) log(3/delta) rewards more than 2 alpha_1 n are outliers with probability
    delta/3 (Chernoff); these move the mean by at most 2 alpha_1 (M + 1). Bernstein for the rest
    and the noise fail with probability delta/3 each.

For P with E|X|^k <= u, multiply rewards, M and the result by u^(1/k). For rewards with a bounded
central moment, truncated about a point J within 2r of m, (E|X - J|^k)^(1/k) is at most
c = 1 + 2r: X - J is c times a reward of the kind above.

`raw_moment_bound` converts moments of order p = 1 + v, 1 <= p <= 2 (Tao, Wu, Zhao, Wang 2022,
Lemma 10).
"""

import math
from typing import NamedTuple

from balaclava._core.kernels import kernel
from balaclava.privacy.exact_noise import LARGEST_EXPONENT


class RadiusTerms(NamedTuple):
    """The terms that differ between the two proofs: V = 1 + spread M^2, b = bias, L and L'."""

    spread: float
    bias: float
    log_sampling: float
    log_noise: float


def mixed_terms(contamination: float, delta: float) -> RadiusTerms:
    """Outliers as part of the law: for every batch size."""
    return RadiusTerms(contamination, contamination, math.log(4 / delta), math.log(2 / delta))


def counted_terms(contamination: float, delta: float) -> RadiusTerms:
    """Outliers counted, as in the paper: for at least `counted_threshold` rewards."""
    return RadiusTerms(0.0, 2 * contamination, math.log(6 / delta), math.log(3 / delta))


def counted_threshold(contamination: float, delta: float) -> float:
    """(3/alpha_1) log(3/delta) rewards, above which the share of outliers is below 2 alpha_1."""
    return 3 / contamination * math.log(3 / delta) if contamination else 0.0


def located_width(order: float, contamination: float) -> tuple[float, float]:
    """Width r of the bins that locate a mean to within 2r, and their margin g.

    By Markov's inequality at most o = (1 - alpha_1) / r^k + alpha_1 of the mass is beyond r of the
    mean. The rest lies in at most three bins, and one of them has (1 - o) / 3. A bin further away
    has at most o. The difference is g = (1 - 4 o) / 3. Without contamination r = 10^(1/k), as in
    the paper. With it o = (alpha_1 + 1/4) / 2, where the paper's width leaves a margin of 0.0013.
    From alpha_1 = 1/4 on there is no margin.
    """
    outside = 0.1 if contamination == 0.0 else (contamination + 0.25) / 2
    width = ((1 - contamination) / (outside - contamination)) ** (1 / order)
    return width, (1 - 4 * outside) / 3


def located_threshold(bins: int, margin: float, epsilon: float, delta: float) -> float:
    """Records for which the fullest bin is within 2r of the mean with probability 1 - delta/2.

    Every share is within g/4 of its mean (Hoeffding, at delta/4 for all bins together), and every
    noise Lap(2 / (n epsilon)) is below g/4 (at delta/4).
    """
    sampling = 8 / margin**2 * math.log(8 * bins / delta)
    return max(sampling, 8 / (margin * epsilon) * math.log(4 * bins / delta))


def level_ratio(order: float, epsilon: float, delta: float) -> float:
    """epsilon / log(1/delta), which determines the truncation level.

    The radius holds for every level. The factor of (log(1/delta) / n)^(1-1/k) depends on epsilon as
    (2/3) epsilon^(1/k) + 3 epsilon^(1/k-1), which is least at epsilon = 4.5 (k - 1). A higher level
    would make it grow, so a larger epsilon counts as this one. A delta above 1/2 counts as 1/2.
    """
    return min(epsilon, 4.5 * (order - 1)) / max(-math.log(delta), math.log(2))


@kernel(borrows=True)
def truncation_level(n: int, order: float, ratio: float, most: float) -> float:
    """M = min{(n epsilon / log(1/delta))^(1/k), alpha_1^(-1/k)}, in units of u^(1/k)."""
    return min(math.pow(n * ratio, 1.0 / order), most)


@kernel(borrows=True)
def truncation_radius(
    level: float, n: int, order: float, epsilon: float, terms: RadiusTerms
) -> float:
    """The radius above, in units of u^(1/k)."""
    variance = 1.0 + terms.spread * level * level
    sampling = math.sqrt(2.0 * variance * terms.log_sampling / n)
    largest = 2.0 * level * terms.log_sampling / (3.0 * n)
    cut_off = math.exp(min((1.0 - order) * math.log(level), LARGEST_EXPONENT))  # M^(1-k)
    outliers = terms.bias * (level + 1.0)
    noise = 2.0 * level / (n * epsilon) * terms.log_noise
    return sampling + largest + cut_off + outliers + noise


def raw_moment_bound(central: float, *, mean_range: float, order: float) -> float:
    """Upper bound on E|X|^p, if E|X - mu|^p <= central and |mu| <= mean_range.

    (central^(1/p) + mean_range)^p, by Minkowski's inequality. Lemma 10 has 2 central +
    2 mean_range^p, which is at least as large, since (a + b)^p <= 2^(p-1) (a^p + b^p).

    Example:
        >>> raw_moment_bound(1.0, mean_range=3.0, order=2.0)
        16.0
    """
    return float((central ** (1.0 / order) + mean_range) ** order)
