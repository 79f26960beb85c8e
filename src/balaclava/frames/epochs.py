"""Epochs in which every active arm is pulled equally often: the frame of elimination policies.

The active arms take turns in permuted blocks, `length` blocks an epoch. An epoch that is fully
asked is settled when each of its decisions has its reward or was given up. Meanwhile the active
arms go on: those decisions belong to the next epoch. As many epochs are under way as there are
rows, two as a rule; the last of them is at least as long as what was asked while its predecessors
waited. So nothing waits. Where first epochs are very short, more rows let short ones settle early.

A block's decisions are counted as awaited when the block begins, so that a decision in the midst of
one is a turn and nothing else.

Who is in which epoch follows from the order of decisions, never from that of arrivals: a decision
carries the number of its epoch as its phase. Arms are compared by means, each with a radius by the
number of its own rewards that came.
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
    end_block,
    has_turn_to_come,
    keep_in_block,
    next_turn,
    start_block,
    turns_left,
)
from balaclava.frames.pools import UNLEARNED


class Epochs(NamedTuple):
    """The epochs under way: number e is in row e mod rows. And what the settled ones released."""

    active: np.ndarray  # [arm]: whether it is still in play
    came: np.ndarray  # [arm, row]: rewards
    lost: np.ndarray  # [arm, row]: decisions that were given up
    extra: np.ndarray  # [arm, row]: decisions out of turn that something is learned from
    sums: np.ndarray  # [arm, row]: their sum: raw, and never read but to be released
    means: np.ndarray  # [arm]: released of the last settled epoch,
    radii: np.ndarray  # [arm]: and how far it may be off; inf where no reward came
    widths: np.ndarray  # [arm]: the same of its last release, however long ago
    pooled: np.ndarray  # [arm]: the mean of all that was released,
    rewards: np.ndarray  # [arm]: the number of rewards behind that,
    draws: np.ndarray  # [arm]: the draws of noise in it
    settled: np.ndarray  # [arm]: settled epochs that brought rewards
    left: np.ndarray  # [row]: decisions of active arms that are awaited: no reward, not given up
    turns: np.ndarray  # [row]: blocks of which something is learned
    only: np.ndarray  # [row]: the one arm that the epoch is for, or -1
    # One element each
    number: np.ndarray  # of the newest epoch; 0 before the first
    oldest: np.ndarray  # of the oldest that is not settled
    length: np.ndarray  # blocks that the newest has at least
    done: np.ndarray  # and those that were asked
    full: np.ndarray  # whether the newest is fully asked
    phase: np.ndarray  # of the decisions of the block under way: the newest epoch, or UNLEARNED
    alone: np.ndarray  # the last arm, which is played for ever, or -1
    chance: np.ndarray  # the chance that the last decision's arm had, times the next
    alike: np.ndarray  # how many arms were as likely as that, in their block
    blocks: Blocks

    @property
    def last_chance(self) -> float:
        """The chance that the last decision's arm had."""
        return float(self.chance[0] / self.alike[0])

    def faults(self, decisions: int) -> Iterator[str]:
        """What cannot be after so many decisions."""
        arms = self.active.size
        yield from range_faults(
            0, decisions, came=self.came, draws=self.draws, done=self.done, number=self.number,
            lost=self.lost, extra=self.extra,
        )  # fmt: skip
        yield from range_faults(0, decisions + 1, oldest=self.oldest)
        yield from range_faults(0, decisions + arms, left=self.left)
        yield from range_faults(0, MOST_PLANNED, turns=self.turns, length=self.length)
        yield from range_faults(UNLEARNED, self.number[0], phase=self.phase)
        yield from range_faults(-1, arms - 1, only=self.only, alone=self.alone)
        yield from range_faults(1, arms, alike=self.alike)
        yield from range_faults(0.0, 1.0, chance=self.chance)
        yield from range_faults(0.0, math.inf, radii=self.radii, widths=self.widths)


@kernel
def begin_epochs(arms: int, rows: int = 2) -> Epochs:
    """All arms active, no epoch open; one arm stands alone from the start.

    `rows`, a power of two, is how many epochs may be under way.
    """
    alone = 0 if arms == 1 else -1
    return Epochs(
        active=np.ones(arms, np.bool_),
        came=np.zeros((arms, rows), np.int64),
        lost=np.zeros((arms, rows), np.int64),
        extra=np.zeros((arms, rows), np.int64),
        sums=np.zeros((arms, rows)),
        means=np.zeros(arms),
        radii=np.full(arms, np.inf),
        widths=np.full(arms, np.inf),
        pooled=np.zeros(arms),
        rewards=np.zeros(arms, np.int64),
        draws=np.zeros(arms, np.int64),
        settled=np.zeros(arms, np.int64),
        left=np.zeros(rows, np.int64),
        turns=np.zeros(rows, np.int64),
        only=np.full(rows, -1),
        number=np.zeros(1, np.int64),
        oldest=np.ones(1, np.int64),
        length=np.zeros(1, np.int64),
        done=np.zeros(1, np.int64),
        full=np.ones(1, np.bool_),
        phase=np.full(1, UNLEARNED),
        alone=np.full(1, alone),
        chance=np.ones(1),
        alike=np.ones(1, np.int64),
        blocks=begin_blocks(arms),
    )


@kernel(borrows=True)
def row_of(state: Epochs, number: int) -> int:
    """The row of an epoch."""
    return ring_index(number, state.left.size)


@kernel(borrows=True)
def active_arms(state: Epochs) -> int:
    """How many arms are still in play."""
    count = 0
    for arm in range(state.active.size):
        if state.active[arm]:
            count += 1
    return count


@kernel(borrows=True)
def capacity(length: int) -> float:
    """The most rewards of an arm in an epoch that was planned with this length.

    Half of them in turn, and half out of turn.
    """
    return 4.0 * length + 2.0**20


@kernel(borrows=True)
def needs_epoch(state: Epochs) -> bool:
    """Whether the next decision is the first of an epoch, which must be opened for it."""
    return bool(all_had_their_turn(state.blocks) and state.full[0] and state.alone[0] < 0)


@kernel(borrows=True)
def open_epoch(state: Epochs, length: int, only: int) -> int:
    """Open the next epoch, of all active arms or of `only` one (-1: of all); its row."""
    state.number[0] += 1
    state.length[0] = length
    state.done[0] = 0
    state.full[0] = False
    end_block(state.blocks)
    row = row_of(state, state.number[0])
    state.only[row] = only
    choose_members(state, only)
    return row


@kernel(borrows=True)
def choose_members(state: Epochs, only: int) -> None:
    """From now on blocks are of the active arms, or of `only` one."""
    clear_members(state.blocks)
    for arm in range(state.active.size):
        if arm == only or (only < 0 and state.active[arm]):
            add_member(state.blocks, arm)


@kernel(borrows=True)
def next_pull(params: Any, state: Epochs, rng: Any) -> tuple[int, int]:
    """The next decision of the newest epoch; or an arm drawn evenly, as in `pools.next_arm`."""
    even = params.holdout + (1.0 - params.holdout) * params.explore
    if all_had_their_turn(state.blocks):
        if state.alone[0] < 0:
            begin_block(state)
        elif even == 0.0:
            return state.alone[0], UNLEARNED
    draw = rng.random() if even > 0.0 else 1.0
    if draw < even:
        return pull_out_of_turn(state, draw < params.holdout, even, rng)
    if all_had_their_turn(state.blocks):
        state.alike[0] = 1
        state.chance[0] = even / state.active.size + (1.0 - even)
        return state.alone[0], UNLEARNED
    state.alike[0] = turns_left(state.blocks)
    if even > 0.0:
        state.chance[0] = even * state.alike[0] / state.active.size + (1.0 - even)
    arm = next_turn(state.blocks, rng)
    if all_had_their_turn(state.blocks):
        count_block(state)
    return arm, state.phase[0]


@kernel(borrows=True)
def pull_out_of_turn(state: Epochs, held: bool, even: float, rng: Any) -> tuple[int, int]:
    """An arm drawn evenly; nothing is learned if it is held out, or not in play."""
    arms, row = state.active.size, row_of(state, state.number[0])
    arm = int(rng.random() * arms)
    state.alike[0] = 1
    state.chance[0] = even / arms + (1.0 - even) * chance_of(state, arm)
    if held or state.alone[0] >= 0 or not state.active[arm]:
        return arm, UNLEARNED
    if 2.0 * state.extra[arm, row] >= capacity(state.length[0]):
        return arm, UNLEARNED
    state.extra[arm, row] += 1
    state.left[row] += 1
    return arm, state.number[0]


@kernel(borrows=True)
def begin_block(state: Epochs) -> None:
    """A block of the arms that the newest epoch is for; its decisions are awaited from now on."""
    row = row_of(state, state.number[0])
    start_block(state.blocks)
    if 2.0 * state.turns[row] < capacity(state.length[0]):
        state.turns[row] += 1
        state.left[row] += turns_left(state.blocks)
        state.phase[0] = state.number[0]
    else:
        state.phase[0] = UNLEARNED


@kernel(borrows=True)
def chance_of(state: Epochs, arm: int) -> float:
    """The chance that the arm would have had by the rule alone."""
    if state.alone[0] >= 0:
        return 1.0 if arm == state.alone[0] else 0.0
    return 1.0 / turns_left(state.blocks) if has_turn_to_come(state.blocks, arm) else 0.0


@kernel(borrows=True)
def count_block(state: Epochs) -> None:
    """One block more; the epoch is full if it is long enough and there is a row for the next."""
    state.done[0] += 1
    room = state.number[0] - state.oldest[0] < state.left.size - 1
    state.full[0] = room and state.done[0] >= state.length[0]


@kernel(borrows=True)
def is_under_way(state: Epochs, arm: int, phase: int) -> bool:
    """Whether anything is to be learned from a decision: its arm is in play, its epoch not over."""
    return bool(phase >= state.oldest[0] and state.active[arm])


@kernel(borrows=True)
def take(state: Epochs, arm: int, reward: float, phase: int) -> None:
    """Count a reward of an epoch that is under way."""
    row = row_of(state, phase)
    state.sums[arm, row] += reward
    state.came[arm, row] += 1
    state.left[row] -= 1


@kernel(borrows=True)
def drop(state: Epochs, arm: int, phase: int) -> None:
    """A decision was given up: one less to wait for."""
    row = row_of(state, phase)
    state.lost[arm, row] += 1
    state.left[row] -= 1


@kernel(borrows=True)
def awaited(state: Epochs, arm: int, row: int) -> int:
    """Decisions of an arm in play that have no reward and were not given up, in a row."""
    in_turn = state.only[row] < 0 or state.only[row] == arm
    turns = state.turns[row] if in_turn else 0
    return int(turns + state.extra[arm, row] - state.came[arm, row] - state.lost[arm, row])


@kernel(borrows=True)
def is_settled(state: Epochs) -> bool:
    """Whether the oldest epoch is to be released now."""
    if state.left[row_of(state, state.oldest[0])] > 0:
        return False
    newest = state.oldest[0] == state.number[0]
    return bool(state.oldest[0] < state.number[0] or (newest and state.full[0]))


@kernel(borrows=True)
def keep_release(state: Epochs, arm: int, row: int, released: float, radius: float) -> None:
    """What was released of an arm's sum, and how far its mean may be off."""
    came = state.came[arm, row]
    rewards = state.rewards[arm] + came
    state.means[arm] = released / came
    state.radii[arm] = radius
    state.widths[arm] = radius
    state.pooled[arm] = (state.pooled[arm] * state.rewards[arm] + released) / rewards
    state.rewards[arm] = rewards
    state.draws[arm] += 1
    state.settled[arm] += 1


@kernel(borrows=True)
def drop_behind(state: Epochs) -> None:
    """Remove the arms that are behind by more than both radii; the last arm stands alone."""
    floor, best = -math.inf, 0
    for arm in range(state.active.size):
        if state.active[arm] and state.means[arm] - state.radii[arm] > floor:
            floor, best = state.means[arm] - state.radii[arm], arm
    for arm in range(state.active.size):
        if state.active[arm] and state.means[arm] + state.radii[arm] < floor:
            state.active[arm] = False
            for row in range(state.left.size):
                state.left[row] -= awaited(state, arm, row)
    if active_arms(state) == 1:
        play_for_ever(state, best)


@kernel(borrows=True)
def play_for_ever(state: Epochs, arm: int) -> None:
    """From now on this arm alone, without turns; it has all the chance there is."""
    state.alone[0] = arm
    state.chance[0] = 1.0
    state.alike[0] = 1
    end_block(state.blocks)


@kernel(borrows=True)
def end_epoch(state: Epochs, length: int) -> None:
    """The oldest epoch is over; the newest, if it is another, has at least `length` blocks.

    Where one arm is played for ever from now on, all epochs are over.
    """
    row = row_of(state, state.oldest[0])
    for arm in range(state.active.size):
        state.came[arm, row] = 0
        state.lost[arm, row] = 0
        state.extra[arm, row] = 0
        state.sums[arm, row] = 0.0
        state.radii[arm] = math.inf
    state.left[row] = 0
    state.turns[row] = 0
    state.oldest[0] += 1
    if state.alone[0] >= 0:
        state.oldest[0] = state.number[0] + 1
    if state.oldest[0] > state.number[0]:
        return
    state.length[0] = length
    choose_members(state, state.only[row_of(state, state.number[0])])
    complete = all_had_their_turn(state.blocks)
    keep_in_block(state.blocks, state.active)
    if not complete and all_had_their_turn(state.blocks):  # those whose turn was to come are gone
        state.done[0] += 1
    state.full[0] = all_had_their_turn(state.blocks) and state.done[0] >= length
