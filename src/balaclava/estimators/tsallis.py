"""Chances of the arms by Tsallis entropy: the leader, regularised (Zimmert, Seldin 2021).

With p = alpha / (alpha - 1) the chances

    x = argmin over the simplex of  eta <L, x> - alpha sum_i x_i^(1/alpha)

are x_i = (g_i + z)^(-p), where g_i = eta (L_i - min L) and z is the one number at which they sum
to 1. That sum is convex and falls in z, and it is at least 1 at z = 1, since one g is 0. A step of
Newton's from any z > 0 therefore ends at or below the root, and all further ones climb towards
it. So it is safe to start from the root of the round before.
"""

from __future__ import annotations

import math

import numpy as np

from balaclava._core.kernels import kernel
from balaclava.estimators.importance import least_loss

_MOST_STEPS = 200
_SMALL = 1e-7  # relative; convergence is quadratic, so that the step after it would be of 1e-13


@kernel(borrows=True)
def tsallis_chances(
    losses: np.ndarray, eta: float, power: float, root: np.ndarray, chances: np.ndarray
) -> int:
    """Write the chances; `root` holds z between calls, at first 1. Returns the steps taken."""
    arms = losses.size
    least = least_loss(losses)
    for arm in range(arms):
        chances[arm] = eta * (losses[arm] - least)
    z = root[0]
    steps = 0
    while steps < _MOST_STEPS:
        steps += 1
        total, slope = 0.0, 0.0
        for arm in range(arms):
            inverse = 1.0 / (chances[arm] + z)
            chance = inverse * inverse if power == 2.0 else math.pow(inverse, power)
            total += chance
            slope += chance * inverse
        step = (total - 1.0) / (power * slope)
        z = max(z + step, 1.0)
        if abs(step) < _SMALL * z:
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
