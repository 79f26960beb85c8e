"""AdaP-TT and DP-BAI: figures of their rules, and what they cost beside the package's policies."""

from __future__ import annotations

import numpy as np
import pytest

import best_arm
from tests.oracles.best_arm_rivals import (
    adap_tt,
    halving_answers,
    heuristic_threshold,
    proved_threshold,
)


def test_thresholds_by_hand():
    """At n = m = 100, 5 arms, phase 7, delta 0.01 and epsilon 1, from the formulas."""
    assert proved_threshold(100, 100, 5, 7, 0.01, 1.0) == pytest.approx(24.84, abs=0.01)
    assert heuristic_threshold(100, 100, 5, 7, 0.01, 1.0) == pytest.approx(8.48, abs=0.01)


def test_dp_top_two_needs_a_tenth_of_the_rounds():
    """Medians of 40 and 100 runs; they differ by a factor of 27, and by 10 with the heuristic."""
    means = best_arm.LINEAR
    ours = np.median(best_arm.play(best_arm.top_two(means, 1.0, 0.99), means, 100, seed=1)[:, 0])
    for proved, least in ((True, 15), (False, 6)):
        out = adap_tt(np.array(means), 1.0, 0.01, proved, 10**6, 40, 1)
        assert (out[:, 1] == 0).mean() >= 0.9
        assert np.median(out[:, 0]) > least * ours


def test_to_keep_earlier_rewards_errs_less_often():
    """20,000 runs each: 2.2 % against 6.7 % on the linear arms after 400 rounds."""
    errors = [
        (halving_answers(best_arm.LINEAR, 1.0, 400, 20_000, 1, forget=forget) != 0).mean()
        for forget in (False, True)
    ]
    assert errors[0] < 0.5 * errors[1]
