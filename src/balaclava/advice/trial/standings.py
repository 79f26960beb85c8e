"""Regret of policies over worlds drawn from a log, against playing at random there."""

from typing import Any, NamedTuple

import numpy as np

from balaclava.advice.choose.contest import RELEVANT_SHARE
from balaclava.simulation.analysis.statistics import plus_minus
from balaclava.simulation.results import Results

AT_RANDOM = "at random"  # label of the policy that plays arms uniformly
_SPREAD_QUANTILES = (0.05, 0.95)  # of the regret over worlds, as displayed
_SHARE_QUANTILES = (0.025, 0.975)  # of worlds, by how much playing at random loses in them
# A policy's share of the regret u of playing at random falls from 1 as 1 / (1 + (u / c)^1.5), for
# some c. With this exponent four policies on 12 problems are within 0.05; with 1 or 2, within 0.12
# (benchmarks/compare_calibration.py --curves).
_SHARE_EXPONENT = 1.5


class Standing(NamedTuple):
    """The regret of a policy over drawn worlds. Field names are those of the JSON output."""

    label: str
    guarantee: str
    mean: float
    plus_minus: float  # half the width of the 95 % interval for the mean
    low: float  # 5 % quantile over worlds
    high: float  # 95 % quantile
    share: float  # of the regret of playing at random, averaged over worlds
    share_plus_minus: (
        float  # half the width of the 95 % interval of the ratio of the regrets played
    )
    share_low: float  # 95 % interval for the world behind the log, which allows for that too
    share_high: float
    beats_random: bool  # by a relevant margin, in all of that interval


def rank_policies(
    results: Results, random_regret: np.ndarray, plausible: np.ndarray | None = None
) -> tuple[Standing, ...]:
    """The standings of all policies, least mean regret first.

    `results` has a run in each world, `random_regret` the regret of playing at random there, and
    `plausible` the same in many more worlds, in which nothing was played.
    """
    plausible = random_regret if plausible is None else plausible
    standings = [_standing(results, each, random_regret, plausible) for each in results.labels]
    return tuple(sorted(standings, key=lambda row: row.mean))


def _standing(
    results: Results, label: str, random_regret: np.ndarray, plausible: np.ndarray
) -> Standing:
    regret = results.final_regret(label)
    ratio, reach = mean_ratio(regret, random_regret)
    low, high = np.quantile(regret, _SPREAD_QUANTILES)
    share, share_low, share_high = _share_interval(ratio, reach, random_regret, plausible)
    return Standing(
        label,
        results.guarantee(label),
        float(regret.mean()),
        float(plus_minus(regret)),
        *(float(low), float(high)),
        *(share, reach),
        *(share_low, share_high),
        share_high < RELEVANT_SHARE,
    )


def _share_interval(
    ratio: float, reach: float, random_regret: np.ndarray, plausible: np.ndarray
) -> tuple[float, float, float]:
    """The average share over plausible worlds, and an interval for the world behind the log.

    The smaller the gaps of a world, the less a policy learns. With equal arms no policy beats
    playing at random, so the share is 1. `reach` is the error of the ratio of the regrets played;
    it is added as independent. All are NaN if the ratio is.
    """
    if not ratio < 1:
        return ratio, min(ratio - reach, 1.0), ratio + reach
    unit = _fitted_unit(ratio, random_regret)
    share = float(_share_at(plausible, unit).mean())
    high, low = _share_at(np.quantile(plausible, _SHARE_QUANTILES), unit)
    below, above = (float(np.hypot(reach, end - share)) for end in (low, high))
    return share, max(share - below, 0.0), share + above


def _share_at(random_regret: Any, unit: float) -> Any:
    return 1 / (1 + (random_regret / unit) ** _SHARE_EXPONENT)


def _fitted_unit(share: float, random_regret: np.ndarray) -> float:
    """The c for which the worlds played have this share; it grows with the share."""
    low, high = (float(random_regret.max()) * factor for factor in (1e-9, 1e9))
    while high > 1.001 * low:
        middle = (low * high) ** 0.5
        mean = float(np.average(_share_at(random_regret, middle), weights=random_regret))
        low, high = (middle, high) if mean < share else (low, middle)
    return high


def mean_ratio(values: np.ndarray, units: np.ndarray) -> tuple[float, float]:
    """The ratio of two means over the same worlds, and its plus-minus; NaN if the unit is 0."""
    unit = float(units.mean())
    if unit <= 0:
        return np.nan, np.nan
    ratio = float(values.mean()) / unit
    return ratio, float(plus_minus(values - ratio * units)) / unit
