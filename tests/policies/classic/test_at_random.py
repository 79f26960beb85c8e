"""Uniform random play."""

from __future__ import annotations

import numpy as np
import pytest

import balaclava as bl
from balaclava.errors import ParameterError


def test_playing_at_random_is_even_and_takes_all_rewards():
    """60,000 decisions of 3 arms: shares within 4 standard errors, 1 in 5,000 by chance."""
    policy = bl.policy("random", arms=3)
    world = bl.environment("pareto", means=[1.0, 2.0, 4.0], shape=1.5)
    results = bl.simulate(policy, world, horizon=60_000, repetitions=1, seed=4)
    assert np.abs(results.pulls("random")[0] / 60_000 - 1 / 3).max() < 4 * 0.4714 / 60_000**0.5
    assert policy.regret_bound(world, 600) == pytest.approx(600 * 5 / 3)
    losses = bl.environment("stochastic-losses", means=[0.2, 0.8, 0.5])
    bl.simulate(policy, losses, horizon=100, repetitions=1, seed=4)
    assert policy.regret_bound(losses, 600) is None
    agent = policy.agent()
    for reward in (0.0, -1e300, 7.5):
        agent.tell(agent.ask(), reward)
    assert (agent.guarantee.epsilon, agent.guarantee.delta) == (0.0, 0.0)
    with pytest.raises(ParameterError, match="epsilon = 0 with delta = 0"):
        Promising(arms=2).guarantee  # noqa: B018


class Promising(bl.Policy):
    "A policy that forgot its epsilon: it may not claim 0 by that."

    name = "promising"
    model = "central"
    scope = "trajectory"
    kernels = bl.policy("ucb1", arms=2).kernels
