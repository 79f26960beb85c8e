"""Rewards at the edges of 64-bit floats: whatever a policy is told, it names an arm that exists."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import balaclava as bl
from balaclava.errors import ParameterError
from balaclava.policies.base import into_unit_interval
from balaclava.testing import examples

POLICIES = [policy for entry in bl.list_policies() for policy in examples(entry.policy)[:1]]
TINY, HUGE = 5e-324, 1.7e308
TAPES = {
    "low": np.full(60, -1e308),
    "high": np.full(60, HUGE),
    "tiny": np.full(60, TINY),
    "mixed": np.random.default_rng(0).choice([HUGE, -HUGE, 1e308, TINY, -TINY, 0.0, 1.0], 60),
}


@pytest.mark.parametrize("tape", TAPES)
@pytest.mark.parametrize("policy", POLICIES, ids=lambda policy: policy.name)
def test_an_agent_names_an_arm_that_exists(policy: Any, tape: str) -> None:
    agent = policy.agent(seed=1)
    low, high = policy.accepts
    for reward in TAPES[tape].tolist():
        decision = agent.ask(policy.practice_context)
        assert 0 <= decision.arm < policy.arms
        agent.tell(decision, min(max(reward, low), high))


@pytest.mark.parametrize("name", ["ucb1", "thompson-gauss", "successive-elimination"])
def test_a_simulation_plays_every_round(name: str) -> None:
    (policy, *_) = examples(dict((e.name, e.policy) for e in bl.list_policies())[name])
    # The means of the table, not of the policy, must not overflow.
    rewards = np.stack([TAPES["mixed"]] * policy.arms, axis=1).clip(-1e305, 1e305)
    rewards[:, 1] = -1e305
    if policy.accepts != (-np.inf, np.inf):
        rewards = rewards.clip(*policy.accepts)
    played = bl.simulate(
        policy, bl.environment("table", rewards=rewards), horizon=60, repetitions=2, seed=1
    )
    assert played.pulls(name).sum(axis=1).tolist() == [60, 60]
    assert (played.pulls(name) >= 0).all()


def test_ucb1_keeps_learning_after_absurd_rewards() -> None:
    """Sums stay finite: arm 0 is told -1e308 five times, and is left alone after that."""
    agent = bl.policy("ucb1", arms=2).agent(seed=1)
    pulls = [0, 0]
    for _ in range(50):
        decision = agent.ask()
        pulls[decision.arm] += 1
        agent.tell(decision, -1e308 if decision.arm == 0 else 0.5)
    assert pulls == [1, 49]


@pytest.mark.parametrize("high", [5e-324, 1e-310, 5e-309])
def test_a_range_too_narrow_to_rescale_is_refused(high: float) -> None:
    """1 / (high - low) would be infinite, and a reward at the low end not a number."""
    with pytest.raises(ParameterError, match="too narrow"):
        bl.policy("dp-imed", arms=2, epsilon=1.0, reward_range=(0.0, high))


def test_the_narrowest_range_is_rescaled() -> None:
    policy = bl.policy("dp-imed", arms=2, epsilon=1.0, reward_range=(0.0, 1e-308))
    low, high = (into_unit_interval(policy.constants(), reward) for reward in (0.0, 1e-308))
    assert low == 0.0
    assert high == pytest.approx(1.0)
