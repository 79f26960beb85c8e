"""Open decisions of a simulation: ring buffers of a fixed size.

The decision of round t is stored at index t modulo the size of the ring. Nothing is allocated
during play. Delays do not depend on decisions, so those of the next DELAYS_AHEAD decisions are
drawn in one loop. Each round then starts with a known number of due rewards, which avoids branch
mispredictions.

If delays vary, the decisions due in a round form a linked list. `last` points to its end, or to its
head if it is empty, so that appending needs no branch. Fields used together are stored together.
"""

from typing import Any, NamedTuple

import numpy as np

from balaclava._core.kernels import kernel
from balaclava._core.states import ring_index
from balaclava.frames.patience import ESTIMATED
from balaclava.simulation.reward_delays import FIXED, LOST, DelayLaw, draw_delay

DELAYS_AHEAD = 256  # decisions whose delays are drawn at once; no result depends on it
NEVER_ARRIVES = 2**31 - 1  # in place of a delay: the reward is lost, or too late to count
VARIED = -1  # in place of a common delay: delays differ

# Unsigned indices: numba tests a signed one for being negative on each access.
_KEPT = np.dtype([("reward", "f8"), ("phase", "i8"), ("arm", "u4")], align=True)
_DUE = np.dtype([("last", "u4"), ("number", "u4")])


class OpenDecisions(NamedTuple):
    """Open decisions by round; sizes are powers of two."""

    rewards: np.ndarray
    phases: np.ndarray
    arms: np.ndarray
    delays: np.ndarray  # further decisions until the reward arrives, or NEVER_ARRIVES
    following: np.ndarray  # next index in a list, by index and then by head of a list
    last: np.ndarray  # by future round: the end of its list, or the head
    number: np.ndarray  # by future round: the length of its list


@kernel
def begin_open_decisions(most_open: int, longest: int) -> OpenDecisions:
    """Allocate the buffers, with nothing open."""
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
def delay_reach(law: DelayLaw, patience: int, window: bool) -> tuple[int, int]:
    """The longest delay with which a reward counts, and the common delay or VARIED."""
    if window:
        return patience, patience
    longest = law.longest if patience == ESTIMATED else min(patience, law.longest)
    return longest, (law.longest if law.kind == FIXED else VARIED)


@kernel(borrows=True)
def draw_ahead(
    pending: OpenDecisions, t: int, law: DelayLaw, longest: int, constant: int, rng: Any
) -> int:
    """Draw the delays of the decisions after round t, and return the last of these decisions.

    A delay above `longest` counts as lost.
    """
    size, rounds = pending.delays.size, pending.last.size
    for decision in range(t + 1, t + DELAYS_AHEAD + 1):
        delay = draw_delay(law, rng)
        arrives = delay != LOST and delay <= longest
        pending.delays[ring_index(decision, size)] = delay if arrives else NEVER_ARRIVES
    if constant == VARIED:
        for decision in range(t + 1, t + DELAYS_AHEAD + 1):
            index = ring_index(decision, size)
            delay = pending.delays[index]
            if delay != NEVER_ARRIVES:
                due = ring_index(decision + delay, rounds)
                pending.following[pending.last[due]] = index
                pending.last[due] = index
                pending.number[due] += 1
    return t + DELAYS_AHEAD


@kernel(borrows=True)
def never_arrives(pending: OpenDecisions, t: int) -> bool:
    """Whether the reward of the decision of round t is lost, or too late to count."""
    return bool(pending.delays[ring_index(t, pending.delays.size)] == NEVER_ARRIVES)


@kernel(borrows=True)
def open_decision(pending: OpenDecisions, t: int, arm: int, phase: int, reward: float) -> None:
    index = ring_index(t, pending.delays.size)
    pending.arms[index] = arm
    pending.phases[index] = phase
    pending.rewards[index] = reward


@kernel(borrows=True)
def stored_decision(pending: OpenDecisions, index: int) -> tuple[int, int, float]:
    """Arm, phase and reward of the decision at an index."""
    return int(np.int64(pending.arms[index])), pending.phases[index], pending.rewards[index]


@kernel(borrows=True)
def take_due(pending: OpenDecisions, t: int, constant: int, window: bool) -> tuple[int, int]:
    """Number of rewards due in round t, and the index of the first; `following` has the next.

    At the end of a window `missing` is due if no reward arrived.
    """
    if constant != VARIED:
        index = ring_index(t - constant, pending.delays.size)
        arrives = t > constant and (window or pending.delays[index] != NEVER_ARRIVES)
        return (1 if arrives else 0), index
    due = ring_index(t, pending.last.size)
    head = pending.delays.size + due
    number = pending.number[due]
    pending.number[due] = 0
    pending.last[due] = head
    return number, pending.following[head]


@kernel(borrows=True)
def is_closed(pending: OpenDecisions, decision: int, t: int) -> bool:
    """Whether the reward of a decision arrived before round t."""
    return bool(pending.delays[ring_index(decision, pending.delays.size)] < t - decision)


@kernel(borrows=True)
def oldest_open(pending: OpenDecisions, oldest: int, t: int, before: int) -> tuple[int, int]:
    """The oldest decision before round `before` that is open in round t, or 0; and a new `oldest`.

    All decisions before `oldest` are closed. Advancing to an open one makes further calls rare.
    """
    while oldest < before:
        decision = oldest
        oldest += 1
        while is_closed(pending, oldest, t):
            oldest += 1
        if not is_closed(pending, decision, t):
            return decision, oldest
    return 0, oldest
