"""Compiled games and their counts."""

from __future__ import annotations

import numpy as np
import pytest

import balaclava as bl
from balaclava.auditing.games.compiled_games import GameStart, play_blocks, tail_counts
from balaclava.auditing.scenario import plain_scenario
from balaclava.errors import PolicyError
from balaclava.privacy.randomness import seeded
from tests.oracles.violators import VIOLATORS


def test_tail_counts():
    histogram = np.array([[[1, 2, 3]]])
    assert tail_counts(histogram, True).tolist() == [[[6, 5, 3]]]
    assert tail_counts(histogram, False).tolist() == [[[1, 3, 6]]]


def test_rounds_without_a_draw_are_played_once() -> None:
    """All games are the same as when each is played from its beginning."""
    policy = bl.policy("dp-ftpl-gauss", arms=2, epsilon=1.0, delta=0.01)
    rounds, probes = 2 * policy.start_phase + 3, np.array([5, 2 * policy.start_phase + 3])
    rewards = np.linspace(0.0, 1.0, 2 * rounds).reshape(rounds, 2)
    scenario = plain_scenario(policy, rewards)
    start = GameStart.of(policy, scenario)
    later = start.skip_deterministic(policy, scenario, scenario.rewards)
    assert later.skipped == 2 * policy.start_phase
    counts = [
        play_blocks(policy, scenario, rewards, [(50, seeded(4))], 2, probes, None, each)
        for each in (start, later)
    ]
    assert np.array_equal(counts[0].pulls, counts[1].pulls)
    assert counts[0].pulls[-1, 0, -1].max() < 50  # chance decides some of the rounds


@pytest.mark.parametrize(
    ("name", "rounds", "error"),
    [("fails-in-round-45", 44, ValueError), ("no-such-arm", 30, PolicyError)],
)
def test_a_game_that_fails_counts_up_to_that_round(name, rounds, error):
    policy = VIOLATORS[name].policy
    scenario = plain_scenario(policy, np.ones((60, 2)))
    reference, probes = np.zeros((60, 2), np.int64), np.array([rounds, rounds + 1])

    def counts(may_fail):
        start = GameStart.of(policy, scenario)
        blocks = [(50, seeded(1)), (30, seeded(2))]
        return play_blocks(
            policy, scenario, scenario.rewards, blocks, 1, probes, reference, start, may_fail
        )

    pulls = counts(True).pulls[-1, 0]
    assert pulls.sum(axis=1).tolist() == [80, 0]
    with pytest.raises(error):
        counts(False)
