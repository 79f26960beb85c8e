"""ldp-top-two: the rule of dp-top-two on reports."""

from __future__ import annotations

import numpy as np
import pytest

import balaclava as bl
from balaclava.theory.confidence_sequences import pair_evidence

MEANS = [0.2, 0.5, 0.9]


def test_reports_decide_as_rewards_do():
    """Rewards of 0 and 1 that the agent reports itself, or that a device reported."""
    policy = bl.policy("ldp-top-two", arms=3, epsilon=2.0)
    agent, rng = policy.agent(seed=1), np.random.default_rng(1)
    ones, counts = np.zeros(3), np.zeros(3, int)
    while agent.winner() is None:
        decision = agent.ask()
        report = policy.report(float(rng.random() < MEANS[decision.arm]), 1.0)
        assert report in (0.0, 1.0)
        agent.tell_report(decision, report)
        ones[decision.arm] += report
        counts[decision.arm] += 1
    assert agent.winner() == 2
    pools = agent._runner.state.pools
    settled = pools.rewards == counts  # no batch is open in these arms
    assert settled.sum() >= 2
    assert pools.pooled[settled] == pytest.approx(ones[settled] / counts[settled])
    worse = (pools.in_order[0], pools.rewards_in_order[0], 0)
    better = (pools.in_order[2], pools.rewards_in_order[2], 0)
    assert agent._runner.state.evidence[0] == pair_evidence(worse, better, 0.0, 1.0)
    for entry, mean in zip(agent.estimates(), MEANS, strict=True):
        assert entry.interval[0] <= mean <= entry.interval[1]


@pytest.mark.statistical
def test_answers_are_right_and_earlier_than_those_of_ucb():
    """40 runs: 3 wrong at delta .05 once in 300 times; medians are 25 % apart."""
    world = bl.environment("bernoulli", means=[0.55, 0.60, 0.65, 0.75])
    names = ("ldp-top-two", "ldp-ucb-bernoulli")
    results = bl.simulate(
        [bl.policy(name, arms=4, epsilon=4.0) for name in names],
        world,
        horizon=15_000,
        repetitions=40,
        seed=1,
        checkpoints=200,
        winners=True,
    )
    top_two, ucb = results.winners()
    assert top_two.right >= 0.9
    assert top_two.median_round < 0.95 * ucb.median_round
