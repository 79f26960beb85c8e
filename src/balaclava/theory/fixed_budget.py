"""The chance that sequential halving ends with a wrong arm.

Stage r ends when each arm in play has n_r pulls. The k_r arms with the highest released means stay.
A mean is that of all n_r rewards, which lie in [0, 1], with r draws of Laplace noise of scale b in
their sum. All n_r and k_r are fixed beforehand, and the last k_r is 1.

For an arm of mean v and a better one of mean u, let p be the chance that the released mean of the
first is at least that of the second, after n pulls of each. For every x in (0, 1/b)

    log p <= n log(1 - v + v e^x) + n log(1 - u + u e^-x) - 2 r log(1 - b^2 x^2).

Let p_1 >= p_2 >= ... be these bounds for a best arm and each other arm, at stage r. Then

    P(the best arm leaves at stage r) <= min over j <= k_r of (sum of p_i, i > k_r - j) / j.

The sum over the stages bounds the chance of error.

Proof.
    The first bound is Chernoff's: exp(x X) lies below its chord on [0, 1], and a draw W has
    E exp(x W) = 1/(1 - b^2 x^2). Rewards are rounded by at most half a grid step g, so v is raised
    by g, and u lowered by g. `laplace_scale` allows for the noise that is released.

    Give every arm its own sequence of rewards and noise, whether or not it is played. Its mean at
    stage r is then a function of that sequence, as n_r does not depend on data. If a best arm
    leaves at stage r, at least k_r arms have a mean as high as its own. Leave any k_r - j of the
    other arms out: at least j of the rest do. By Markov's inequality the chance is at most the
    expected number of those, over j. Nothing here needs the comparisons to be independent, so the
    stages may share rewards.
"""

import math
from collections.abc import Sequence

import numpy as np

from balaclava.theory.confidence_sequences import REWARD_GRID, laplace_scale

# The grid of x, as shares of its largest value: every x is valid, a finer grid gains little.
_RATE_GRID = np.concatenate([np.geomspace(1e-6, 0.1, 100), np.linspace(0.1, 0.999, 200)])
_LARGEST_TILT = 30.0  # of x: beyond it, e^-x is far below the grid of rewards


def overtake_chance(worse: float, better: float, pulls: int, draws: int, epsilon: float) -> float:
    """Bound on the chance that the worse arm's released mean is at least the better arm's.

    Example:
        >>> round(overtake_chance(0.5, 0.7, 100, 1, 1.0), 4)
        0.0201
    """
    scale = laplace_scale(epsilon)
    x = _RATE_GRID * min(1.0 / scale, _LARGEST_TILT)
    low, high = min(worse + REWARD_GRID, 1.0), max(better - REWARD_GRID, 0.0)
    rewards = np.log1p(low * np.expm1(x)) + np.log1p(high * np.expm1(-x))
    logs = pulls * rewards - 2.0 * draws * np.log1p(-((scale * x) ** 2))
    return math.exp(min(float(logs.min()), 0.0))


def halving_error(
    means: Sequence[float], pulls: Sequence[int], keeps: Sequence[int], epsilon: float
) -> float:
    """Bound on the chance that halving ends with an arm that is not the best.

    Args:
        means: The arms' means, in [0, 1].
        pulls: Of each arm in play, from the start to the end of each stage.
        keeps: The arms that stay after each stage.
        epsilon: The privacy loss of a release.

    Returns:
        The bound, at most 1. It is 1 if two arms are best: either answer is right then.

    Example:
        >>> round(halving_error([0.3, 0.4, 0.5, 0.7], [60, 150], [2, 1], 1.0), 4)
        0.0107
    """
    *others, best = sorted(means)
    error = 0.0
    for stage, (n, keep) in enumerate(zip(pulls, keeps, strict=True), start=1):
        chances = [overtake_chance(mean, best, n, stage, epsilon) for mean in reversed(others)]
        error += min(sum(chances[keep - j :]) / j for j in range(1, keep + 1))
    return min(error, 1.0)
