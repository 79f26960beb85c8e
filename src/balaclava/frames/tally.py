"""Counts and sums of rewards by arm, and first pulls: the state of every index policy."""

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from balaclava._core.kernels import kernel
from balaclava._core.states import range_faults


class Tally(NamedTuple):
    """Decisions and rewards of each arm."""

    asked: np.ndarray  # decisions; ahead of `pulls` while rewards are late
    pulls: np.ndarray  # rewards told
    sums: np.ndarray  # their sum
    unknown: np.ndarray  # one element: number of arms without enough rewards

    def faults(self, decisions: int) -> Iterator[str]:
        if self.pulls.sum() > decisions:
            yield "more rewards than decisions"
        silent = np.count_nonzero(self.pulls == 0)
        if not silent <= self.unknown[0] <= self.pulls.size:  # some policies need several rewards
            yield "the number of arms without a reward is wrong"
        if (self.sums[self.pulls == 0] != 0).any():
            yield "a sum without rewards"
        yield from range_faults(0, decisions, asked=self.asked, pulls=self.pulls)


@kernel
def begin_tally(params: Any) -> Tally:
    arms = params.arms
    return Tally(
        np.zeros(arms, np.int64), np.zeros(arms, np.int64), np.zeros(arms), np.full(1, arms)
    )


@kernel(borrows=True)
def starting_arm(state: Any, start: int) -> int:
    """The arm to pull because it has fewer than `start` rewards, or -1.

    It is the one asked least often, lowest first. So decisions spread over all such arms, and an
    arm whose rewards were lost is pulled again. Only the number of rewards matters, not their
    values.
    """
    pick = -1
    if state.unknown[0] > 0:
        for arm in range(state.pulls.size):
            if state.pulls[arm] < start and (pick < 0 or state.asked[arm] < state.asked[pick]):
                pick = arm
    return pick


@kernel(borrows=True)
def unknown_arm(state: Any) -> int:
    """The arm to pull because it has no reward, or -1; see `starting_arm`."""
    return starting_arm(state, 1)


@kernel(borrows=True)
def is_held_back(params: Any, state: Any, arm: int, t: int) -> bool:
    """Whether an added arm must wait: it had its part of the decisions, and its mean is not best.

    Its part is 1/arms of the decisions since it came. An arm that came late has a far higher bonus
    than the others, so without this it catches up with their pulls at once, however poor it is. In
    a fresh run the worst arm has at most that part. If it is the best arm, one of two means is
    wrong. Its own is of 1/arms of the s decisions since it came: too low with a chance that is
    exponentially small in s, so at a constant cost. Another's is too high: then arms are played by
    their indices until that mean falls, of order log t times as in the proof of any such index.
    """
    if params.added_after[arm] == 0 or state.asked[arm] * params.arms < t - params.added_after[arm]:
        return False
    mean = state.sums[arm] / max(state.pulls[arm], 1)
    for other in range(params.arms):
        if state.pulls[other] > 0 and state.sums[other] / state.pulls[other] > mean:
            return True
    return False


@kernel(borrows=True)
def count_reward(state: Any, arm: int, reward: float, start: int) -> None:
    """Count a reward; the arm is known from its `start`-th reward."""
    state.pulls[arm] += 1
    state.sums[arm] += reward
    if state.pulls[arm] == start:
        state.unknown[0] -= 1


@kernel(borrows=True)
def learn_tally(
    params: Any, state: Any, t: int, arm: int, reward: float, phase: int, rng: Any
) -> None:
    """Count the reward. The state is a tally, or has its fields among others."""
    count_reward(state, arm, reward, 1)
