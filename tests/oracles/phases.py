"""Phases in which every active arm is pulled equally often: the frame of the violators.

In a phase the active arms are pulled in turn, lowest first, `length` times each. The phase ends
when the last of its rewards is told; until then, further decisions are spares.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from balaclava.authoring import kernel

SPARE = -1  # the phase of a decision from which nothing is learned


class Phases(NamedTuple):
    """The current phase. Scalars are arrays of one element."""

    active: np.ndarray  # arms still in play
    number: np.ndarray  # of the current phase, from 1
    length: np.ndarray  # pulls of each active arm in it
    waiting: np.ndarray  # its rewards that are still to come
    turn: np.ndarray  # the arm whose turn it is
    asked: np.ndarray  # its decisions, by arm
    pulls: np.ndarray  # rewards told, by arm
    sums: np.ndarray  # their sum


@kernel
def begin_phases(params: Any) -> Phases:
    """All arms active, no phase open."""
    arms = params.arms
    return Phases(
        np.ones(arms, np.bool_),
        np.zeros(1, np.int64),
        np.zeros(1, np.int64),
        np.zeros(1, np.int64),
        np.zeros(1, np.int64),
        np.zeros(arms, np.int64),
        np.zeros(arms, np.int64),
        np.zeros(arms),
    )


@kernel(borrows=True)
def open_phase(state: Phases, length: int, fresh: bool) -> None:
    """Start the next phase; `fresh` forgets what earlier phases told."""
    state.number[0] += 1
    state.length[0] = length
    state.waiting[0] = length * active_arms(state)
    state.turn[0] = 0
    state.asked[:] = 0
    if fresh:
        state.pulls[:] = 0
        state.sums[:] = 0.0


@kernel(borrows=True)
def active_arms(state: Phases) -> int:
    """How many arms are still in play."""
    count = 0
    for arm in range(state.active.size):
        if state.active[arm]:
            count += 1
    return count


@kernel(borrows=True)
def next_pull(state: Phases) -> tuple[int, int]:
    """The arm whose turn it is and the phase; a spare when all pulls are handed out."""
    arms = state.active.size
    arm = state.turn[0]
    while not state.active[arm]:
        arm = arm + 1 if arm + 1 < arms else 0
    state.turn[0] = arm + 1 if arm + 1 < arms else 0
    if state.asked[arm] >= state.length[0]:
        return arm, SPARE
    state.asked[arm] += 1
    return arm, state.number[0]


@kernel(borrows=True)
def choose_in_phases(params: Any, state: Phases, t: int, context: Any, rng: Any) -> tuple[int, int]:
    """`choose` of an elimination policy: the next pull, or the last arm for ever."""
    if state.waiting[0] == 0:  # no phase is open: one arm is left
        return state.turn[0], SPARE
    return next_pull(state)


@kernel(borrows=True)
def drop_behind(state: Phases, margin: float) -> bool:
    """Remove the arms whose sum is more than `margin` behind; True if several are left.

    Once the last arm stands alone it is played for ever.
    """
    best, highest = 0, -math.inf
    for arm in range(state.active.size):
        if state.active[arm] and state.sums[arm] > highest:
            best, highest = arm, state.sums[arm]
    for arm in range(state.active.size):
        if state.active[arm] and highest - state.sums[arm] > margin:
            state.active[arm] = False
    state.turn[0] = best
    return active_arms(state) > 1


@kernel(borrows=True)
def take(state: Phases, arm: int, reward: float, phase: int) -> bool:
    """Count a reward of the current phase, drop any other; True when the phase is complete."""
    if phase != state.number[0]:
        return False
    state.pulls[arm] += 1
    state.sums[arm] += reward
    state.waiting[0] -= 1
    return state.waiting[0] == 0
