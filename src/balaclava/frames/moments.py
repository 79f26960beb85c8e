"""Batches of all decisions, with the first and second moments of their features.

The features of a decision enter one vector of sums for all blocks of coefficients: with the row x
of its arm, scaled to length at most 1, and its reward r in [0, 1], the part of its block is

    x x' (the lower triangle; entries off the diagonal times sqrt 2), and k (r - 1/2) x.

Off the diagonal sqrt 2 counts an entry of the symmetric matrix twice, so that the length of the
part is that of the matrix.

Only the number of earlier decisions says in which batch a decision is: never its features, its arm
or its reward. A batch settles when each of its decisions has its reward or was given up, or at its
deadline: when there have been twice as many decisions as at its end. Then the vector is released,
once, for all blocks together; rewards that come later do not count. Whether a reward counts depends
on its own arrival alone, so a late one moves no other reward into another sum. Without a deadline
the first releases would wait for the slowest of their rewards, and arms be drawn evenly meanwhile.
While no row is free, the open batch continues.

Sensitivity: `moments.proof.md` beside this file.
"""

import math
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from balaclava._core.kernels import kernel
from balaclava._core.states import range_faults
from balaclava.frames import pending
from balaclava.frames.pools import NO_ROW
from balaclava.privacy.exact_noise import grid_step

UNSETTLED_BATCHES = 4  # the open one included; batches grow, so few are unsettled
# Decisions at a batch's deadline, in decisions at its end. Of rewards that are late by a fixed
# number of decisions, a batch that ends after as many has all. A guess.
_DEADLINE = 2


class Moments(NamedTuple):
    """The open batches, and the sum of all releases."""

    released: np.ndarray  # [entry]
    last_release: np.ndarray  # [entry]
    # One element each
    number: np.ndarray  # of the open batch, from 1
    decisions: np.ndarray  # in all batches so far
    draws: np.ndarray  # releases
    rewards: np.ndarray  # in them
    # [row]
    numbers: np.ndarray  # of the batch in the row; 0: the row is free
    deadlines: np.ndarray  # of batches that ended
    left: np.ndarray  # its decisions that have no reward and were not given up
    rewards_in_batch: np.ndarray
    sums: np.ndarray  # [row, entry]: raw, read only to be released
    pending: pending.Pending  # features of open decisions, and their batches

    def faults(self, decisions: int) -> Iterator[str]:
        yield from range_faults(
            0, decisions + 1, number=self.number, numbers=self.numbers, decisions=self.decisions,
            draws=self.draws, rewards=self.rewards, left=self.left,
            rewards_in_batch=self.rewards_in_batch,
        )  # fmt: skip
        if self.rewards.sum() + self.rewards_in_batch.sum() + self.left.sum() > decisions:
            yield "more rewards than decisions"
        if (self.sums[self.numbers == 0] != 0).any():
            yield "a sum has no batch"


def entries_of(d: int) -> int:
    """Entries of a block: a lower triangle and a vector."""
    return d * (d + 3) // 2


def widest_move(d: int, weight: float) -> float:
    """How far one participant moves the vector in the L2 norm, for the weight k."""
    exact = math.sqrt(2.0) * (1.0 + 0.125 * weight * weight)
    return exact + 2.0 * math.sqrt(entries_of(d)) * grid_step(exact)


@kernel
def begin_moments(blocks: int, d: int, room: int) -> Moments:
    size = blocks * (d * (d + 3) // 2)
    numbers = np.zeros(UNSETTLED_BATCHES, np.int64)
    numbers[1] = 1
    return Moments(
        released=np.zeros(size),
        last_release=np.zeros(size),
        number=np.ones(1, np.int64),
        decisions=np.zeros(1, np.int64),
        draws=np.zeros(1, np.int64),
        rewards=np.zeros(1, np.int64),
        numbers=numbers,
        deadlines=np.zeros(UNSETTLED_BATCHES, np.int64),
        left=np.zeros(UNSETTLED_BATCHES, np.int64),
        rewards_in_batch=np.zeros(UNSETTLED_BATCHES, np.int64),
        sums=np.zeros((UNSETTLED_BATCHES, size)),
        pending=pending.begin_pending(room, d + 1),
    )


@kernel(borrows=True)
def join_batch(state: Moments, first: float, growth: float) -> int:
    """Add the decision whose features were noted to the open batch; returns its phase.

    Batch j ends when all batches together have first * growth^(j-1) decisions.
    """
    number = state.number[0]
    note = state.pending.notes[pending.new_note(state.pending)]
    note[note.size - 1] = number
    state.left[number % UNSETTLED_BATCHES] += 1
    state.decisions[0] += 1
    following = (number + 1) % UNSETTLED_BATCHES
    enough = state.decisions[0] >= first * growth ** (number - 1)
    if enough and state.numbers[following] == 0:
        state.deadlines[number % UNSETTLED_BATCHES] = _DEADLINE * state.decisions[0]
        state.number[0] = number + 1
        state.numbers[following] = number + 1
    return state.pending.count[0]


@kernel(borrows=True)
def add_moment(
    state: Moments, block: int, phase: int, reward: float, weight: float, step: float
) -> int:
    """Add the part of a decision with its reward to its batch: the row if it is to be released."""
    number = pending.take_note(state.pending, phase)
    if number == pending.FORGOTTEN:
        return NO_ROW
    x = state.pending.notes[number]
    d = x.size - 1
    row = batch_row(state, x)
    if row == NO_ROW:
        return NO_ROW
    sums, place = state.sums[row], block * (d * (d + 3) // 2)
    for i in range(d):
        for j in range(i):
            sums[place] += math.trunc(math.sqrt(2.0) * x[i] * x[j] / step) * step
            place += 1
        sums[place] += math.trunc(x[i] * x[i] / step) * step
        place += 1
    for i in range(d):
        sums[place] += math.trunc(weight * (reward - 0.5) * x[i] / step) * step
        place += 1
    for i in range(d + 1):
        x[i] = 0.0  # saves compress what is not needed
    state.rewards_in_batch[row] += 1
    return settle_moments(state, row)


@kernel(borrows=True)
def give_up_moment(state: Moments, phase: int) -> int:
    """Give up a decision: the row if its batch is now to be released."""
    number = pending.take_note(state.pending, phase)
    if number == pending.FORGOTTEN:
        return NO_ROW
    note = state.pending.notes[number]
    row = batch_row(state, note)
    for i in range(note.size):
        note[i] = 0.0
    return NO_ROW if row == NO_ROW else settle_moments(state, row)


@kernel(borrows=True)
def batch_row(state: Moments, note: np.ndarray) -> int:
    """The row of the batch of a decision; NO_ROW if that was released at its deadline."""
    number = int(note[note.size - 1])
    row = number % UNSETTLED_BATCHES
    return row if state.numbers[row] == number else NO_ROW


@kernel(borrows=True)
def overdue_row(state: Moments) -> int:
    """The row of a batch to be released at its deadline; one without rewards is closed."""
    for row in range(UNSETTLED_BATCHES):
        ended = state.numbers[row] > 0 and state.numbers[row] != state.number[0]
        if ended and state.decisions[0] >= state.deadlines[row]:
            state.left[row] = 0
            if state.rewards_in_batch[row] > 0:
                return row
            state.numbers[row] = 0
    return NO_ROW


@kernel(borrows=True)
def settle_moments(state: Moments, row: int) -> int:
    """Await one decision less: the row if its batch settles; one without rewards is closed."""
    state.left[row] -= 1
    if state.left[row] > 0 or state.numbers[row] == state.number[0]:
        return NO_ROW
    if state.rewards_in_batch[row] > 0:
        return row
    state.numbers[row] = 0
    return NO_ROW


@kernel(borrows=True)
def keep_moments(state: Moments, row: int) -> None:
    """Add `last_release`, the released vector of the row, to the sum, and free the row."""
    for place in range(state.released.size):
        state.released[place] += state.last_release[place]
        state.sums[row, place] = 0.0
    state.draws[0] += 1
    state.rewards[0] += state.rewards_in_batch[row]
    state.rewards_in_batch[row] = 0
    state.numbers[row] = 0


@kernel(borrows=True)
def unpack_moments(released: np.ndarray, block: int, matrix: np.ndarray, b: np.ndarray) -> None:
    """The symmetric matrix and the vector of a block."""
    d = b.size
    place = block * (d * (d + 3) // 2)
    for i in range(d):
        for j in range(i):
            matrix[i, j] = released[place] / math.sqrt(2.0)
            matrix[j, i] = matrix[i, j]
            place += 1
        matrix[i, i] = released[place]
        place += 1
    for i in range(d):
        b[i] = released[place]
        place += 1
