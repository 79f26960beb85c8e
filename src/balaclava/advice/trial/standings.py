"""How policies did over worlds that were drawn from a log."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from balaclava.advice.choose.contest import RELEVANT_SHARE
from balaclava.simulation.analysis.statistics import plus_minus
from balaclava.simulation.results import Results

AT_RANDOM = "at random"
RADIUS_SCALE = "radius_scale"


class Standing(NamedTuple):
    """How a policy did: its regret over worlds that the log leaves possible."""

    label: str
    guarantee: str
    mean: float
    plus_minus: float  # half the width of the 95 % interval for the mean
    low: float  # 5 % of the worlds
    high: float  # 95 % of them
    share: float  # of the regret of playing at random in the same worlds
    share_plus_minus: float
    beats_random: bool  # by a margin that matters, beyond chance


def make_standing(results: Results, label: str, at_random: np.ndarray) -> Standing:
    """How a policy did against playing at random in the same worlds."""
    regret = results.final_regret(label)
    unit = float(at_random.mean())
    share, reach = mean_ratio(regret, at_random)
    margin = regret - RELEVANT_SHARE * at_random
    low, high = np.quantile(regret, (0.05, 0.95))
    return Standing(
        label,
        results.guarantee(label),
        float(regret.mean()),
        float(plus_minus(regret)),
        float(low),
        float(high),
        share,
        reach,
        bool(unit > 0 and margin.mean() + plus_minus(margin) < 0),
    )


def mean_ratio(values: np.ndarray, units: np.ndarray) -> tuple[float, float]:
    """The ratio of two means over the same worlds, and its plus-minus; NaN for one that is 0."""
    unit = float(units.mean())
    if unit <= 0:
        return np.nan, np.nan
    mean_ratio = float(values.mean()) / unit
    return mean_ratio, float(plus_minus(values - mean_ratio * units)) / unit
