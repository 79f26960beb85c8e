"""Episodes: features and rewards of linear bandits in batches that nothing waits for.

Pools (see `frames.pools`) for sums of r x. A block has one episode open, into which every decision
of it goes; who is in which episode follows from the order of decisions. The first one ends after
so many decisions; a later one when, in addition, det V of the decisions made has grown by a factor
since it began. Neither looks at a reward. While no row is free, the open episode goes on.

An episode is settled when each of its decisions has its reward or was given up. Then the sum of
r x over the rewards that came is released, once, and V takes in the features of these decisions
and no others: theta and the width of its interval use the same V.

A reward's part r x is truncated, towards 0, onto a grid on which sums are exact: parts of one
decision with another reward then differ by no more than |x| in each coordinate, so that neither
norm of the difference is above that of x.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from balaclava._core.kernels import kernel
from balaclava._core.states import range_faults
from balaclava.frames.pending import (
    FORGOTTEN,
    Pending,
    begin_pending,
    new_note,
    next_is_taken,
    take_note,
)
from balaclava.frames.pools import NOTHING, UNLEARNED
from balaclava.frames.ridge import Ridge, add_row, begin_ridge, compute_afresh, multiply

ROWS = 4  # episodes of a block under way at once, the open one included


class Episodes(NamedTuple):
    """The episodes of each block, and what the settled ones released."""

    made: Ridge  # of the decisions made: says when an episode ends
    known: Ridge  # of the decisions whose rewards are in what was released
    released: np.ndarray  # [block, d]: the sum of all that was released
    theta: np.ndarray  # [block, d]: V^-1 of that
    # Of each block
    number: np.ndarray  # of its open episode, from 1
    size: np.ndarray  # decisions of it so far
    start: np.ndarray  # the growth of det V when it began
    waiting: np.ndarray  # episodes that ended and are not settled
    rewards: np.ndarray  # in what was released
    draws: np.ndarray  # of noise in it
    # Of each block and row
    numbers: np.ndarray  # of the episode in the row; 0: none
    left: np.ndarray  # its decisions that have no reward and were not given up
    came: np.ndarray  # rewards of it that came
    sums: np.ndarray  # [block, row, d]: of r x: raw, and never read but to be released
    grams: np.ndarray  # [block, row, d, d]: of x x', where rewards came
    # Of all
    answer: np.ndarray  # [d]: the last release
    pending: Pending  # features of open decisions, and their episodes

    def faults(self, decisions: int) -> Iterator[str]:
        """What cannot be after so many decisions."""
        yield from range_faults(
            0, decisions + 1, number=self.number, numbers=self.numbers, size=self.size,
            came=self.came, draws=self.draws,
        )  # fmt: skip
        yield from range_faults(0, ROWS, waiting=self.waiting)
        if self.rewards.sum() + self.came.sum() + self.left.sum() > decisions:
            yield "more rewards than decisions"
        if (self.left < 0).any() or (self.sums[self.numbers == 0] != 0).any():
            yield "an episode that waits for less than nothing, or a sum of none"


@kernel
def begin_episodes(blocks: int, d: int, ridge: float, room: int) -> Episodes:
    """The first episode of each block is open."""
    numbers = np.zeros((blocks, ROWS), np.int64)
    for block in range(blocks):
        numbers[block, 1] = 1
    return Episodes(
        made=begin_ridge(blocks, d, ridge),
        known=begin_ridge(blocks, d, ridge),
        released=np.zeros((blocks, d)),
        theta=np.zeros((blocks, d)),
        number=np.ones(blocks, np.int64),
        size=np.zeros(blocks, np.int64),
        start=np.zeros(blocks),
        waiting=np.zeros(blocks, np.int64),
        rewards=np.zeros(blocks, np.int64),
        draws=np.zeros(blocks, np.int64),
        numbers=numbers,
        left=np.zeros((blocks, ROWS), np.int64),
        came=np.zeros((blocks, ROWS), np.int64),
        sums=np.zeros((blocks, ROWS, d)),
        grams=np.zeros((blocks, ROWS, d, d)),
        answer=np.zeros(d),
        pending=begin_pending(room, d + 1),
    )


@kernel(borrows=True)
def room_for_decision(state: Episodes) -> int:
    """Where to note the features of the next decision; NOTHING where too many are open."""
    if next_is_taken(state.pending):
        return NOTHING
    return (state.pending.count[0] + 1) % state.pending.numbers.size


@kernel(borrows=True)
def enter_decision(state: Episodes, block: int, first: float, growth: float) -> int:
    """The decision whose features were noted joins the open episode; its phase.

    An episode ends with it after `first` decisions, and log det V up by `growth` unless it is the
    block's first.
    """
    number = state.number[block]
    note = state.pending.notes[new_note(state.pending)]
    note[note.size - 1] = number
    state.left[block, number % ROWS] += 1
    add_row(state.made, block, note[: note.size - 1])
    state.size[block] += 1
    grown = state.made.growth[block] - state.start[block] >= growth
    is_free = state.numbers[block, (number + 1) % ROWS] == 0
    if state.size[block] >= first and (grown or number == 1) and is_free:
        state.waiting[block] += 1
        state.number[block] = number + 1
        state.numbers[block, (number + 1) % ROWS] = number + 1
        state.size[block] = 0
        state.start[block] = state.made.growth[block]
    return state.pending.count[0]


@kernel(borrows=True)
def take_reward(state: Episodes, block: int, phase: int, reward: float, step: float) -> int:
    """Add r x, on the grid of that step, to its episode; the row if that is to be released."""
    number = take_note(state.pending, phase) if phase != UNLEARNED else FORGOTTEN
    if number == FORGOTTEN:
        return NOTHING
    note = state.pending.notes[number]
    d = note.size - 1
    row = int(note[d]) % ROWS
    sums, gram = state.sums[block, row], state.grams[block, row]
    for i in range(d):
        sums[i] += math.trunc(reward * note[i] / step) * step
        for j in range(d):
            gram[i, j] += note[i] * note[j]
    state.came[block, row] += 1
    return settle(state, block, row)


@kernel(borrows=True)
def drop_decision(state: Episodes, block: int, phase: int) -> int:
    """A decision was given up; the row if its episode is now to be released."""
    number = take_note(state.pending, phase) if phase != UNLEARNED else FORGOTTEN
    if number == FORGOTTEN:
        return NOTHING
    note = state.pending.notes[number]
    return settle(state, block, int(note[note.size - 1]) % ROWS)


@kernel(borrows=True)
def settle(state: Episodes, block: int, row: int) -> int:
    """One decision less to wait for. An episode that brought nothing is closed unreleased."""
    state.left[block, row] -= 1
    return settled_row(state, block, row)


@kernel(borrows=True)
def settled_row(state: Episodes, block: int, row: int) -> int:
    """The row if its episode has ended and waits for nothing; it is emptied if nothing came."""
    if state.left[block, row] > 0 or state.numbers[block, row] == state.number[block]:
        return NOTHING
    state.waiting[block] -= 1
    if state.came[block, row] > 0:
        return row
    state.numbers[block, row] = 0
    return NOTHING


@kernel(borrows=True)
def take_in(state: Episodes, block: int, row: int) -> None:
    """What was released of the row, in `answer`, is known from now on; the row is empty."""
    d = state.answer.size
    gram, known = state.grams[block, row], state.known.gram[block]
    for i in range(d):
        state.released[block, i] += state.answer[i]
        state.sums[block, row, i] = 0.0
        for j in range(d):
            known[i, j] += gram[i, j]
            gram[i, j] = 0.0
    compute_afresh(state.known, block)
    multiply(state.known.inverse[block], state.released[block], state.theta[block])
    state.rewards[block] += state.came[block, row]
    state.draws[block] += 1
    state.came[block, row] = 0
    state.numbers[block, row] = 0
