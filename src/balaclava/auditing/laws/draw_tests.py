"""Tests of draws against a law: its shape, scale, tails, centre, repeats and order.

A test of the whole shape misses a rare share of draws, and a scale that is a little off. So the
centre and the tails are counted, and the scale is tested by itself.
"""

import math
from typing import Any

import numpy as np

from balaclava._core.extras import require_extra

LAW_ERROR = 1e-7  # the probability that draws which follow a law fail its tests
_LAW_QUANTILES = 512  # points at which a law is compared with its draws; a guess
_CELL_MASSES = (1e-5, 1e-4, 1e-3, 1e-2, 0.1)  # of the centre and of each tail
_NUMBER_OF_TESTS = 20
_MOST_ATOMS = 64  # of a discrete law, whose shares are compared one by one
_FEWEST_REPEATS = 5  # equal answers to one value, before they are compared with another value's
_FEWEST_BARE = 2  # answers that equal a value on no grid
_SHARED_REPEATS = 0.05  # of repeats: at most so many occur for another value if they depend on it


def follows_law(sample: np.ndarray, law: Any, error: float = LAW_ERROR) -> bool:
    """Whether draws pass the test of Dvoretzky, Kiefer and Wolfowitz at this error probability."""
    allowed = math.sqrt(math.log(2 / error) / (2 * sample.size))
    ordered = np.sort(sample)
    points = ordered[np.linspace(0, ordered.size - 1, _LAW_QUANTILES).astype(int)]
    share = np.searchsorted(ordered, points, side="right") / ordered.size
    return bool(np.abs(share - law.cdf(points)).max() <= allowed)


def law_test_fault(sample: np.ndarray, law: Any) -> str:
    """How draws differ from a law, or ""."""
    if not follows_law(sample, law, LAW_ERROR / _NUMBER_OF_TESTS):
        return "its draws do not follow the law that it declares"
    return atoms_fault(sample, law) if hasattr(law, "pmf") else cells_fault(sample, law)


def atoms_fault(sample: np.ndarray, law: Any) -> str:
    """Whether the shares of a discrete law differ from its probabilities."""
    values, counts = np.unique(sample, return_counts=True)
    if values.size > _MOST_ATOMS:
        return ""
    wrong = _improbable(counts, sample.size, np.asarray(law.pmf(values), float))
    return "its draws do not follow the law that it declares: a share is wrong" if wrong else ""


def cells_fault(sample: np.ndarray, law: Any) -> str:
    """Whether the scale, the centre, a tail or the order of draws is wrong."""
    require_extra("scipy", "an audit")
    from scipy import special

    below, above = law.cdf(sample), law.sf(sample)
    with np.errstate(divide="ignore", invalid="ignore"):
        scores = np.where(below < 0.5, special.ndtri(below), -special.ndtri(above))
    limit = -float(special.ndtri(LAW_ERROR / _NUMBER_OF_TESTS)) / math.sqrt(sample.size)
    if not abs(scores.mean()) <= limit:
        return "its draws do not follow the law that it declares: their mean is wrong"
    if not abs(float((scores**2).mean()) - 1.0) <= math.sqrt(2.0) * limit:
        return "its draws do not follow the law that it declares: their scale is wrong"
    if not abs(float((scores[1:] * scores[:-1]).mean())) <= limit * 1.1:
        return "its draws are not independent of each other"
    for mass in _CELL_MASSES:
        parts = (np.abs(below - above) < mass, below < mass, above < mass)
        counts = np.array([int(part.sum()) for part in parts])
        if _improbable(counts, sample.size, np.full(3, mass)):
            return (
                "its draws do not follow the law that it declares: too many or too few are near "
                "the centre or far out"
            )
    return ""


def _improbable(counts: np.ndarray, size: int, chances: np.ndarray) -> bool:
    from scipy import stats

    law = stats.binom(size, chances)
    tails = np.minimum(law.cdf(counts), law.sf(counts - 1))
    return bool((tails < LAW_ERROR / _NUMBER_OF_TESTS).any())


def repeats_fault(sample: np.ndarray, other: np.ndarray, value: float) -> str:
    """Whether answers to a value repeat, while answers to another value avoid them.

    Continuous noise never repeats. Answers that are rounded repeat, but for every value alike.
    Noise on a coarse grid, or none at times, leaves answers by which the value is known.
    """
    repeats = sample.size - np.unique(sample).size
    bare = int((sample == value).sum())
    if repeats < _FEWEST_REPEATS and bare < _FEWEST_BARE:
        return ""
    if int(np.isin(sample, other).sum()) > _SHARED_REPEATS * repeats:
        return ""
    if bare >= repeats:
        return f"it answered without noise in {bare:,} of {sample.size:,} draws"
    return "its answers repeat on a grid that depends on the value, so low digits of it are kept"
