"""Regret of policies over worlds drawn from a log, against playing at random there."""

from typing import NamedTuple

import numpy as np

from balaclava.advice.choose.contest import RELEVANT_SHARE
from balaclava.simulation.analysis.statistics import plus_minus
from balaclava.simulation.results import Results

AT_RANDOM = "at random"  # label of the policy that plays arms uniformly
_SPREAD_QUANTILES = (0.05, 0.95)  # of the regret over worlds, as displayed


class Standing(NamedTuple):
    """The regret of a policy over drawn worlds. Field names are those of the JSON output."""

    label: str
    guarantee: str
    mean: float
    plus_minus: float  # half the width of the 95 % interval for the mean
    low: float  # 5 % quantile over worlds
    high: float  # 95 % quantile
    share: float  # of the regret of playing at random in the same worlds
    share_plus_minus: float
    beats_random: bool  # by a relevant margin, beyond chance


def rank_policies(results: Results, random_regret: np.ndarray) -> tuple[Standing, ...]:
    """The standings of all policies, least mean regret first."""
    standings = [_standing(results, label, random_regret) for label in results.labels]
    return tuple(sorted(standings, key=lambda row: row.mean))


def _standing(results: Results, label: str, random_regret: np.ndarray) -> Standing:
    regret = results.final_regret(label)
    share, reach = mean_ratio(regret, random_regret)
    margin = regret - RELEVANT_SHARE * random_regret
    low, high = np.quantile(regret, _SPREAD_QUANTILES)
    return Standing(
        label,
        results.guarantee(label),
        float(regret.mean()),
        float(plus_minus(regret)),
        float(low),
        float(high),
        share,
        reach,
        bool(random_regret.mean() > 0 and margin.mean() + plus_minus(margin) < 0),
    )


def mean_ratio(values: np.ndarray, units: np.ndarray) -> tuple[float, float]:
    """The ratio of two means over the same worlds, and its plus-minus; NaN if the unit is 0."""
    unit = float(units.mean())
    if unit <= 0:
        return np.nan, np.nan
    ratio = float(values.mean()) / unit
    return ratio, float(plus_minus(values - ratio * units)) / unit
