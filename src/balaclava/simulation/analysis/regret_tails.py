"""Tails of the final regret: high quantiles with their intervals, and bad runs."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from balaclava._core.extras import import_extra
from balaclava._core.number_format import percent
from balaclava.simulation.analysis.statistics import CONFIDENCE, share_interval

if TYPE_CHECKING:
    from balaclava.simulation.results import Results

TAIL_LEVELS = (0.99, 0.999, 0.9999)  # one bad run in 100, 1,000 and 10,000
TAIL_HEADER = ("policy", "quantile", "regret", "from", f"to ({CONFIDENCE:.0%})")


class RegretQuantile(NamedTuple):
    """A quantile of the final regret with its 95 % interval, whose ends are runs."""

    level: float
    value: float
    low: float
    high: float


class BadRuns(NamedTuple):
    """The share of runs whose regret exceeds a threshold, with its exact 95 % interval."""

    share: float
    low: float
    high: float
    runs: int
    threshold: float

    def __str__(self) -> str:
        return (
            f"{self.share:.2g} of {self.runs:,} runs cost more than {self.threshold:,.4g} "
            f"({CONFIDENCE:.0%}: {self.low:.2g} to {self.high:.2g})"
        )


def regret_quantiles(
    values: np.ndarray, levels: Sequence[float] = TAIL_LEVELS
) -> tuple[RegretQuantile, ...]:
    """The quantiles of these levels, as far as there are enough runs to bound them.

    The number of n runs below the true quantile of level q is binomial(n, q) for any law. So two
    order statistics bound it. The 99.9 % quantile needs 3,688 runs, the 99.99 % quantile 36,887.

    >>> [tail.level for tail in regret_quantiles(np.arange(5_000.0))]
    [0.99, 0.999]
    """
    n, error = len(values), (1 - CONFIDENCE) / 2
    levels = [level for level in levels if level**n <= error]  # else all runs may lie below
    if not levels:
        return ()
    binom = import_extra("scipy.stats", "an interval for a quantile").binom
    ordered, tails = np.sort(values), []
    for level in levels:
        # Each end is on the wrong side of the quantile with probability at most `error`.
        low, high = int(binom.ppf(error, n, level)), int(binom.ppf(1 - error, n, level)) + 1
        if low >= 1 and high <= n:
            value = float(np.quantile(ordered, level))
            tails.append(
                RegretQuantile(level, value, float(ordered[low - 1]), float(ordered[high - 1]))
            )
    return tuple(tails)


def tail_cells(results: Results) -> list[tuple[str, ...]]:
    """Rows of a table with the quantiles of each policy."""
    return [
        (label, percent(tail.level, "g"), *(f"{number:,.5g}" for number in tail[1:]))
        for label in results.labels
        for tail in regret_quantiles(results.final_regret(label))
    ]


def bad_runs(results: Results, factor: float, medians: Mapping[str, float]) -> dict[str, BadRuns]:
    """Runs of each policy above `factor` times a median, by default its own."""
    shares = {}
    for label in results.labels:
        final = results.final_regret(label)
        runs = len(final)
        median = medians.get(label, float(np.median(final)) if runs else math.nan)
        # A negative median, possible with losses, cannot be a unit.
        threshold = factor * median if median >= 0 else math.nan
        shares[label] = BadRuns(math.nan, 0.0, 1.0, runs, threshold)
        if runs and not math.isnan(threshold):
            count = int((final > threshold).sum())
            shares[label] = BadRuns(count / runs, *share_interval(count, runs), runs, threshold)
    return shares
