"""The decisions of a simulation whose rewards are still to come: rings of a fixed size.

A decision of round t has the place t modulo the size of the ring. Nothing is allocated while a game
is played. What is due in a round is a list in a circle, from its head over the places of decisions
back to the head, and `last` knows its end: a place is added without a look at whether the list is
empty, since a processor would guess wrong every other time, and that takes longer than all else.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from balaclava._core.kernels import kernel
from balaclava.simulation.delays import LOST

CLOSED = -1  # in place of an arm: the reward came, or the decision was given up


class Waiting(NamedTuple):
    """Open decisions, by round; sizes are powers of two."""

    arms: np.ndarray  # CLOSED where nothing is open
    phases: np.ndarray
    rewards: np.ndarray
    following: np.ndarray  # after each place, then after the head of each round to come
    last: np.ndarray  # of each round to come: the last place that is due, or the head itself
    oldest: np.ndarray  # one element: every decision before this one is closed


@kernel
def begin_waiting(most_open: int, longest: int) -> Waiting:
    """Nothing is open."""
    size, rounds = 1, 1
    while size < most_open:
        size *= 2
    while rounds < longest + 1:
        rounds *= 2
    # Without a sign, as an index below 0 counts from the end, and each would be looked at for it.
    heads = np.arange(size, size + rounds)
    return Waiting(
        np.full(size, CLOSED, np.int64),
        np.zeros(size, np.int64),
        np.zeros(size),
        np.concatenate((np.zeros(size, np.int64), heads)).astype(np.uint32),
        heads.astype(np.uint32),
        np.ones(1, np.int64),
    )


@kernel(borrows=True)
def within(number: int, size: int) -> int:
    """A round's place in a ring of that size."""
    return number & ((size - 1) & (2**31 - 1))  # the constant says that it is not below 0


@kernel(borrows=True)
def wait_for(waiting: Waiting, t: int, arm: int, phase: int, reward: float, delay: int) -> None:
    """The decision of round t is made; its reward comes after `delay` rounds, or is LOST."""
    place = within(t, waiting.arms.size)
    waiting.arms[place] = arm
    waiting.phases[place] = phase
    waiting.rewards[place] = reward
    if delay != LOST:
        due = within(t + delay, waiting.last.size)
        waiting.following[waiting.last[due]] = place
        waiting.following[place] = waiting.arms.size + due
        waiting.last[due] = place


@kernel(borrows=True)
def first_due(waiting: Waiting, t: int) -> int:
    """The place of the first decision that is due in round t; `following` has the next.

    The list ends with its head, which is no place: not below the number of places.
    """
    due = within(t, waiting.last.size)
    head = waiting.arms.size + due
    place = waiting.following[head]
    waiting.following[head] = head
    waiting.last[due] = head
    return place


@kernel(borrows=True)
def given_up(waiting: Waiting, before: int) -> int:
    """The oldest decision of a round below `before` that is still open, or 0 if there is none."""
    while waiting.oldest[0] < before:
        decision = waiting.oldest[0]
        waiting.oldest[0] += 1
        if waiting.arms[within(decision, waiting.arms.size)] != CLOSED:
            return int(decision)
    return 0


@kernel(borrows=True)
def close(waiting: Waiting, place: int) -> tuple[int, int]:
    """Arm and phase of the decision in that place, which is open no more."""
    arm = waiting.arms[place]
    waiting.arms[place] = CLOSED
    return arm, waiting.phases[place]
