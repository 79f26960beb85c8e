"""Statistics of many repetitions: means with intervals, shares, proved bounds.

A plus-minus is half the width of a 95 % interval, in all tables, plots and pages.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from balaclava._core.extras import import_extra
from balaclava.errors import IncompatibleError

if TYPE_CHECKING:
    from balaclava.simulation.results import Results

CONFIDENCE = 0.95  # of every interval, by convention
NORMAL_REACH = 1.96  # standard errors on each side: the 97.5 % quantile of the normal law
_ROUNDING_OF_A_MEAN = (
    1e-12  # of the largest value: far above the rounding of a sum, far below any spread
)


def plus_minus(values: np.ndarray) -> Any:
    """Half the width of Student's 95 % interval for the mean over the first axis.

    NaN for a single value.

    >>> round(float(plus_minus(np.array([1.0, 2.0, 3.0, 4.0]))), 3)
    2.054
    >>> float(plus_minus(np.full(3, 0.1)))  # the error of rounding is none of the sample
    0.0
    """
    count = len(values)
    if count < 2:
        return np.full(np.shape(values)[1:], math.nan)[()]
    stdtrit = import_extra("scipy.special", "an interval for a mean").stdtrit
    reach = stdtrit(count - 1, (1 + CONFIDENCE) / 2)
    rounding = _ROUNDING_OF_A_MEAN * np.abs(values).max(axis=0)
    deviation = np.where(np.ptp(values, axis=0) <= rounding, 0.0, np.std(values, axis=0, ddof=1))
    return (reach * deviation / math.sqrt(count))[()]


def clopper_pearson(
    successes: np.ndarray | int, trials: np.ndarray | int, error: float
) -> tuple[np.ndarray, np.ndarray]:
    """One-sided bounds on a probability, each wrong with probability at most `error`.

    The intervals of Clopper and Pearson (1934), which are exact.
    """
    beta = import_extra("scipy.stats", "an interval for a share").beta
    successes = np.asarray(successes, dtype=np.float64)
    with np.errstate(invalid="ignore"):
        low = np.where(successes > 0, beta.ppf(error, successes, trials - successes + 1), 0.0)
        high = np.where(
            successes < trials, beta.ppf(1 - error, successes + 1, trials - successes), 1.0
        )
    return low, high


def share_interval(successes: int, trials: int) -> tuple[float, float]:
    """The exact 95 % interval for a probability.

    >>> tuple(round(end, 3) for end in share_interval(1, 10))
    (0.003, 0.445)
    """
    low, high = clopper_pearson(successes, trials, (1 - CONFIDENCE) / 2)
    return float(low), float(high)


def mean_of_regret(results: Results, label: str) -> tuple[float, float]:
    """The mean final regret of a policy and its plus-minus."""
    final = results.final_regret(label)
    return float(final.mean()), float(plus_minus(final))


def best_arm_share(results: Results, label: str) -> float:
    """The share of pulls of an arm with the highest mean.

    NaN with contexts: which arm is best then depends on the context.
    """
    if results.environment.dimension is not None:
        return math.nan
    pulls = results.pulls(label)
    return float(pulls[:, results.environment.gaps == 0].sum() / pulls.sum())


def proved_bound(results: Results, label: str, rounds: int) -> float | None:
    """The proved bound on a policy's expected regret after `rounds` rounds, if there is one.

    None if rewards were late or lost: the theorems assume prompt rewards. None also for a results
    file of an environment made from data, which does not contain the means.
    """
    if not results.feedback.prompt:
        return None
    try:
        bound = results.policies[label].regret_bound(results.environment, rounds)
    except IncompatibleError:
        return None
    return bound if bound is not None and math.isfinite(bound) else None
