"""The decisions of a simulation whose rewards are still to come: rings of a fixed size.

A decision of round t has the place t modulo the size of the ring. Nothing is allocated while a game
is played. How late rewards come depends on no decision, so the delays of the next AHEAD decisions
are drawn in a loop of their own. When a round is played, the processor then knows early how many
rewards it brings: it cannot guess that, and a wrong guess that shows late costs most.

Where delays differ, what is due in a round is a list, from its head over the places of decisions.
`last` knows its end, or the head itself, so that a place is added without a look at whether the
list is empty.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from balaclava._core.kernels import kernel
from balaclava.frames.patience import FOUND
from balaclava.simulation.delays import FIXED, LOST, DelayLaw, draw_delay

AHEAD = 256  # decisions whose delays are drawn at once
NEVER = 2**62  # in place of a round
VARIED = -1  # in place of a delay that all have


class Waiting(NamedTuple):
    """Open decisions, by round; sizes are powers of two."""

    arms: np.ndarray
    phases: np.ndarray
    rewards: np.ndarray
    due: np.ndarray  # the round in which the reward comes, or NEVER
    following: np.ndarray  # after each place, then after the head of each round to come
    last: np.ndarray  # of each round to come: the last place that is due, or the head itself
    number: np.ndarray  # of each round to come: how many are due
    oldest: np.ndarray  # one element: every decision before this one is closed


@kernel
def begin_waiting(most_open: int, longest: int) -> Waiting:
    """Nothing is open."""
    size, rounds = 1, 1
    while size < most_open + AHEAD:
        size *= 2
    while rounds < longest + AHEAD + 1:
        rounds *= 2
    # Without a sign, as an index below 0 counts from the end, and each would be looked at for it.
    return Waiting(
        np.zeros(size, np.int64),
        np.zeros(size, np.int64),
        np.zeros(size),
        np.zeros(size, np.int64),
        np.zeros(size + rounds, np.uint32),
        np.arange(size, size + rounds).astype(np.uint32),
        np.zeros(rounds, np.uint32),
        np.ones(1, np.int64),
    )


@kernel(borrows=True)
def within(number: int, size: int) -> int:
    """A round's place in a ring of that size."""
    return number & ((size - 1) & (2**31 - 1))  # the constant says that it is not below 0


@kernel(borrows=True)
def reach_of(law: DelayLaw, patience: int, window: bool) -> tuple[int, int]:
    """The longest delay with which a reward counts, and the one that all have, or VARIED."""
    if window:
        return patience, patience
    longest = law.longest if patience == FOUND else min(patience, law.longest)
    return longest, (law.longest if law.kind == FIXED else VARIED)


@kernel(borrows=True)
def draw_ahead(
    waiting: Waiting, t: int, law: DelayLaw, longest: int, constant: int, rng: Any
) -> None:
    """Draw the delays of the decisions after round t; one above `longest` counts as lost.

    Where all delays are alike no list is needed.
    """
    size, rounds = waiting.due.size, waiting.last.size
    for decision in range(t + 1, t + AHEAD + 1):
        delay = draw_delay(law, rng)
        comes = delay != LOST and delay <= longest
        waiting.due[within(decision, size)] = decision + delay if comes else NEVER
    if constant == VARIED:
        for decision in range(t + 1, t + AHEAD + 1):
            place = within(decision, size)
            if waiting.due[place] != NEVER:
                due = within(waiting.due[place], rounds)
                waiting.following[waiting.last[due]] = place
                waiting.last[due] = place
                waiting.number[due] += 1


@kernel(borrows=True)
def never_comes(waiting: Waiting, t: int) -> bool:
    """Whether the reward of the decision of round t is lost, or comes too late."""
    return bool(waiting.due[within(t, waiting.due.size)] == NEVER)


@kernel(borrows=True)
def wait_for(waiting: Waiting, t: int, arm: int, phase: int, reward: float) -> None:
    """The decision of round t is made."""
    place = within(t, waiting.due.size)
    waiting.arms[place] = arm
    waiting.phases[place] = phase
    waiting.rewards[place] = reward


@kernel(borrows=True)
def open_at(waiting: Waiting, place: int) -> tuple[int, int]:
    """Arm and phase of the decision in that place."""
    return waiting.arms[place], waiting.phases[place]


@kernel(borrows=True)
def take_due(waiting: Waiting, t: int, constant: int, window: bool) -> tuple[int, int]:
    """How many rewards are due in round t, and the place of the first; `following` has the next.

    At the end of a window something is due whether or not a reward came.
    """
    if constant != VARIED:
        place = within(t - constant, waiting.due.size)
        comes = t > constant and (window or waiting.due[place] != NEVER)
        return (1 if comes else 0), place
    due = within(t, waiting.last.size)
    head = waiting.due.size + due
    number = waiting.number[due]
    waiting.number[due] = 0
    waiting.last[due] = head
    return number, waiting.following[head]


@kernel(borrows=True)
def given_up(waiting: Waiting, t: int, before: int) -> int:
    """The oldest decision of a round below `before` that is open in round t, or 0 for none.

    It looks ahead to the next one that is open now: so it seldom has to look at all.
    """
    size = waiting.due.size
    while waiting.oldest[0] < before:
        decision = waiting.oldest[0]
        waiting.oldest[0] += 1
        while waiting.due[within(waiting.oldest[0], size)] < t:
            waiting.oldest[0] += 1
        if waiting.due[within(decision, size)] >= t:
            return int(decision)
    return 0
