"""Episodes: features and rewards of linear bandits in batches; decisions never wait.

They are pools (see `frames.pools`) for sums of r x. A block has one open episode, which every
decision of the block joins; the order of decisions determines the episode. The first episode ends
after a given number of decisions. A later one also needs det V of the decisions to have grown by a
factor since its start. Neither rule uses a reward. While no row is free, the open episode
continues.

An episode settles when each of its decisions has its reward or was given up. With random delays
that takes several mean delays. So half of the rewards suffice, or as many as a first episode has,
once there have been half as many decisions again as at its end, or half as many again as that, and
so on. Later rewards join the open episode. Then the sum of r x over the rewards that came is
released, once, and V takes in the features of their decisions alone: theta and the width of its
interval use the same V.

A reward's part r x is truncated towards 0 onto a grid on which sums are exact. The parts of one
decision with two different rewards then differ by at most |x| in each coordinate
(`episodes.proof.md` beside this file).
"""

import math
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from balaclava._core.kernels import kernel
from balaclava._core.states import added_later, range_faults, stored_as
from balaclava.frames import pending
from balaclava.frames.pools import NO_ROW
from balaclava.frames.ridge import Ridge, add_row, begin_ridge, compute_afresh, multiply

# Unsettled episodes of a block, the open one included. det V grows by a factor in each, so few
# are unsettled unless rewards are later than a whole episode.
UNSETTLED_EPISODES = 4


@added_later("deadlines")  # 0: the next reward of the block passes it
@stored_as(rewards_in_episode="came", growth_at_start="start", last_release="answer")
class Episodes(NamedTuple):
    """The episodes of each block, and the releases of the settled ones."""

    made: Ridge  # of all decisions: determines when an episode ends
    known: Ridge  # of the decisions whose rewards were released
    released: np.ndarray  # [block, d]: the sum of all releases
    theta: np.ndarray  # [block, d]: V^-1 of that
    # [block]
    number: np.ndarray  # of its open episode, from 1
    size: np.ndarray  # decisions of that episode so far
    growth_at_start: np.ndarray  # the growth of det V at its start
    waiting: np.ndarray  # episodes that ended and are not settled
    rewards: np.ndarray  # rewards in the releases
    draws: np.ndarray  # draws of noise in them
    # [block, row]
    numbers: np.ndarray  # of the episode in the row; 0: the row is free
    left: np.ndarray  # its decisions that have no reward and were not given up
    rewards_in_episode: np.ndarray
    sums: np.ndarray  # [block, row, d]: of r x: raw, read only to be released
    grams: np.ndarray  # [block, row, d, d]: of x x', of the rewards that came
    deadlines: np.ndarray  # [block, row]: decisions from which half of the rewards suffice
    # Of all blocks
    last_release: np.ndarray  # [d]
    pending: pending.Pending  # features of open decisions, and their episodes

    def faults(self, decisions: int) -> Iterator[str]:
        yield from range_faults(
            0, decisions + 1, number=self.number, numbers=self.numbers, size=self.size,
            rewards_in_episode=self.rewards_in_episode, draws=self.draws, rewards=self.rewards,
        )  # fmt: skip
        yield from range_faults(0, UNSETTLED_EPISODES, waiting=self.waiting)
        yield from range_faults(0, 2 * decisions + 1, deadlines=self.deadlines)
        if self.rewards.sum() + self.rewards_in_episode.sum() + self.left.sum() > decisions:
            yield "more rewards than decisions"
        if (self.left < 0).any() or (self.sums[self.numbers == 0] != 0).any():
            yield "an episode awaits fewer than 0 decisions, or a sum has no episode"


@kernel
def begin_episodes(blocks: int, d: int, ridge: float, room: int) -> Episodes:
    """Open the first episode of each block."""
    numbers = np.zeros((blocks, UNSETTLED_EPISODES), np.int64)
    for block in range(blocks):
        numbers[block, 1] = 1
    return Episodes(
        made=begin_ridge(blocks, d, ridge),
        known=begin_ridge(blocks, d, ridge),
        released=np.zeros((blocks, d)),
        theta=np.zeros((blocks, d)),
        number=np.ones(blocks, np.int64),
        size=np.zeros(blocks, np.int64),
        growth_at_start=np.zeros(blocks),
        waiting=np.zeros(blocks, np.int64),
        rewards=np.zeros(blocks, np.int64),
        draws=np.zeros(blocks, np.int64),
        numbers=numbers,
        left=np.zeros((blocks, UNSETTLED_EPISODES), np.int64),
        rewards_in_episode=np.zeros((blocks, UNSETTLED_EPISODES), np.int64),
        sums=np.zeros((blocks, UNSETTLED_EPISODES, d)),
        grams=np.zeros((blocks, UNSETTLED_EPISODES, d, d)),
        deadlines=np.zeros((blocks, UNSETTLED_EPISODES), np.int64),
        last_release=np.zeros(d),
        pending=pending.begin_pending(room, d + 1),
    )


@kernel(borrows=True)
def block_in_first_episode(state: Episodes) -> int:
    """Of several blocks, the one with the fewest decisions whose first episode still takes some.

    NO_ROW if there is none, or a single block. A block without a release has no estimate, and its
    index says nothing about its rewards: it must take part before blocks are compared.
    """
    block = NO_ROW
    if state.number.size > 1:
        for each in range(state.number.size):
            if state.number[each] == 1 and (
                block == NO_ROW or state.size[each] < state.size[block]
            ):
                block = each
    return block


@kernel(borrows=True)
def add_decision(state: Episodes, block: int, first: float, growth: float) -> int:
    """Add the decision whose features were noted to the open episode; returns its phase.

    The episode ends after `first` decisions; a later one also needs log det V to grow by `growth`.
    """
    number = state.number[block]
    note = state.pending.notes[pending.new_note(state.pending)]
    note[note.size - 1] = number
    state.left[block, number % UNSETTLED_EPISODES] += 1
    add_row(state.made, block, note[: note.size - 1])
    state.size[block] += 1
    grown = state.made.growth[block] - state.growth_at_start[block] >= growth
    is_free = state.numbers[block, (number + 1) % UNSETTLED_EPISODES] == 0
    if state.size[block] >= first and (grown or number == 1) and is_free:
        state.waiting[block] += 1
        state.deadlines[block, number % UNSETTLED_EPISODES] = state.pending.count[0]
        postpone(state, block, number % UNSETTLED_EPISODES)
        state.number[block] = number + 1
        state.numbers[block, (number + 1) % UNSETTLED_EPISODES] = number + 1
        state.size[block] = 0
        state.growth_at_start[block] = state.made.growth[block]
    return state.pending.count[0]


@kernel(borrows=True)
def postpone(state: Episodes, block: int, row: int) -> None:
    """Move a deadline that is over: half as many decisions again, as often as needed."""
    while state.deadlines[block, row] <= state.pending.count[0]:
        state.deadlines[block, row] += state.deadlines[block, row] // 2 + 1


@kernel(borrows=True)
def overdue_row(state: Episodes, block: int, first: float) -> int:
    """The row of an episode to be released at a deadline: it has half its rewards, or `first`."""
    for row in range(UNSETTLED_EPISODES):
        has_ended = 0 < state.numbers[block, row] < state.number[block]
        if has_ended and state.deadlines[block, row] <= state.pending.count[0]:
            postpone(state, block, row)
            rewards, left = state.rewards_in_episode[block, row], state.left[block, row]
            if rewards >= min(first, left):
                state.left[block, row] = 0
                state.waiting[block] -= 1
                return row
    return NO_ROW


@kernel(borrows=True)
def row_of_note(state: Episodes, block: int, note: np.ndarray) -> int:
    """The row of a decision's episode; NO_ROW if that was released at a deadline."""
    number = int(note[note.size - 1])
    row = number % UNSETTLED_EPISODES
    return row if state.numbers[block, row] == number else NO_ROW


@kernel(borrows=True)
def add_reward(state: Episodes, block: int, phase: int, reward: float, step: float) -> int:
    """Add r x, on the grid of that step, to its episode: the row if it is to be released.

    If the episode was released, the reward joins the open one.
    """
    number = pending.take_note(state.pending, phase)
    if number == pending.FORGOTTEN:
        return NO_ROW
    note = state.pending.notes[number]
    d = note.size - 1
    own = row_of_note(state, block, note)
    row = own if own != NO_ROW else state.number[block] % UNSETTLED_EPISODES
    sums, gram = state.sums[block, row], state.grams[block, row]
    for i in range(d):
        sums[i] += math.trunc(reward * note[i] / step) * step
        for j in range(d):
            gram[i, j] += note[i] * note[j]
    for i in range(d + 1):
        note[i] = 0.0  # saves compress what is not needed
    state.rewards_in_episode[block, row] += 1
    return settle(state, block, own)


@kernel(borrows=True)
def give_up(state: Episodes, block: int, phase: int) -> int:
    """Give up a decision: the row if its episode is now to be released."""
    number = pending.take_note(state.pending, phase)
    if number == pending.FORGOTTEN:
        return NO_ROW
    return settle(state, block, row_of_note(state, block, state.pending.notes[number]))


@kernel(borrows=True)
def settle(state: Episodes, block: int, row: int) -> int:
    """Await one decision less: the row if its episode settles; one without rewards is closed."""
    if row == NO_ROW:
        return NO_ROW
    state.left[block, row] -= 1
    if state.left[block, row] > 0 or state.numbers[block, row] == state.number[block]:
        return NO_ROW
    state.waiting[block] -= 1
    if state.rewards_in_episode[block, row] > 0:
        return row
    state.numbers[block, row] = 0
    return NO_ROW


@kernel(borrows=True)
def keep_release(state: Episodes, block: int, row: int) -> None:
    """Learn from `last_release`, the released sum of the row, and free the row."""
    d = state.last_release.size
    gram, known = state.grams[block, row], state.known.gram[block]
    for i in range(d):
        state.released[block, i] += state.last_release[i]
        state.sums[block, row, i] = 0.0
        for j in range(d):
            known[i, j] += gram[i, j]
            gram[i, j] = 0.0
    compute_afresh(state.known, block)
    multiply(state.known.inverse[block], state.released[block], state.theta[block])
    state.rewards[block] += state.rewards_in_episode[block, row]
    state.draws[block] += 1
    state.rewards_in_episode[block, row] = 0
    state.numbers[block, row] = 0
