"""The plan of an audit's games."""

from __future__ import annotations

import balaclava as bl
from balaclava.auditing.audit_plan import plan_games


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
