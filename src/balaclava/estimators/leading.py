"""The chance that an arm leads once every arm's loss was moved by Laplace noise.

With losses l in units of the scale of the noise, its density f and its tail S,

    P(arm i has the least) = integral of f(x - l_i) prod over j != i of S(x - l_j) dx.

Between two losses the integrand is a polynomial in e^x and e^-x, whose terms cancel when they are
written out: there is no closed form to compute by. It is integrated piece by piece.
"""

from __future__ import annotations

import numpy as np

REACH = 40.0  # what lies further from the least loss has a chance below e^-40
NODES, WEIGHTS = np.polynomial.legendre.leggauss(16)


def chances_to_lead(losses: np.ndarray, spread: float) -> np.ndarray:
    """Each arm's chance that its loss + Lap(spread) is the least; ties go to the lowest arm.

    >>> chances_to_lead(np.array([0.0, 1.0]), 1.0).round(6)  # the second is 3 / (4 e)
    array([0.72409, 0.27591])
    """
    if spread == 0.0:
        return (np.arange(losses.size) == np.argmin(losses)).astype(float)
    scaled = np.minimum((losses - losses.min()) / spread, 1e9)
    ends = np.unique([*np.arange(-REACH, REACH + 1.0), *scaled[scaled < REACH]])
    half = 0.5 * np.diff(ends)[:, None]
    x = (ends[:-1, None] + half + half * NODES).ravel()
    total = np.sum([log_tail(x - loss) for loss in scaled], axis=0)
    weights = (half * WEIGHTS).ravel()
    return np.array(
        [weights @ (0.5 * np.exp(total - log_tail(x - loss) - np.abs(x - loss))) for loss in scaled]
    )


def log_tail(x: np.ndarray) -> np.ndarray:
    """log P(Z > x) of Laplace noise of scale 1."""
    return np.where(x < 0.0, np.log1p(-0.5 * np.exp(np.minimum(x, 0.0))), np.log(0.5) - x)
