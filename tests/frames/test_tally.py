"""The tally of asks and rewards."""

from __future__ import annotations

import numpy as np

import balaclava as bl
from balaclava.frames.tally import (
    Tally,
    begin_tally,
    count_reward,
    is_held_back,
    learn_tally,
    starting_arm,
    unknown_arm,
)
from tests.frames.frame_machine import require_ranges


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


def test_an_added_arm_waits_once_it_had_its_part_unless_its_mean_is_the_highest() -> None:
    params = bl.policy("ldp-ucb-laplace", arms=3, epsilon=1.0).constants()
    params = params._replace(added_after=np.array([0, 0, 100]))
    state = begin_tally(params)
    state.asked[:], state.pulls[:], state.sums[:] = [50, 50, 10], [50, 50, 8], [30.0, 20.0, 4.0]
    assert is_held_back(params, state, 2, 130)  # ten of thirty decisions since it came
    assert not is_held_back(params, state, 2, 131)
    assert not is_held_back(params, state, 1, 130)  # there from the start
    state.sums[2] = 5.0  # a mean of .625, above .6 and .4
    assert not is_held_back(params, state, 2, 130)


def test_the_arm_asked_least_comes_first_and_the_lowest_of_equals() -> None:
    state = begin_tally(bl.policy("ucb1", arms=4).constants())
    assert starting_arm(state, 2) == 0
    state.asked[:], state.pulls[:] = [2, 3, 1, 1], [1, 0, 1, 2]
    assert starting_arm(state, 2) == 2  # the fourth has enough
    assert starting_arm(state, 3) == 2
    assert starting_arm(state, 1) == 1


def test_rewards_add_up() -> None:
    state = begin_tally(bl.policy("ucb1", arms=2).constants())
    for reward in (0.25, 0.5):
        count_reward(state, 1, reward, 2)
    assert (state.pulls.tolist(), state.sums.tolist()) == ([0, 2], [0.0, 0.75])
    assert state.unknown.tolist() == [1]
    count_reward(state, 1, 0.5, 2)
    assert state.unknown.tolist() == [1]


def test_faults() -> None:
    arrays = ([2, 0, 0], [2, 0, 0], [-1.0, 0.0, 0.0], [2])
    state = Tally(*map(np.array, arrays))
    assert list(state.faults(2)) == []
    require_ranges(state, 2, {"asked": (0, 2), "pulls": (0, 2)})
    assert "more rewards than decisions" in list(state.faults(1))
    for unknown, wrong in ((1, True), (3, False), (4, True)):
        state.unknown[0] = unknown
        assert ("the number of arms without a reward is wrong" in state.faults(2)) is wrong
    for arm in (0, 1):
        state.sums[arm] = 0.5
        assert ("a sum without rewards" in state.faults(2)) is (arm == 1)
