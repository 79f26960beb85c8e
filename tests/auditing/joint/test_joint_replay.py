"""Replay of joint neighbours: a correct policy is proved; the table of violators has mistakes."""

from __future__ import annotations

import numpy as np
import pytest

import balaclava as bl
from balaclava.auditing.joint.joint_games import pulls_of_others
from balaclava.auditing.joint.joint_replay import extreme_context, replay_all_neighbours


@pytest.mark.parametrize("disjoint", [True, False])
def test_it_proves_dp_squarecb_up_to_its_sensitivity(disjoint: bool) -> None:
    policy = bl.policy(
        "dp-squarecb", arms=2, features=2, disjoint=disjoint, epsilon=1.0, delta=1e-3,
        first_batch=8, outstanding=64,
    )  # fmt: skip
    found = replay_all_neighbours(policy, policy.guarantee, rounds=24, pairs=60, seed=1)
    assert found.verdict == "consistent", str(found)
    assert found.epsilon > 0.5
    assert 0 < found.moved < found.pairs
    assert found.pairs == 11 * 20  # scenarios and participants


def test_contexts_are_as_long_as_is_allowed() -> None:
    policy = bl.policy(
        "dp-squarecb", arms=2, features=3, epsilon=1.0, delta=1e-3, feature_bound=4.0
    )
    rng = np.random.default_rng(1)
    tried = [extreme_context(policy, policy.practice_context, rng) for _ in range(50)]
    lengths = np.linalg.norm(tried, axis=2)
    assert lengths.max() == pytest.approx(4.0)
    assert len({each.tobytes() for each in tried}) > 20


def test_features_are_replaced_by_opposite_and_orthogonal_ones() -> None:
    policy = bl.policy("dp-squarecb", arms=2, features=3, epsilon=1.0, delta=1e-3)
    rng, rows = np.random.default_rng(1), np.array([[0.6, 0.1, 0.7], [0.2, 0.5, -0.3]])
    tried = [extreme_context(policy, rows, rng) for _ in range(60)]
    assert any((each == -rows).all() for each in tried)
    assert any((each == 0.0).all() for each in tried)
    dense = [each for each in tried if np.count_nonzero(each) == each.size]
    assert any(np.abs((each * rows).sum(axis=1)).max() < 1e-12 for each in dense)


def test_the_changed_participants_own_decision_does_not_count() -> None:
    """Two games: it got arm 0 and the others 2 of arm 1, then arm 1 and the others 1 of arm 0."""
    pulls = np.zeros((3, 2, 1, 4), np.int64)
    pulls[0, 0, 0, 1] = pulls[0, 1, 0, 2] = 1
    pulls[1, 0, 0, 1] = pulls[1, 1, 0, 1] = 1
    others = pulls_of_others(pulls, 2)
    assert others[0, 0].tolist() == [1, 1, 0, 0]
    assert others[1, 0].tolist() == [1, 0, 1, 0]
