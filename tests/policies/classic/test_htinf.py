"""HTINF: its threshold on losses."""

from __future__ import annotations

import math

import pytest

import balaclava as bl
from balaclava.policies.classic.htinf import threshold_factor
from balaclava.privacy.randomness import seeded


def test_threshold_of_htinf() -> None:
    assert threshold_factor(2.0) == pytest.approx(0.2062994740159002, rel=1e-14)
    assert threshold_factor(1.5) == pytest.approx(0.1591035847462855, rel=1e-14)
    assert threshold_factor(1.2) == pytest.approx(0.09427633573609329, rel=1e-14)
    # At the switch of formulas the second branch is still the larger one.
    assert threshold_factor(1.9989) == pytest.approx(threshold_factor(1.9991), rel=1e-3)


def test_htinf_leaves_out_losses_that_are_too_large_either_way() -> None:
    policy = bl.policy("htinf", arms=2, sigma=1.0)
    params, (begin, choose, learn, _) = policy.constants(), policy.kernels
    limit = threshold_factor(2.0) * math.sqrt(0.5)
    for loss, counts in ((limit * 0.99, True), (limit * 1.01, False), (-limit * 1.01, False)):
        state = begin(params)
        arm, phase = choose(params, state, 1, None, seeded(1))
        learn(params, state, 1, arm, loss, phase, seeded(1))
        assert state.losses[arm] == (pytest.approx(2 * loss) if counts else 0.0)
