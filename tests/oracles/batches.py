"""Batches of pulls, each arm in its own: the frame of policies that release once a batch.

An arm's rewards are collected until its batch is full; then the sum is released, once, and the
next batch opens with no data. Decisions beyond a batch whose rewards are still to come are spares.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from balaclava.authoring import kernel
from tests.oracles.phases import SPARE


class Batches(NamedTuple):
    """Each arm's current batch, and what its earlier ones released."""

    number: np.ndarray  # of the arm's current batch, from 1
    size: np.ndarray  # pulls in it
    asked: np.ndarray  # its decisions
    pulls: np.ndarray  # its rewards
    sums: np.ndarray  # their sum: raw, and never read but to be released
    means: np.ndarray  # the released mean, which noise may take out of [0, 1]
    weights: np.ndarray  # the number of rewards behind it, 0 before the first release
    spreads: np.ndarray  # 1/sqrt(weight)
    unreleased: np.ndarray  # one element: the arms of which nothing was released
    current: np.ndarray  # one element: the arm whose batch is played to its end, or -1


@kernel
def begin_batches(arms: int, size: int) -> Batches:
    """A first batch of `size` pulls for each arm."""
    return Batches(
        np.ones(arms, np.int64),
        np.full(arms, size),
        np.zeros(arms, np.int64),
        np.zeros(arms, np.int64),
        np.zeros(arms),
        np.zeros(arms),
        np.zeros(arms, np.int64),
        np.zeros(arms),
        np.full(1, arms),
        np.full(1, -1),
    )


@kernel(borrows=True)
def arm_in_play(state: Batches) -> int:
    """The arm whose batch goes on, or -1 when the policy is to choose one.

    A batch that waits for its last rewards goes on, with spares; only among the first batches may
    the next arm start meanwhile, as that choice needs no data.
    """
    arm = state.current[0]
    if arm >= 0 and (state.asked[arm] < state.size[arm] or state.unreleased[0] == 0):
        return arm
    state.current[0] = unreleased_arm(state)
    return state.current[0]


@kernel(borrows=True)
def unreleased_arm(state: Batches) -> int:
    """The arm to play because nothing of it was released, or -1.

    One that has pulls to hand out comes first.
    """
    chosen = -1
    if state.unreleased[0] > 0:
        for arm in range(state.weights.size):
            if state.weights[arm] == 0:
                if state.asked[arm] < state.size[arm]:
                    return arm
                if chosen < 0:
                    chosen = arm
    return chosen


@kernel(borrows=True)
def hand_out(state: Batches, arm: int) -> tuple[int, int]:
    """A pull of the arm's batch, or a spare when all of them are handed out."""
    if state.asked[arm] >= state.size[arm]:
        return arm, SPARE
    state.asked[arm] += 1
    return arm, state.number[arm]


@kernel(borrows=True)
def take_batch(state: Batches, arm: int, reward: float, phase: int) -> bool:
    """Count a reward of the arm's batch, drop any other; True when the batch is complete."""
    if phase != state.number[arm]:
        return False
    state.pulls[arm] += 1
    state.sums[arm] += reward
    return bool(state.pulls[arm] == state.size[arm])


@kernel(borrows=True)
def close_batch(state: Batches, arm: int, released: float, weight: int, size: int) -> None:
    """Keep what was released of `weight` rewards; the next batch has `size` pulls and no data."""
    if state.weights[arm] == 0:
        state.unreleased[0] -= 1
    state.means[arm] = released / weight
    state.weights[arm] = weight
    state.spreads[arm] = 1.0 / math.sqrt(weight)
    state.number[arm] += 1
    state.size[arm] = size
    state.asked[arm] = 0
    state.pulls[arm] = 0
    state.sums[arm] = 0.0
    state.current[0] = -1


@kernel(borrows=True)
def clipped_mean(state: Batches, arm: int) -> float:
    """The released mean, moved into [0, 1]."""
    return min(max(state.means[arm], 0.0), 1.0)
