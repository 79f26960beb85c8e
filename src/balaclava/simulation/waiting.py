"""The decisions of a simulation whose rewards are still to come: rings of a fixed size.

A decision of round t has the place t modulo the size of the ring. Nothing is allocated while a game
is played. What belongs to one decision lies side by side, and what is looked at in every round is
small: a step with delays is mostly waiting for memory.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from balaclava._core.kernels import kernel
from balaclava.simulation.delays import LOST

ARM, PHASE, REWARD, EARLIER = range(4)


class Waiting(NamedTuple):
    """Open decisions, by round; sizes are powers of two."""

    # Arm, phase, reward, and the decision before it that is due in the same round (0 for none).
    # Floats, all four: whole numbers are exact in them up to 2^53.
    notes: np.ndarray
    is_open: np.ndarray
    last: np.ndarray  # of each round to come: the last decision that is due in it; 0 for none
    oldest: np.ndarray  # every decision before this one is closed


@kernel
def begin_waiting(most_open: int, longest: int) -> Waiting:
    """Nothing is open."""
    size, rounds = 1, 1
    while size < most_open:
        size *= 2
    while rounds < longest + 1:
        rounds *= 2
    return Waiting(
        np.zeros((size, 4)),
        np.zeros(size, np.bool_),
        np.zeros(rounds, np.int64),
        np.ones(1, np.int64),
    )


@kernel(borrows=True)
def wait_for(waiting: Waiting, t: int, arm: int, phase: int, reward: float, delay: int) -> None:
    """The decision of round t is made; its reward comes after `delay` rounds."""
    place = t & (waiting.is_open.size - 1)
    waiting.is_open[place] = True
    waiting.notes[place, ARM] = arm
    waiting.notes[place, PHASE] = phase
    waiting.notes[place, REWARD] = reward
    if delay != LOST:
        due = (t + delay) & (waiting.last.size - 1)
        waiting.notes[place, EARLIER] = waiting.last[due]
        waiting.last[due] = t


@kernel(borrows=True)
def first_due(waiting: Waiting, t: int) -> int:
    """The first decision that is due in round t, 0 for none; `EARLIER` then leads to later ones."""
    due, mask = t & (waiting.last.size - 1), waiting.is_open.size - 1
    decision, later = waiting.last[due], 0
    waiting.last[due] = 0
    while decision != 0:
        earlier = int(waiting.notes[decision & mask, EARLIER])
        waiting.notes[decision & mask, EARLIER] = later
        decision, later = earlier, decision
    return int(later)


@kernel(borrows=True)
def given_up(waiting: Waiting, before: int) -> int:
    """Close the oldest open decision of a round below `before` and return it; 0 for none."""
    while waiting.oldest[0] < before:
        decision = waiting.oldest[0]
        waiting.oldest[0] += 1
        place = decision & (waiting.is_open.size - 1)
        if waiting.is_open[place]:
            waiting.is_open[place] = False
            return int(decision)
    return 0
