"""How far a truncated, noisy mean of contaminated rewards is from the clean mean.

Rewards are drawn from P with probability 1 - alpha and from anything else with probability alpha,
alpha <= alpha_1. P has mean m and E|X|^k <= 1, k >= 2. Rewards beyond M count as 0, and the mean
of n of them is released with noise Lap(2M / (n epsilon)). Then, with probability 1 - delta, it is
within

    sqrt(2 V L / n) + 2 M L / (3 n) + M^(1-k) + b (M + 1) + (2 M / (n epsilon)) L'

of m. Wu, Zhou, Tao, Wang (2023, Theorem 6.1) have the orders; these are constants to go with them.

Proof, mixed: V = 1 + alpha_1 M^2, b = alpha_1, L = log(4/delta), L' = log(2/delta).
    A truncated reward Y has E Y^2 <= E X^2 + alpha M^2 <= V, and is within 2M of its mean, so
    that Bernstein's inequality at delta/4 on each side gives the first two terms. Under P the
    truncation moves the mean by at most E|X| 1{|X| > M} <= M^(1-k), and an outlier moves it by at
    most M + |m| <= M + 1, with probability alpha. The noise is beyond its term with chance delta/2.

Proof, counted: V = 1, b = 2 alpha_1, L = log(6/delta), L' = log(3/delta), as in the paper.
    Of n >= (3/alpha_1) log(3/delta) rewards more than 2 alpha_1 n are outliers with chance
    delta/3 (Chernoff); these move the mean by at most 2 alpha_1 (M + 1). Bernstein for the rest
    and the noise fail with chance delta/3 each.

For P with E|X|^k <= u, multiply rewards, M and the result by u^(1/k). For rewards of which only
the central moment is bounded, truncated about a point J within 2r of m, (E|X - J|^k)^(1/k) is at
most c = 1 + 2r: X - J is c times a reward of the kind above.
"""

from __future__ import annotations

import math
from typing import NamedTuple

from balaclava._core.kernels import kernel

_LARGEST_LOG = 700.0  # exp overflows soon after


class RadiusTerms(NamedTuple):
    """What the two proofs differ in: V = 1 + spread M^2, b = bias, and their logarithms."""

    spread: float
    bias: float
    log_sampling: float
    log_noise: float


def mixed_terms(contamination: float, delta: float) -> RadiusTerms:
    """Outliers as part of the law: no batch is too small."""
    return RadiusTerms(contamination, contamination, math.log(4 / delta), math.log(2 / delta))


def counted_terms(contamination: float, delta: float) -> RadiusTerms:
    """Outliers counted, as in the paper: for `counted_threshold` rewards and more."""
    return RadiusTerms(0.0, 2 * contamination, math.log(6 / delta), math.log(3 / delta))


def counted_threshold(contamination: float, delta: float) -> float:
    """(3/alpha_1) log(3/delta): from here on the share of outliers is below 2 alpha_1."""
    return 3 / contamination * math.log(3 / delta) if contamination else 0.0


def located_width(order: float, contamination: float) -> tuple[float, float]:
    """r, the width of the bins that locate a mean to within 2r, and their margin g.

    With o = (1 - alpha_1) / r^k + alpha_1 at most o of the mass is beyond r of the mean, by
    Markov's inequality. The rest lies in at most three bins, one of which has (1 - o) / 3; a bin
    that is further away has at most o. The difference is g = (1 - 4 o) / 3. Without
    contamination r = 10^(1/k), as in the paper; with it o = (alpha_1 + 1/4) / 2, where the paper's
    width leaves a margin of 0.0013. There is none from alpha_1 = 1/4 on.
    """
    outside = 0.1 if contamination == 0.0 else (contamination + 0.25) / 2
    width = ((1 - contamination) / (outside - contamination)) ** (1 / order)
    return width, (1 - 4 * outside) / 3


def located_threshold(bins: int, margin: float, epsilon: float, delta: float) -> float:
    """Records from which on the fullest bin is within 2r of the mean with chance 1 - delta/2.

    Every share is within g/4 of its mean (Hoeffding, at delta/4 for all bins together), and every
    noise Lap(2 / (n epsilon)) is below g/4 (at delta/4).
    """
    sampling = 8 / margin**2 * math.log(8 * bins / delta)
    return max(sampling, 8 / (margin * epsilon) * math.log(4 * bins / delta))


def level_ratio(order: float, epsilon: float, delta: float) -> float:
    """epsilon / log(1/delta), of which the truncation level is made.

    The radius holds for every level. In (log(1/delta) / n)^(1-1/k), what depends on epsilon is
    (2/3) epsilon^(1/k) + 3 epsilon^(1/k-1), which is least at epsilon = 4.5 (k - 1): beyond that a
    higher level would make it grow, so that epsilon counts as no more. A delta above 1/2 is
    useless and counts as 1/2.
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
    cut_off = math.exp(min((1.0 - order) * math.log(level), _LARGEST_LOG))  # M^(1-k)
    outliers = terms.bias * (level + 1.0)
    noise = 2.0 * level / (n * epsilon) * terms.log_noise
    return sampling + largest + cut_off + outliers + noise


def raw_moment_bound(central: float, *, mean_range: float, order: float) -> float:
    """A bound on E|X|^p, if E|X - mu|^p <= central and |mu| <= mean_range.

    (central^(1/p) + mean_range)^p, by Minkowski's inequality. Lemma 10 has 2 central +
    2 mean_range^p, which is never less, since (a + b)^p <= 2^(p-1) (a^p + b^p).

    Example:
        >>> raw_moment_bound(1.0, mean_range=3.0, order=2.0)
        16.0
    """
    return float((central ** (1.0 / order) + mean_range) ** order)


def central_moment_bound(raw: float) -> float:
    """A bound on E|X - mu|^p, if E|X|^p <= raw: 4 times that, for p from 1 to 2.

    Example:
        >>> central_moment_bound(2.5)
        10.0
    """
    return 4.0 * raw
