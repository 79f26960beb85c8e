"""Reports of the smallest and the largest reward, told apart."""

from __future__ import annotations

import pytest

import balaclava as bl
from balaclava.auditing.laws.local_reports import audit_reports, first_level

HEAVY = {"arms": 2, "epsilon": 1.0, "horizon": 600, "moment_order": 1.9, "moment_bound": 2.0}


@pytest.mark.statistical
def test_rewards_without_limits_are_told_apart_at_the_level_of_the_first_report() -> None:
    """A bound above 1 has probability 10^-4; the reports' ratio is e."""
    policy = bl.policy("ldpr-batch-ucb", **HEAVY)
    assert first_level(policy) > 0.0
    found = audit_reports(policy, 1.0, 0.0, trials=40_000, seed=1, confidence=0.95)
    assert (found.verdict, found.games) == ("consistent", 40_000)
    assert 0.8 < found.epsilon_lower <= 1.0
    sure = {"trials": 40_000, "seed": 1, "confidence": 1.0 - 1e-12}
    low = audit_reports(policy, 1.0, 0.0, **sure).epsilon_lower
    assert 0.0 < low < found.epsilon_lower
    for factor, verdict in ((1.0001, "consistent"), (0.9999, "violated")):
        assert audit_reports(policy, factor * low, 0.0, **sure).verdict == verdict
    assert audit_reports(policy, 0.5, 0.0, trials=40_000, seed=1, confidence=0.95).verdict == (
        "violated"
    )
