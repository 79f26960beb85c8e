"""The tally of asks and rewards."""

from __future__ import annotations

import balaclava as bl
from balaclava.frames.tally import begin_tally, learn_tally, unknown_arm


def test_unknown_arm_follows_the_rewards_not_the_asks() -> None:
    params = bl.policy("ucb1", arms=3).constants()
    state = begin_tally(params)
    assert state.unknown.tolist() == [3]
    state.asked[:] = [2, 1, 1]
    assert unknown_arm(state) == 1
    for arm in (1, 1, 2):
        learn_tally(params, state, 1, arm, 0.5, 0, None)
    assert state.unknown.tolist() == [1]
    assert unknown_arm(state) == 0
    learn_tally(params, state, 1, 0, 0.5, 0, None)
    assert unknown_arm(state) == -1
