"""How many more rows of a log would name its best arm, and how large a private trial must be.

Both are found for every world that agrees with the log (`mean_draws`), so that a lead which chance
has enlarged does not make a trial too small. The best arm of a world is named if its lead over each
rival exceeds `reach` standard deviations; the chance to miss that, added over the rivals, shall be
10 %. Laws are normal, so the numbers are about right, not exact: `bl.plan` has exact ones.
"""

import math
from collections.abc import Callable
from statistics import NormalDist
from typing import Any, NamedTuple

import numpy as np

from balaclava._core.extras import import_extra
from balaclava._core.number_format import significant
from balaclava.advice.log.log_summary import LogSummary
from balaclava.advice.plan.trial_plan import POWER
from balaclava.advice.trial.worlds import LogWorlds
from balaclava.simulation.analysis.statistics import CONFIDENCE

_QUANTILES = (0.05, 0.5, 0.95)  # of the worlds
_LARGEST_FACTOR = 1e9  # of the rows of the log; beyond it arms count as equal
_HALVINGS = 50  # of the interval of its logarithm: far below one row


class Spread(NamedTuple):
    """Quantiles over the worlds that agree with a log, 5, 50 and 95 %; inf if arms are equal."""

    low: float
    middle: float
    high: float

    @classmethod
    def of(cls, values: np.ndarray) -> "Spread":
        return cls(*(float(np.quantile(values, q, method="higher")) for q in _QUANTILES))

    def words(self, noun: str) -> str:
        """The median, its noun, and the range; two digits."""
        low, middle, high = (significant(float(f"{each:.2g}")) for each in self)
        end = high if math.isfinite(self.high) else "no limit, as arms may be equal"
        return f"about {middle}{noun} ({low} to {end}, in 90 % of the worlds)"


class RowsNeeded(NamedTuple):
    """What it takes to name the best arm of a log at 95 % confidence, in 90 % of the cases."""

    lead: Spread  # of the best arm over the second best
    rows: Spread  # further rows like those of the log
    participants: Spread | None  # of a private trial; None if rewards have no known range
    epsilon: float
    conclusive: bool  # the log names its best arm already

    def to_dict(self) -> dict[str, Any]:
        """As plain values, for JSON."""
        spreads = {name: getattr(self, name) for name in ("lead", "rows", "participants")}
        return {name: each and each._asdict() for name, each in spreads.items()}

    def sentences(self) -> list[str]:
        """The numbers, in sentences."""
        if math.isinf(self.rows.middle):
            return [
                "How many more rows would tell which arm is best is unknown: arms may be equal."
            ]
        sentences = [f"Corrected for chance, the best arm leads by {self.lead.words('')}."]
        if not self.conclusive:
            more = self.rows.words(" more rows like these")
            sentences.append(f"To tell which arm is best takes {more}.")
        if self.participants is not None:
            sentences.append(
                "A private trial with even shares (dp-even) that names it at epsilon "
                f"{self.epsilon:g} takes {self.participants.words(' participants')}; `balaclava "
                "plan` has other policies."
            )
        return sentences


def rows_needed(
    log: LogSummary, worlds: LogWorlds, count: int, seed: int, epsilon: float
) -> RowsNeeded:
    """Find the rows and the participants in `count` worlds."""
    means = worlds.means(count, np.random.default_rng(seed))
    effective = np.array([max(row.effective, 1.0) for row in log.arms])
    variances = effective * np.array([row.error for row in log.arms]) ** 2
    spread = means * (1.0 - means) if worlds.binary else np.broadcast_to(variances, means.shape)
    best = means.argmax(axis=1)[:, None]
    rivals = np.arange(means.shape[1]) != best
    gaps = np.where(rivals, np.take_along_axis(means, best, 1) - means, math.inf)

    def pair_variance(each: np.ndarray) -> np.ndarray:
        """Variance of the difference of the best arm and each other."""
        return each + np.take_along_axis(each, best, 1)

    pairs, sampling = means.shape[1] - 1, pair_variance(spread / effective)
    # Both tests correct for the pairs; that of a log has two sides.
    two, one = (NormalDist().inv_cdf(1.0 - (1.0 - CONFIDENCE) / (k * pairs)) for k in (2, 1))
    factor = smallest_factor(gaps, two, lambda size: sampling / size)
    participants, total = None, float(log.rows)
    limits = log.reward_range if log.clip is None else log.clip
    if log.kind == "bounded" or log.clip is not None:
        arm = total / means.shape[1]  # rows of an arm, if shares were even
        even, noise = pair_variance(spread) / arm, (limits[1] - limits[0]) / (epsilon * arm)
        sizes = smallest_factor(gaps, one, lambda size: even / size + 4.0 * (noise / size) ** 2)
        participants = Spread.of(np.ceil(total * sizes))
    return RowsNeeded(
        Spread.of(gaps.min(axis=1)),
        Spread.of(np.ceil(total * np.maximum(factor - 1.0, 0.0))),
        participants,
        epsilon,
        log.best_arm_test.conclusive,
    )


def smallest_factor(
    gaps: np.ndarray, reach: float, variance: Callable[[np.ndarray], np.ndarray]
) -> np.ndarray:
    """The least factor of the rows of a log with which each world misses in 10 % of the cases."""
    ndtr = import_extra("scipy.special", "the rows that a log lacks").ndtr
    low, high = np.full((2, len(gaps), 1), [[[1.0 / _LARGEST_FACTOR]], [[_LARGEST_FACTOR]]])
    for _ in range(_HALVINGS):
        middle = np.sqrt(low * high)
        spread = np.sqrt(variance(middle))
        # Without a spread, any gap is certain, and none is none.
        surely = np.where(gaps > 0, math.inf, 0.0)
        misses = ndtr(reach - np.divide(gaps, spread, out=surely, where=spread > 0))
        enough = misses.sum(axis=1, keepdims=True) <= 1.0 - POWER
        low, high = np.where(enough, low, middle), np.where(enough, middle, high)
    return np.where(high[:, 0] < 0.5 * _LARGEST_FACTOR, high[:, 0], math.inf)
