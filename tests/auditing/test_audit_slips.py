"""Violators that once passed the audit: each is now caught by the replay."""

from __future__ import annotations

import pytest

from balaclava.auditing.audit_plan import plan_games
from balaclava.auditing.replay.replay_audit import audit_by_replay
from tests.oracles.violators_slip import ALL


@pytest.mark.parametrize("name", ALL)
def test_the_replay_catches_it(name):
    policy = ALL[name]
    rounds = 232 if name == "radius-scaled" else plan_games(policy).rounds
    found = audit_by_replay(policy, policy.guarantee, rounds=rounds, pairs=1_000, seed=1)
    assert found.verdict in ("unproved", "violated"), str(found)
