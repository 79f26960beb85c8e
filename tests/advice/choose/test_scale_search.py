"""The cost of a scale, and what a search never changes."""

from __future__ import annotations

import numpy as np
import pytest

import balaclava as bl
from balaclava.advice.choose.scale_search import ScaleSearch, with_scale
from balaclava.errors import ParameterError
from balaclava.simulation.feedback import Feedback

WORLDS = [bl.environment("bernoulli", means=[0.5, 0.5 + gap]) for gap in (0.1, 0.3)]


HOW = {"horizon": 2_000, "repetitions": 20, "seed": 1, "workers": 1}


def ucb1(**changes):
    return bl.policy("ucb1", **{"arms": 2, **changes})


def test_a_rare_failure_outweighs_a_better_mean():
    """Of two scales the one with a lower mean and a far worse run loses."""
    search = ScaleSearch(ucb1(), "radius_scale", {"a": WORLDS[0]}, 10, 1, Feedback(), 1, None)
    safe, risky = np.full(100, 50.0), np.append(np.full(99, 20.0), 2_000.0)
    assert risky.mean() < safe.mean()
    search.finals = {(100, 1.0): [safe], (100, 0.1): [risky]}
    assert search.best(100) == 1.0
    # Equal costs, and costs of 0: the larger scale, which is the more careful one.
    search.finals = {(100, 0.1): [np.zeros(100)], (100, 1.0): [np.zeros(100)]}
    assert search.best(100) == 1.0


def test_a_risk_is_a_quantile():
    """What fails in 1 run of 200 is beside the 99 % quantile and within the 99.9 % one."""
    search = ScaleSearch(ucb1(), "radius_scale", {"a": WORLDS[0]}, 10, 1, Feedback(), 1, None)
    safe, risky = np.full(4_000, 50.0), np.append(np.full(3_980, 20.0), np.full(20, 900.0))
    search.finals = {(4_000, 1.0): [safe], (4_000, 0.1): [risky]}
    assert search.best(4_000) == 1.0  # the worst run counts: 24.4 + 90 against 50 + 5
    search.risk = 0.99
    assert search.best(4_000) == 0.1
    search.risk = 0.999
    assert search.best(4_000) == 1.0


def test_privacy_is_left_alone():
    policy = bl.policy("dp-imed", arms=2, epsilon=1.0)
    with pytest.raises(ParameterError, match="changes the guarantee"):
        with_scale(policy, "epsilon", 2.0)
    with pytest.raises(ParameterError, match="changes the guarantee"):
        bl.calibrate(policy, WORLDS, **HOW, scales=[1.0, 2.0], parameter="epsilon")
    with pytest.raises(ParameterError, match="changes the guarantee"):  # on the default grid too
        bl.calibrate(policy, WORLDS, **HOW, parameter="epsilon")
