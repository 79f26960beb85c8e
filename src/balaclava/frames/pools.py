"""Pools: an arm's rewards in batches, of which several may be under way: nothing waits.

Who is in which batch follows from the order of decisions, never from that of arrivals: a decision
carries the number of its arm's batch as its phase. The size of a batch is fixed when it opens; what
is released later may cut it short. A batch is settled when each of its decisions has its reward or
was given up; then its sum is released, once, with the number of rewards that came as its weight.

An arm with a batch that is fully asked and not settled is waiting, and is not asked for again on
account of exploration. Meanwhile the best by what was released is played, into its next batch. The
choice is made anew whenever something settles and when the batch in play is fully asked. Until
then the arm in play just goes on: its decisions are counted as asked all at once.

Privacy does not rest on anything here but this: a reward enters one sum, which one it is depends
on decisions alone, and when it settles depends on arrivals, which must not depend on rewards.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from balaclava._core.kernels import kernel
from balaclava._core.states import MOST_PLANNED, range_faults, ring_index
from balaclava.frames.blocks import (
    Blocks,
    add_member,
    all_had_their_turn,
    begin_blocks,
    clear_members,
    has_turn_to_come,
    next_turn,
    start_block,
    turns_left,
)

UNLEARNED = -1  # the phase of a decision from which nothing is learned
NOTHING = -1  # in place of a row: no batch has settled
ROWS = 32  # batches of an arm under way at once; batches that grow need few


class Pools(NamedTuple):
    """Each arm's batches under way, and what the settled ones released."""

    # Of each arm
    number: np.ndarray  # of its newest batch; 0 before the first
    size: np.ndarray  # decisions that batch has
    placed: np.ndarray  # decisions of it so far, and those that the arm in play just goes on with
    planned: np.ndarray  # decisions of all its batches, less those that brought no reward
    empty: np.ndarray  # settled batches that brought no reward
    waiting: np.ndarray  # batches fully asked and not settled
    ready: np.ndarray  # whether it may be asked for on account of exploration: known, not waiting
    means: np.ndarray  # the released mean that the policy goes by
    weights: np.ndarray  # the number of rewards behind it, 0 before the first release
    spreads: np.ndarray  # 1/sqrt(weight)
    pooled: np.ndarray  # the mean of all that was released,
    rewards: np.ndarray  # the number of rewards behind that,
    draws: np.ndarray  # the draws of noise in it
    settled: np.ndarray  # settled batches that brought rewards
    # Of each arm and row
    numbers: np.ndarray  # of the batch in the row; 0: none
    sizes: np.ndarray
    left: np.ndarray  # its decisions that have no reward and were not given up
    lost: np.ndarray  # those that were given up
    sums: np.ndarray  # of its rewards: raw, and never read but to be released
    # One element each
    fresh: np.ndarray  # arms none of whose batches has settled
    heard: np.ndarray  # arms of which something was released
    first: np.ndarray  # whether first pulls are made: some arm is fresh, or none was heard of
    lead: np.ndarray  # the arm with the highest released mean
    current: np.ndarray  # the arm in play, or -1 when the policy is to choose one
    rest: np.ndarray  # decisions that it just goes on with
    steady: np.ndarray  # whether the decision being made is of the arm in play, nothing drawn
    held: np.ndarray  # whether nothing is to be learned from it
    chance: np.ndarray  # the chance that the last decision's arm had
    blocks: Blocks

    @property
    def last_chance(self) -> float:
        """The chance that the last decision's arm had."""
        return float(self.chance[0])

    def faults(self, decisions: int) -> Iterator[str]:
        """What cannot be after so many decisions."""
        arms = self.number.size
        yield from range_faults(
            0, decisions, number=self.number, numbers=self.numbers, empty=self.empty,
            waiting=self.waiting, weights=self.weights, draws=self.draws, lost=self.lost,
        )  # fmt: skip
        yield from range_faults(
            0, MOST_PLANNED, size=self.size, sizes=self.sizes, planned=self.planned
        )
        yield from range_faults(0, arms, fresh=self.fresh, heard=self.heard)
        yield from range_faults(-1, arms - 1, current=self.current)
        yield from range_faults(0, arms - 1, lead=self.lead)
        yield from range_faults(0.0, 1.0, spreads=self.spreads, chance=self.chance)
        if (self.placed > self.size).any() or (self.placed < 0).any():
            yield "more decisions in a batch than it has, or fewer than none"
        if self.rewards.sum() > decisions or self.placed.sum() - self.rest[0] > decisions:
            yield "more rewards than decisions, or more decisions than were made"
        if self.rest[0] < 0 or (self.rest[0] > 0 and self.placed[self.current[0]] < self.rest[0]):
            yield "an arm in play that goes on for longer than its batch"
        if (self.left > self.sizes).any() or (self.left < 0).any():
            yield "a batch that waits for more than it asked"
        if (self.lost + self.left > self.sizes).any():
            yield "a batch that lost more than it asked"
        if (self.sums[self.numbers == 0] != 0).any() or (self.settled > self.number).any():
            yield "a sum, or a release, of no batch"


@kernel
def begin_pools(arms: int, rows: int) -> Pools:
    """No batch open; `rows` batches of an arm, a power of two, may be under way."""
    return Pools(
        number=np.zeros(arms, np.int64),
        size=np.zeros(arms, np.int64),
        placed=np.zeros(arms, np.int64),
        planned=np.zeros(arms, np.int64),
        empty=np.zeros(arms, np.int64),
        waiting=np.zeros(arms, np.int64),
        ready=np.zeros(arms, np.bool_),
        means=np.zeros(arms),
        weights=np.zeros(arms, np.int64),
        spreads=np.zeros(arms),
        pooled=np.zeros(arms),
        rewards=np.zeros(arms, np.int64),
        draws=np.zeros(arms, np.int64),
        settled=np.zeros(arms, np.int64),
        numbers=np.zeros((arms, rows), np.int64),
        sizes=np.zeros((arms, rows), np.int64),
        left=np.zeros((arms, rows), np.int64),
        lost=np.zeros((arms, rows), np.int64),
        sums=np.zeros((arms, rows)),
        fresh=np.full(1, arms),
        heard=np.zeros(1, np.int64),
        first=np.ones(1, np.bool_),
        lead=np.zeros(1, np.int64),
        current=np.full(1, -1),
        rest=np.zeros(1, np.int64),
        steady=np.zeros(1, np.bool_),
        held=np.zeros(1, np.bool_),
        chance=np.ones(1),
        blocks=begin_blocks(arms),
    )


@kernel(borrows=True)
def goes_on(state: Pools) -> bool:
    """Whether the arm in play is in the midst of its batch: the decision is `go_on`."""
    return bool(state.rest[0] > 0)


@kernel(borrows=True)
def go_on(state: Pools) -> tuple[int, int]:
    """One more decision of the arm in play."""
    state.rest[0] -= 1
    arm = state.current[0]
    return arm, state.number[arm]


@kernel(borrows=True)
def choose_anew(state: Pools) -> None:
    """The policy is to choose the arm in play."""
    if state.rest[0] > 0:
        state.placed[state.current[0]] -= state.rest[0]
        state.rest[0] = 0
    state.current[0] = -1


@kernel(borrows=True)
def must_choose(state: Pools) -> bool:
    """Whether the policy is to choose the arm in play, by what was released."""
    return bool(state.current[0] < 0 and not state.first[0])


@kernel(borrows=True)
def silent_arm(state: Pools) -> int:
    """An arm to ask again because no reward of it ever came, or -1.

    It gets a batch for each that the leader has settled, so that an arm whose rewards are all lost
    takes a share that falls with time.
    """
    if state.heard[0] < state.means.size:
        for arm in range(state.means.size):
            silent = state.weights[arm] == 0 and state.waiting[arm] == 0
            if silent and state.number[arm] <= state.settled[state.lead[0]]:
                return arm
    return -1


@kernel(borrows=True)
def next_arm(params: Any, state: Pools, rng: Any) -> int:
    """The arm of the decision: first pulls in blocks, then the arm in play; or one drawn evenly.

    With chance `holdout` the arm is drawn evenly and nothing is learned; otherwise, with chance
    `explore`, it is drawn evenly and learned from. The chance that the arm had is noted.
    """
    arms = state.means.size
    even = params.holdout + (1.0 - params.holdout) * params.explore
    state.steady[0] = even == 0.0 and not state.first[0]
    if state.steady[0]:
        state.chance[0] = 1.0
        return state.current[0]
    if state.first[0] and all_had_their_turn(state.blocks):
        fill_block(state)
    draw = rng.random() if even > 0.0 else 1.0
    state.held[0] = draw < params.holdout
    own = 1.0
    if draw < even:
        arm = int(rng.random() * arms)
        own = chance_of(state, arm)
    elif not state.first[0]:
        arm = state.current[0]
    elif all_had_their_turn(state.blocks):  # all are waiting
        arm = int(rng.random() * arms)
        own = 1.0 / arms
    else:
        own = 1.0 / turns_left(state.blocks)
        arm = next_turn(state.blocks, rng)
    state.chance[0] = even / arms + (1.0 - even) * own
    return arm


@kernel(borrows=True)
def fill_block(state: Pools) -> None:
    """A block of the arms of which nothing was released and that are not waiting."""
    clear_members(state.blocks)
    for arm in range(state.means.size):
        if state.weights[arm] == 0 and state.waiting[arm] == 0:
            add_member(state.blocks, arm)
    start_block(state.blocks)


@kernel(borrows=True)
def chance_of(state: Pools, arm: int) -> float:
    """The chance that the arm would have had by the rule alone."""
    if not state.first[0]:
        return 1.0 if arm == state.current[0] else 0.0
    if all_had_their_turn(state.blocks):
        return 1.0 / state.means.size
    return 1.0 / turns_left(state.blocks) if has_turn_to_come(state.blocks, arm) else 0.0


@kernel(borrows=True)
def row_of_number(state: Pools, number: int) -> int:
    """The row that the batch of an arm with this number has, or would have."""
    return ring_index(number, state.numbers.shape[1])


@kernel(borrows=True)
def needs_batch(state: Pools, arm: int) -> bool:
    """Whether the decision is the first of a batch, which must be opened for it."""
    return bool(state.placed[arm] == state.size[arm] and not state.held[0])


@kernel(borrows=True)
def grade(state: Pools, arm: int) -> int:
    """How manieth the arm's next batch is, from 1, batches that brought no reward not counted."""
    return int(state.number[arm] - state.empty[arm] + 1)


@kernel(borrows=True)
def open_batch(state: Pools, arm: int, size: int) -> int:
    """Open the arm's next batch, of `size` decisions: its row, or NOTHING if all rows are taken."""
    number = state.number[arm] + 1
    row = row_of_number(state, number)
    if state.numbers[arm, row] != 0:
        return NOTHING
    state.number[arm] = number
    state.size[arm] = size
    state.placed[arm] = 0
    state.planned[arm] += size
    state.numbers[arm, row] = number
    state.sizes[arm, row] = size
    state.left[arm, row] = size
    return row


@kernel(borrows=True)
def end_soon(state: Pools, arm: int) -> None:
    """Let the arm's batch under way end with its next decision, by what was released since."""
    spared = state.size[arm] - state.placed[arm] - 1
    row = row_of_number(state, state.number[arm])
    state.size[arm] -= spared
    state.planned[arm] -= spared
    state.sizes[arm, row] -= spared
    state.left[arm, row] -= spared


@kernel(borrows=True)
def hand_out(state: Pools, arm: int) -> tuple[int, int]:
    """A decision of the arm's newest batch; UNLEARNED where it is held out or rows ran out."""
    if state.held[0] or state.placed[arm] == state.size[arm]:
        return arm, UNLEARNED
    state.placed[arm] += 1
    if state.placed[arm] == state.size[arm]:
        state.waiting[arm] += 1
        state.ready[arm] = False
        if state.current[0] == arm:
            state.current[0] = -1
    return arm, state.number[arm]


@kernel(borrows=True)
def hand_out_batch(state: Pools, arm: int) -> tuple[int, int]:
    """The same of a policy that plays whole batches: the arm in play goes on, up to the last."""
    decision = hand_out(state, arm)
    left = state.size[arm] - state.placed[arm]
    if state.steady[0] and left > 1:
        state.rest[0] = left - 1
        state.placed[arm] += left - 1
    return decision


@kernel(borrows=True)
def row_of(state: Pools, arm: int, phase: int) -> int:
    """The row of a decision's batch; NOTHING where nothing is to be learned from it."""
    row = row_of_number(state, phase)
    if phase < 1 or state.numbers[arm, row] != phase:
        return NOTHING
    return row


@kernel(borrows=True)
def take(state: Pools, arm: int, row: int, reward: float) -> int:
    """Count a reward of the batch in the row; the row if the batch is now to be released."""
    if row == NOTHING:
        return NOTHING
    state.sums[arm, row] += reward
    return settle(state, arm, row)


@kernel(borrows=True)
def drop(state: Pools, arm: int, row: int) -> int:
    """A decision of the batch was given up; the row if the batch is now to be released."""
    if row == NOTHING:
        return NOTHING
    state.lost[arm, row] += 1
    return settle(state, arm, row)


@kernel(borrows=True)
def settle(state: Pools, arm: int, row: int) -> int:
    """One decision less to wait for. A batch that brought nothing is closed without a release."""
    state.left[arm, row] -= 1
    if state.left[arm, row] > 0:
        return NOTHING
    state.waiting[arm] -= 1
    state.ready[arm] = state.waiting[arm] == 0 and state.weights[arm] > 0
    choose_anew(state)
    if state.settled[arm] + state.empty[arm] == 0:
        state.fresh[0] -= 1
        state.first[0] = state.fresh[0] > 0 or state.heard[0] == 0
    if came(state, arm, row) > 0:
        return row
    state.empty[arm] += 1
    state.planned[arm] -= state.sizes[arm, row]
    empty_row(state, arm, row)
    return NOTHING


@kernel(borrows=True)
def came(state: Pools, arm: int, row: int) -> int:
    """The rewards of a settled batch."""
    return int(state.sizes[arm, row] - state.lost[arm, row])


@kernel(borrows=True)
def empty_row(state: Pools, arm: int, row: int) -> None:
    """Make room for another batch."""
    state.numbers[arm, row] = 0
    state.lost[arm, row] = 0
    state.sums[arm, row] = 0.0


@kernel(borrows=True)
def close_batch(state: Pools, arm: int, row: int, released: float) -> None:
    """Keep what was released of the batch's sum, and empty its row."""
    rewards = state.rewards[arm] + came(state, arm, row)
    state.pooled[arm] = (state.pooled[arm] * state.rewards[arm] + released) / rewards
    state.rewards[arm] = rewards
    state.draws[arm] += 1
    state.settled[arm] += 1
    empty_row(state, arm, row)


@kernel(borrows=True)
def go_by(state: Pools, arm: int, mean: float, weight: int) -> None:
    """From now on the policy goes by this mean of `weight` rewards."""
    if state.weights[arm] == 0:
        state.heard[0] += 1
        state.first[0] = state.fresh[0] > 0
    state.means[arm] = mean
    state.weights[arm] = weight
    state.spreads[arm] = 1.0 / math.sqrt(weight)
    state.ready[arm] = state.waiting[arm] == 0
    highest = -math.inf
    for other in range(state.means.size):
        if state.weights[other] > 0 and state.means[other] > highest:
            state.lead[0], highest = other, state.means[other]


@kernel(borrows=True)
def clipped_mean(state: Pools, arm: int) -> float:
    """The released mean, moved into [0, 1]."""
    return min(max(state.means[arm], 0.0), 1.0)
