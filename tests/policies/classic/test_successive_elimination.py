"""Successive elimination: radius, first removal, late and lost rewards."""

from __future__ import annotations

import math

import mpmath
import pytest

import balaclava as bl
from balaclava.errors import ParameterError
from balaclava.policies.classic import successive_elimination
from tests.policies.classic.test_classic import make


def test_elimination_radius_golden() -> None:
    params = bl.policy("successive-elimination", arms=5, horizon=1000).constants()
    with mpmath.workdps(30):
        expected = float(mpmath.sqrt(mpmath.log(4 * 5 * 7**2 * 1000) / 14))
    assert successive_elimination.radius(params, 7) == pytest.approx(expected, rel=1e-14)
    half = bl.policy("successive-elimination", arms=5, horizon=1000, radius_scale=0.5).constants()
    assert successive_elimination.radius(half, 7) == pytest.approx(expected / 2, rel=1e-14)


def test_elimination_happens_in_the_first_round_that_allows_it() -> None:
    policy = make("successive-elimination", 2)
    agent = policy.agent(seed=0)
    n = next(n for n in range(1, 500) if math.sqrt(math.log(800 * n**2) / (2 * n)) < 0.4)
    arms = []
    for _ in range(2 * n + 3):
        decision = agent.ask()
        arms.append(decision.arm)
        agent.tell(decision, (0.9, 0.1)[decision.arm])
    assert all(sorted(arms[i : i + 2]) == [0, 1] for i in range(0, 2 * n, 2))
    assert arms[2 * n :] == [0] * 3


def test_elimination_failure_probability() -> None:
    name = "successive-elimination"
    with pytest.raises(ParameterError, match=r"horizon and failure_probability"):
        bl.policy(name, arms=2)
    by_horizon = bl.policy(name, arms=2, horizon=100)
    assert by_horizon.constants() == bl.policy(name, arms=2, failure_probability=0.01).constants()
    both = bl.policy(name, arms=2, horizon=10, failure_probability=0.01)
    assert both.constants() == by_horizon.constants()
    assert bl.policy(name, arms=1, horizon=1).agent(seed=0).ask().arm == 0


def test_elimination_counts_late_and_lost_rewards_by_arm() -> None:
    agent = make("successive-elimination", 3).agent(seed=0)
    batch = [agent.ask() for _ in range(9)]
    for start in (0, 3, 6):
        assert sorted(decision.arm for decision in batch[start : start + 3]) == [0, 1, 2]
    for decision in reversed(batch[1:]):
        agent.tell(decision, 1.0)
    agent.cancel(batch[0])
    expected = [2 if arm == batch[0].arm else 3 for arm in range(3)]
    assert agent._runner.state.pulls.tolist() == expected
    assert agent._runner.state.sums.tolist() == expected
