"""Batches of weighted rewards, from which values of policies are estimated.

The weights of a decision follow from the chances of its arms, not from its reward. With its reward
r in [0, 1] it adds weight times r, rounded down to a grid, to each entry of its batch. Batches are
of all arms, by the order of decisions: the j-th ends when all batches have first * 2^(j-1)
decisions. A batch settles when each of its decisions has its reward or was given up, and is
released once those before it are: then releases are of the first decisions, which the intervals
need. While no row is free, the open batch continues.

Proof: `value_batches.proof.md` beside this file.
"""

import math
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from balaclava._core.kernels import kernel
from balaclava._core.states import range_faults
from balaclava.frames import pending
from balaclava.privacy.mechanisms.laplace import laplace_vector_release
from balaclava.theory.confidence_sequences import REWARD_GRID

VALUE_ROWS = 6  # unsettled batches, the open one included; they double, so these are few
# Places in a note. Before them are the phase of the base and the batch.
OF_ARM, OF_RULE, OF_TARGET = 2, 3, 4  # weights
FIRST_SQUARE = 5  # mean squares of all entries


class ValueBatches(NamedTuple):
    """The batches that are not released, and the sum of all releases."""

    released: np.ndarray  # [entry]: of weight times reward, with noise
    last_release: np.ndarray  # [entry]
    # [entry]: sums over the rewards in releases
    weights: np.ndarray
    squares: np.ndarray  # of the mean square of the weight before the arm was drawn
    # One element each
    number: np.ndarray  # of the open batch, from 1
    next_release: np.ndarray  # number of the batch to be released next
    decisions: np.ndarray  # in all batches
    draws: np.ndarray  # releases
    rewards: np.ndarray  # in them
    # [row]: batch j is in row j modulo the rows
    left: np.ndarray  # its decisions that have no reward and were not given up
    rewards_in_batch: np.ndarray
    sums: np.ndarray  # [row, entry]: raw, read only to be released
    weights_in_batch: np.ndarray  # [row, entry]
    squares_in_batch: np.ndarray  # [row, entry]
    pending: pending.Pending

    def faults(self, decisions: int) -> Iterator[str]:
        yield from range_faults(
            0, decisions + 1, number=self.number, next_release=self.next_release, left=self.left,
            decisions=self.decisions, draws=self.draws, rewards=self.rewards,
            rewards_in_batch=self.rewards_in_batch,
        )  # fmt: skip
        yield from range_faults(0.0, decisions, sums=self.sums)
        if not 0 <= self.number[0] - self.next_release[0] < VALUE_ROWS:
            yield "more batches than rows"
        if self.rewards.sum() + self.rewards_in_batch.sum() + self.left.sum() > decisions:
            yield "more rewards than decisions"


@kernel
def begin_value_batches(entries: int, room: int) -> ValueBatches:
    """No batch; room for the weights of so many open decisions."""
    return ValueBatches(
        released=np.zeros(entries),
        last_release=np.zeros(entries),
        weights=np.zeros(entries),
        squares=np.zeros(entries),
        number=np.ones(1, np.int64),
        next_release=np.ones(1, np.int64),
        decisions=np.zeros(1, np.int64),
        draws=np.zeros(1, np.int64),
        rewards=np.zeros(1, np.int64),
        left=np.zeros(VALUE_ROWS, np.int64),
        rewards_in_batch=np.zeros(VALUE_ROWS, np.int64),
        sums=np.zeros((VALUE_ROWS, entries)),
        weights_in_batch=np.zeros((VALUE_ROWS, entries)),
        squares_in_batch=np.zeros((VALUE_ROWS, entries)),
        pending=pending.begin_pending(room, FIRST_SQUARE + entries),
    )


@kernel(borrows=True)
def join_value_batch(state: ValueBatches, first: float) -> int:
    """Add the decision whose weights were noted to the open batch; returns its phase."""
    number = state.number[0]
    state.pending.notes[pending.new_note(state.pending)][1] = number
    state.left[number % VALUE_ROWS] += 1
    state.decisions[0] += 1
    enough = state.decisions[0] >= first * 2.0 ** (number - 1)
    if enough and number + 1 - state.next_release[0] < VALUE_ROWS:
        state.number[0] = number + 1
    return state.pending.count[0]


@kernel(borrows=True)
def add_weighted_reward(state: ValueBatches, entry: int, row: int, weight: float, r: float) -> None:
    """Add one entry of a decision, whose weight is in [0, 1], to its batch."""
    state.sums[row, entry] += math.floor(weight * r / REWARD_GRID) * REWARD_GRID
    state.weights_in_batch[row, entry] += weight


@kernel(borrows=True)
def add_reward_of_note(state: ValueBatches, note: np.ndarray, arm: int, r: float) -> None:
    """Add the reward of a decision to the entries of the rule, of its arm and of the target."""
    row = int(note[1]) % VALUE_ROWS
    add_weighted_reward(state, 0, row, note[OF_RULE], r)
    add_weighted_reward(state, 1 + arm, row, note[OF_ARM], r)
    if note[OF_TARGET] > 0.0:
        add_weighted_reward(state, state.weights.size - 1, row, note[OF_TARGET], r)
    for entry in range(state.weights.size):
        state.squares_in_batch[row, entry] += note[FIRST_SQUARE + entry]
    state.rewards_in_batch[row] += 1


@kernel(borrows=True)
def close_value_batch(state: ValueBatches) -> None:
    """End the open batch with the decisions that it has."""
    if state.left[state.number[0] % VALUE_ROWS] == 0:
        state.number[0] += 1


@kernel(borrows=True)
def release_values(state: ValueBatches, sensitivity: float, epsilon: float, rng: Any) -> None:
    """Release the batches that are settled, in their order; one without rewards is skipped."""
    while state.next_release[0] < state.number[0]:
        row = state.next_release[0] % VALUE_ROWS
        if state.left[row] > 0:
            break
        if state.rewards_in_batch[row] > 0:
            laplace_vector_release(rng, state.sums[row], sensitivity, epsilon, state.last_release)
            state.draws[0] += 1
            state.rewards[0] += state.rewards_in_batch[row]
            for entry in range(state.released.size):
                state.released[entry] += state.last_release[entry]
                state.weights[entry] += state.weights_in_batch[row, entry]
                state.squares[entry] += state.squares_in_batch[row, entry]
                state.squares_in_batch[row, entry] = 0.0
                state.sums[row, entry] = 0.0
                state.weights_in_batch[row, entry] = 0.0
            state.rewards_in_batch[row] = 0
        state.next_release[0] += 1
