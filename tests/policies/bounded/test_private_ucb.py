"""Private-UCB: its bonus, its horizon and its split of epsilon."""

from __future__ import annotations

import math

import pytest

import balaclava as bl
from balaclava.auditing.replay.replay_audit import audit_by_replay
from balaclava.errors import IncompatibleError
from balaclava.privacy.randomness import seeded
from tests.policies.bounded.test_dp_ucb import MEANS, make


def test_a_split_epsilon_spends_less() -> None:
    policy = make("private-ucb", split_epsilon=True)
    audit = audit_by_replay(policy, policy.guarantee, rounds=100, pairs=60, seed=2)
    assert audit.verdict == "consistent"
    assert audit.epsilon <= 1 / 3 + 1e-9


def test_noise_margin() -> None:
    # (log T)^2 log(K T log T / 0.1) / epsilon at T = 10^6, K = 9, epsilon = 0.5
    golden = 13.815510557964274**2 * math.log(9e7 * 13.815510557964274) / 0.5
    policy = make("private-ucb", arms=9, epsilon=0.5, horizon=10**6)
    assert policy.noise_margin == pytest.approx(golden, rel=1e-14)
    split = make("private-ucb", arms=9, epsilon=0.5, horizon=10**6, split_epsilon=True)
    assert split.noise_margin == pytest.approx(9 * golden, rel=1e-14)
    assert make("private-ucb", horizon=1).noise_margin == 0.0


def test_rewards_beyond_the_horizon_are_dropped() -> None:
    policy = make("private-ucb", arms=2, horizon=5)
    params, (begin, choose, learn, _) = policy.constants(), policy.kernels
    state, rng = begin(params), seeded(1)
    for t in range(1, 101):
        arm, phase = choose(params, state, t, None, rng)
        learn(params, state, t, arm, 1.0, phase, rng)
    assert state.tally.pulls.tolist() == state.trees.items.tolist() == [5, 5]
    assert state.tally.asked.sum() == 100
    world = bl.environment("bernoulli", means=MEANS[:2])
    with pytest.raises(IncompatibleError, match="horizon = 5"):
        bl.simulate(policy, world, horizon=6, repetitions=1, seed=0)
