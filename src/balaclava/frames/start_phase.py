"""A start phase: every arm is pulled a given number of times before the data decide.

The state is a `Tally` in which `unknown` counts the arms that still have fewer rewards than that.
"""

from __future__ import annotations

from balaclava._core.kernels import kernel
from balaclava.frames.tally import Tally


@kernel(borrows=True)
def starting_arm(state: Tally, start: int) -> int:
    """The arm to pull because it has fewer than `start` rewards, or -1.

    Of these arms the one asked least often, lowest first: they are pulled in turn, a batch of
    decisions is spread over all of them, and an arm whose rewards were lost is pulled again.
    Which arm it is depends on how many rewards came, never on what they were.
    """
    pick = -1
    if state.unknown[0] > 0:
        for arm in range(state.pulls.size):
            if state.pulls[arm] < start and (pick < 0 or state.asked[arm] < state.asked[pick]):
                pick = arm
    return pick


@kernel(borrows=True)
def count_reward(state: Tally, arm: int, reward: float, start: int) -> None:
    """Count a reward, and the arm as known from its `start`-th reward on."""
    state.pulls[arm] += 1
    state.sums[arm] += reward
    if state.pulls[arm] == start:
        state.unknown[0] -= 1
