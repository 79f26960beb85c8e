"""Probabilities of the arms in adversarial bandits, and draws from them.

Tsallis entropy (Zimmert, Seldin 2021).
    With p = alpha / (alpha - 1) the probabilities

        x = argmin over the simplex of  eta <L, x> - alpha sum_i x_i^(1/alpha)

    are x_i = (g_i + z)^(-p), where g_i = eta (L_i - min L) and z is the one number at which they
    sum to 1. That sum is convex and decreases in z. It is at least 1 at z = 1, since one g is 0.
    A Newton step from any z > 0 therefore ends at or below the root, and further steps increase to
    it. So the root of the previous round is a safe start.

The perturbed leader.
    Every arm's loss gets Laplace noise, and the arm with the least noisy loss leads. With losses l
    in units of the noise scale, and the density f and tail S of the noise,

        P(arm i leads) = integral of f(x - l_i) prod over j != i of S(x - l_j) dx.

    Between two losses the integrand is a polynomial in e^x and e^-x. Its terms cancel, so a closed
    form would lose its digits; each piece is integrated numerically.
"""

import math
from typing import Any

import numpy as np

from balaclava._core.kernels import kernel

# Bound on sums of estimated losses, so that their differences stay finite floats (below 1.8e308).
LARGEST_LOSS_SUM = 1e300
# Newton steps at most: a guard against an endless loop, far above the usual number.
_TSALLIS_STEPS = 200
# Relative size of the last Newton step: convergence is quadratic, so the next would be 1e-13.
_TSALLIS_ACCURACY = 1e-7
# In noise scales: beyond it an arm leads with probability below e^-40, less than float rounding.
_LEADER_REACH = 40.0
# Gauss-Legendre rule: 16 points on each piece, which is at most one noise scale long.
_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(16)


@kernel(borrows=True)
def draw_arm(chances: np.ndarray, rng: Any) -> int:
    """Draw an arm by its probability, but never one with probability 0 by rounding."""
    remainder = rng.random()
    pick = 0
    for arm in range(chances.size):
        if chances[arm] > 0.0:
            pick = arm
            remainder -= chances[arm]
            if remainder < 0.0:
                break
    return pick


@kernel(borrows=True)
def add_loss(losses: np.ndarray, arm: int, estimate: float) -> None:
    losses[arm] = min(max(losses[arm] + estimate, -LARGEST_LOSS_SUM), LARGEST_LOSS_SUM)


@kernel(borrows=True)
def least_loss(losses: np.ndarray) -> float:
    least = losses[0]
    for arm in range(1, losses.size):
        least = min(least, losses[arm])
    return least


@kernel(borrows=True)
def tsallis_chances(
    losses: np.ndarray, eta: float, power: float, root: np.ndarray, chances: np.ndarray
) -> int:
    """Write the probabilities to `chances` and return the number of Newton steps.

    `root` keeps z between calls; it starts at 1.
    """
    arms = losses.size
    least = least_loss(losses)
    for arm in range(arms):
        chances[arm] = eta * (losses[arm] - least)
    z = root[0]
    steps = 0
    while steps < _TSALLIS_STEPS:
        steps += 1
        total, slope = 0.0, 0.0
        for arm in range(arms):
            inverse = 1.0 / (chances[arm] + z)
            chance = inverse * inverse if power == 2.0 else math.pow(inverse, power)
            total += chance
            slope += chance * inverse
        step = (total - 1.0) / (power * slope)
        z = max(z + step, 1.0)
        if abs(step) < _TSALLIS_ACCURACY * z:
            break
    root[0] = z
    total = 0.0
    for arm in range(arms):
        inverse = 1.0 / (chances[arm] + z)
        chances[arm] = inverse * inverse if power == 2.0 else math.pow(inverse, power)
        total += chances[arm]
    for arm in range(arms):
        chances[arm] /= total
    return steps


def chances_to_lead(losses: np.ndarray, spread: float) -> np.ndarray:
    """Probability of each arm that its loss + Lap(spread) is the least; ties: the lowest arm.

    >>> chances_to_lead(np.array([0.0, 1.0]), 1.0).round(6)  # the second is 3 / (4 e)
    array([0.72409, 0.27591])
    """
    if spread == 0.0:
        return (np.arange(losses.size) == np.argmin(losses)).astype(float)
    scaled = np.minimum((losses - losses.min()) / spread, 1e9)
    ends = np.unique(
        [*np.arange(-_LEADER_REACH, _LEADER_REACH + 1.0), *scaled[scaled < _LEADER_REACH]]
    )
    half = 0.5 * np.diff(ends)[:, None]
    x = (ends[:-1, None] + half + half * _NODES).ravel()
    total = np.sum([log_tail(x - loss) for loss in scaled], axis=0)
    weights = (half * _WEIGHTS).ravel()
    return np.array(
        [weights @ (0.5 * np.exp(total - log_tail(x - loss) - np.abs(x - loss))) for loss in scaled]
    )


def log_tail(x: np.ndarray) -> np.ndarray:
    """log P(Z > x) of Laplace noise of scale 1."""
    return np.where(x < 0.0, np.log1p(-0.5 * np.exp(np.minimum(x, 0.0))), np.log(0.5) - x)
