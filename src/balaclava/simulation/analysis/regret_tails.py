"""The tails of the final regret: high quantiles with their own uncertainty, and bad runs."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from balaclava._core.extras import require_extra
from balaclava._core.number_format import percent
from balaclava.simulation.analysis.statistics import CONFIDENCE, share_interval

if TYPE_CHECKING:
    from balaclava.simulation.results import Results

TAIL_LEVELS = (0.99, 0.999, 0.9999)
TAIL_HEADER = ("policy", "quantile", "regret", "from", f"to ({CONFIDENCE:.0%})")


class RegretQuantile(NamedTuple):
    """A quantile of the final regret, between two of the runs with 95 % confidence."""

    level: float
    value: float
    low: float
    high: float


class BadRuns(NamedTuple):
    """The share of runs that cost more than a threshold, with its exact 95 % interval."""

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


def tails_of(
    values: np.ndarray, levels: Sequence[float] = TAIL_LEVELS
) -> tuple[RegretQuantile, ...]:
    """The quantiles that the runs allow for: those with runs on both sides to bound them.

    Of n runs the number below the true quantile of level q is binomial(n, q), whatever the law: so
    two ordered runs bound the quantile. The 99.9 % quantile takes 3,688 runs, that of 99.99 %
    36,887.

    >>> [tail.level for tail in tails_of(np.arange(5_000.0))]
    [0.99, 0.999]
    """
    n, error = len(values), (1 - CONFIDENCE) / 2
    levels = [level for level in levels if level**n <= error]  # else no run need be above it
    if not levels:
        return ()
    require_extra("scipy", "an interval for a quantile")
    from scipy.stats import binom

    ordered, tails = np.sort(values), []
    for level in levels:
        # The lower run is above the quantile, or the upper one below, with probability `error`.
        low, high = int(binom.ppf(error, n, level)), int(binom.ppf(1 - error, n, level)) + 1
        if low >= 1 and high <= n:
            value = float(np.quantile(ordered, level))
            tails.append(
                RegretQuantile(level, value, float(ordered[low - 1]), float(ordered[high - 1]))
            )
    return tuple(tails)


def bad_runs_of(values: np.ndarray, threshold: float) -> BadRuns:
    """How many of the runs cost more than the threshold."""
    count, runs = int((values > threshold).sum()), len(values)
    if not runs or math.isnan(threshold):
        return BadRuns(math.nan, 0.0, 1.0, runs, threshold)
    return BadRuns(count / runs, *share_interval(count, runs), runs, threshold)


def tail_cells(results: Results) -> list[tuple[str, ...]]:
    """Rows of a table: what the runs of each policy allow for."""
    return [
        (label, percent(tail.level, "g"), *(f"{number:,.5g}" for number in tail[1:]))
        for label in results.labels
        for tail in tails_of(results.final_regret(label))
    ]


def bad_runs(results: Results, factor: float, medians: Mapping[str, float]) -> dict[str, BadRuns]:
    """Bad runs of each policy: more than `factor` times a median, by default its own."""
    shares = {}
    for label in results.labels:
        final = results.final_regret(label)
        median = medians.get(label, float(np.median(final)) if len(final) else math.nan)
        # A median below 0, which losses may give, is no unit.
        shares[label] = bad_runs_of(final, factor * median if median >= 0 else math.nan)
    return shares
