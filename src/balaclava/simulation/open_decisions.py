"""The decisions of a simulation whose rewards are still to come: rings of a fixed size.

A decision of round t has the place t modulo the size of the ring. Nothing is allocated while a game
is played. How late rewards come depends on no decision, so the delays of the next AHEAD decisions
are drawn in a loop of their own. When a round is played, the processor then knows early how many
rewards it brings: it cannot guess that, and a wrong guess that shows late costs most.

Where delays differ, what is due in a round is a list, from its head over the places of decisions.
`last` knows its end, or the head itself, so that a place is added without a look at whether the
list is empty: half of the guesses at that would be wrong. What is used together lies together.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from balaclava._core.kernels import kernel
from balaclava._core.states import ring_index
from balaclava.frames.patience import FOUND
from balaclava.simulation.reward_delays import FIXED, LOST, DelayLaw, draw_delay

DELAYS_AHEAD = 256  # decisions whose delays are drawn at once
NEVER_ARRIVES = 2**31 - 1  # in place of a delay: no reward comes that counts
VARIED = -1  # in place of a delay that all have

# Places have no sign: an index below 0 counts from the end, and each would be looked at for it.
_KEPT = np.dtype([("reward", "f8"), ("phase", "i8"), ("arm", "u4")], align=True)
_DUE = np.dtype([("last", "u4"), ("number", "u4")])


class OpenDecisions(NamedTuple):
    """Open decisions, by round; sizes are powers of two."""

    rewards: np.ndarray
    phases: np.ndarray
    arms: np.ndarray
    delays: np.ndarray  # after how many further decisions the reward comes, or NEVER
    following: np.ndarray  # after each place, then after the head of each round to come
    last: np.ndarray  # of each round to come: the last place that is due, or the head itself
    number: np.ndarray  # of each round to come: how many are due


@kernel
def begin_open_decisions(most_open: int, longest: int) -> OpenDecisions:
    """Nothing is open."""
    size, rounds = 1, 1
    while size < most_open + DELAYS_AHEAD:
        size *= 2
    while rounds < longest + DELAYS_AHEAD + 1:
        rounds *= 2
    kept, due = np.zeros(size, _KEPT), np.zeros(rounds, _DUE)
    last = due["last"]
    for number in range(rounds):
        last[number] = size + number
    return OpenDecisions(
        kept["reward"],
        kept["phase"],
        kept["arm"],
        np.zeros(size, np.int32),
        np.zeros(size + rounds, np.uint32),
        last,
        due["number"],
    )


@kernel(borrows=True)
def reach_of(law: DelayLaw, patience: int, window: bool) -> tuple[int, int]:
    """The longest delay with which a reward counts, and the one that all have, or VARIED."""
    if window:
        return patience, patience
    longest = law.longest if patience == FOUND else min(patience, law.longest)
    return longest, (law.longest if law.kind == FIXED else VARIED)


@kernel(borrows=True)
def draw_ahead(
    waiting: OpenDecisions, t: int, law: DelayLaw, longest: int, constant: int, rng: Any
) -> None:
    """Draw the delays of the decisions after round t; one above `longest` counts as lost.

    Where all delays are alike no list is needed.
    """
    size, rounds = waiting.delays.size, waiting.last.size
    for decision in range(t + 1, t + DELAYS_AHEAD + 1):
        delay = draw_delay(law, rng)
        comes = delay != LOST and delay <= longest
        waiting.delays[ring_index(decision, size)] = delay if comes else NEVER_ARRIVES
    if constant == VARIED:
        for decision in range(t + 1, t + DELAYS_AHEAD + 1):
            place = ring_index(decision, size)
            delay = waiting.delays[place]
            if delay != NEVER_ARRIVES:
                due = ring_index(decision + delay, rounds)
                waiting.following[waiting.last[due]] = place
                waiting.last[due] = place
                waiting.number[due] += 1


@kernel(borrows=True)
def never_comes(waiting: OpenDecisions, t: int) -> bool:
    """Whether the reward of the decision of round t is lost, or comes too late."""
    return bool(waiting.delays[ring_index(t, waiting.delays.size)] == NEVER_ARRIVES)


@kernel(borrows=True)
def wait_for(waiting: OpenDecisions, t: int, arm: int, phase: int, reward: float) -> None:
    """The decision of round t is made."""
    place = ring_index(t, waiting.delays.size)
    waiting.arms[place] = arm
    waiting.phases[place] = phase
    waiting.rewards[place] = reward


@kernel(borrows=True)
def open_at(waiting: OpenDecisions, place: int) -> tuple[int, int]:
    """Arm and phase of the decision in that place."""
    return int(np.int64(waiting.arms[place])), waiting.phases[place]


@kernel(borrows=True)
def take_due(waiting: OpenDecisions, t: int, constant: int, window: bool) -> tuple[int, int]:
    """How many rewards are due in round t, and the place of the first; `following` has the next.

    At the end of a window something is due whether or not a reward came.
    """
    if constant != VARIED:
        place = ring_index(t - constant, waiting.delays.size)
        comes = t > constant and (window or waiting.delays[place] != NEVER_ARRIVES)
        return (1 if comes else 0), place
    due = ring_index(t, waiting.last.size)
    head = waiting.delays.size + due
    number = waiting.number[due]
    waiting.number[due] = 0
    waiting.last[due] = head
    return number, waiting.following[head]


@kernel(borrows=True)
def is_closed(waiting: OpenDecisions, decision: int, t: int) -> bool:
    """Whether the reward of a decision came before round t."""
    return bool(waiting.delays[ring_index(decision, waiting.delays.size)] < t - decision)


@kernel(borrows=True)
def given_up(waiting: OpenDecisions, oldest: int, t: int, before: int) -> tuple[int, int]:
    """The oldest decision of a round below `before` that is open in round t, or 0 for none.

    All before `oldest` are closed; the second number is the next such. It looks ahead to one that
    is open now, so that it seldom has to look at all.
    """
    while oldest < before:
        decision = oldest
        oldest += 1
        while is_closed(waiting, oldest, t):
            oldest += 1
        if not is_closed(waiting, decision, t):
            return decision, oldest
    return 0, oldest
