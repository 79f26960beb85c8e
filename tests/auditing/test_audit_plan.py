"""The plan of an audit's games."""

from __future__ import annotations

import balaclava as bl
from balaclava.auditing.audit_plan import first_release, plan_games


def test_long_phases_are_shortened_by_radius_scale():
    plan = plan_games(bl.policy("dp-se", arms=2, epsilon=1.0, horizon=10**6))
    assert plan.policy.radius_scale < 1
    assert plan.policy.epsilon == 1.0
    assert plan.rounds < 500
    assert "radius_scale" in plan.note


def test_games_last_beyond_the_first_release():
    """Also if the release is late and the policy has no horizon; otherwise games reveal nothing."""
    plan = plan_games(bl.policy("dp-imed", arms=2, epsilon=0.1))
    assert plan.rounds > 600  # two first batches of 300 pulls
    assert plan.long_rounds == plan.rounds
    assert plan_games(bl.policy("dp-imed", arms=2, epsilon=1.0)).long_rounds == 256
    short = bl.policy("dp-se", arms=2, epsilon=1.0, horizon=100, radius_scale=0.1)
    assert plan_games(short).long_rounds == 100


def test_rounds_of_a_game():
    for arms, rounds in ((2, 64), (9, 72)):
        plan = plan_games(bl.policy("ucb1", arms=arms))  # nothing is released
        assert (plan.rounds, plan.note, plan.one_decision) == (rounds, "", True)
    policy = bl.policy("dp-imed", arms=2, epsilon=1.0, first_batch=4)
    first = first_release(policy, 100)
    assert first == 8  # two batches of four
    assert plan_games(policy).rounds == first + 32
    slow = bl.policy("dp-imed", arms=2, epsilon=1.0, first_batch=100)
    assert first_release(slow, 100) is None
    assert first_release(slow, 200) == 200
    assert first_release(slow, 199) is None
    assert plan_games(slow).rounds == 200 + 50


def test_a_claim_on_single_decisions_plays_until_the_first_that_depends_on_data():
    policy = bl.policy("dp-ftpl-gauss", arms=2, epsilon=1.0, delta=0.01)
    plan = plan_games(policy)
    assert plan.rounds == first_release(policy, 100) == 2 * policy.start_phase + 1
    assert plan.replay_rounds == 48
    assert plan.long_rounds == plan.rounds
    endless = plan_games(bl.policy("dp-ftpl-gauss", arms=2, epsilon=0.0, delta=1e-6))
    assert not endless.one_decision
    assert "could not be planned" in endless.note


def test_no_game_is_longer_than_the_horizon():
    policy = bl.policy("dp-se", arms=2, epsilon=1.0, horizon=20)
    plan = plan_games(policy)
    assert (plan.rounds, plan.long_rounds, plan.replay_rounds) == (20, 20, 20)


def test_each_release_counts_once():
    policy = bl.policy("dp-imed", arms=3, epsilon=1.0, first_batch=4)
    assert first_release(policy, 100) == 12  # the batches of all three arms
