"""Epochs in which every active arm is pulled equally often: the frame of elimination policies.

The active arms take turns in permuted blocks; each has `length` turns an epoch, one in a block or
several (`most_turns`). A fully asked epoch settles when each of its decisions has its reward or was
given up. Meanwhile decisions continue in the next epoch, so nothing waits. While all rows (two by
default) hold open epochs, the newest one continues. If first epochs are very short, more rows let
them settle early.

The decisions of a block count as awaited from its start, so a decision within a block only takes a
turn.

The order of decisions determines the epoch of a decision; the order of arrivals does not. A
decision carries the number of its epoch as its phase. Arms are compared by means, each with a
radius for the number of its own rewards.
"""

import math
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np

from balaclava._core.kernels import kernel
from balaclava._core.states import MOST_PLANNED, range_faults, ring_index, stored_as
from balaclava.frames import blocks
from balaclava.frames.pools import UNLEARNED


@stored_as(
    rewards_in_epoch="came",
    out_of_turn="extra",
    blocks_learned="turns",
    blocks_done="done",
    fully_asked="full",
    last_arm="alone",
    equally_likely="alike",
)
class Epochs(NamedTuple):
    """The open epochs, number e in row e mod rows, and the releases of the settled ones."""

    active: np.ndarray  # [arm]: whether it is still in play
    rewards_in_epoch: np.ndarray  # [arm, row]
    lost: np.ndarray  # [arm, row]: decisions that were given up
    out_of_turn: np.ndarray  # [arm, row]: decisions drawn evenly and learned from
    sums: np.ndarray  # [arm, row]: of the rewards: raw, read only to be released
    means: np.ndarray  # [arm]: released for the last settled epoch
    radii: np.ndarray  # [arm]: of that mean; inf without rewards
    widths: np.ndarray  # [arm]: the radius of the arm's last release, in any epoch
    pooled: np.ndarray  # [arm]: the mean of all releases
    rewards: np.ndarray  # [arm]: rewards in it
    draws: np.ndarray  # [arm]: draws of noise in it
    settled: np.ndarray  # [arm]: settled epochs with rewards
    left: np.ndarray  # [row]: decisions of active arms that have no reward and were not given up
    blocks_learned: np.ndarray  # [row]: turns of each arm that the policy learns from
    only: np.ndarray  # [row]: the one arm of the epoch; -1 for all
    # One element each
    number: np.ndarray  # of the newest epoch; 0 before the first
    oldest: np.ndarray  # number of the oldest epoch that is not settled
    length: np.ndarray  # turns that each arm has at least in the newest
    blocks_done: np.ndarray  # turns that each arm had in the newest so far, in full blocks
    fully_asked: np.ndarray  # whether the newest is
    phase: np.ndarray  # of the decisions of the current block: the newest epoch, or UNLEARNED
    last_arm: np.ndarray  # the only arm left, played without end; -1 before
    chance: np.ndarray  # the propensity of the last decision, times `equally_likely`
    equally_likely: np.ndarray  # turns of its block with the same chance
    blocks: blocks.Blocks

    @property
    def last_chance(self) -> float:
        return float(self.chance[0] / self.equally_likely[0])

    def faults(self, decisions: int) -> Iterator[str]:
        arms = self.active.size
        yield from range_faults(
            0, decisions, rewards_in_epoch=self.rewards_in_epoch, blocks_done=self.blocks_done,
            draws=self.draws, number=self.number, lost=self.lost, out_of_turn=self.out_of_turn,
            rewards=self.rewards, settled=self.settled,
        )  # fmt: skip
        yield from range_faults(0, decisions + 1, oldest=self.oldest)
        yield from range_faults(0, decisions + self.blocks.order.size, left=self.left)
        yield from range_faults(
            0, MOST_PLANNED, blocks_learned=self.blocks_learned, length=self.length
        )
        yield from range_faults(UNLEARNED, self.number[0], phase=self.phase)
        yield from range_faults(-1, arms - 1, only=self.only, last_arm=self.last_arm)
        yield from range_faults(1, arms, equally_likely=self.equally_likely)
        yield from range_faults(0.0, 1.0, chance=self.chance)
        yield from range_faults(0.0, math.inf, radii=self.radii, widths=self.widths)


@kernel
def begin_epochs(arms: int, rows: int = 2, most_turns: int = 1) -> Epochs:
    """All arms active, no epoch; a single arm is the last arm from the start.

    `rows`, a power of two, is the number of open epochs. With `most_turns` above 1 no arm may be
    dropped.
    """
    alone = 0 if arms == 1 else -1
    return Epochs(
        active=np.ones(arms, np.bool_),
        rewards_in_epoch=np.zeros((arms, rows), np.int64),
        lost=np.zeros((arms, rows), np.int64),
        out_of_turn=np.zeros((arms, rows), np.int64),
        sums=np.zeros((arms, rows)),
        means=np.zeros(arms),
        radii=np.full(arms, np.inf),
        widths=np.full(arms, np.inf),
        pooled=np.zeros(arms),
        rewards=np.zeros(arms, np.int64),
        draws=np.zeros(arms, np.int64),
        settled=np.zeros(arms, np.int64),
        left=np.zeros(rows, np.int64),
        blocks_learned=np.zeros(rows, np.int64),
        only=np.full(rows, -1),
        number=np.zeros(1, np.int64),
        oldest=np.ones(1, np.int64),
        length=np.zeros(1, np.int64),
        blocks_done=np.zeros(1, np.int64),
        fully_asked=np.ones(1, np.bool_),
        phase=np.full(1, UNLEARNED),
        last_arm=np.full(1, alone),
        chance=np.ones(1),
        equally_likely=np.ones(1, np.int64),
        blocks=blocks.begin_blocks(arms, most_turns),
    )


@kernel(borrows=True)
def epoch_row(state: Epochs, number: int) -> int:
    return ring_index(number, state.left.size)


@kernel(borrows=True)
def active_arms(state: Epochs) -> int:
    count = 0
    for arm in range(state.active.size):
        if state.active[arm]:
            count += 1
    return count


@kernel(borrows=True)
def capacity(length: int) -> float:
    """The most rewards of an arm in an epoch of this length: half in turn, half out of turn."""
    return 4.0 * length + 2.0**20


@kernel(borrows=True)
def needs_epoch(state: Epochs) -> bool:
    """Whether an epoch must be opened for the next decision."""
    return bool(
        blocks.block_is_over(state.blocks) and state.fully_asked[0] and state.last_arm[0] < 0
    )


@kernel(borrows=True)
def open_epoch(state: Epochs, length: int, only: int) -> int:
    """Open the next epoch, of all active arms or of `only` one (-1: of all); its row."""
    state.number[0] += 1
    state.length[0] = length
    state.blocks_done[0] = 0
    state.fully_asked[0] = False
    blocks.end_block(state.blocks)
    row = epoch_row(state, state.number[0])
    state.only[row] = only
    choose_members(state, only)
    return row


@kernel(borrows=True)
def choose_members(state: Epochs, only: int) -> None:
    """Make future blocks of the active arms, or of `only` one arm."""
    blocks.clear_members(state.blocks)
    for arm in range(state.active.size):
        if arm == only or (only < 0 and state.active[arm]):
            blocks.add_member(state.blocks, arm)


@kernel(borrows=True)
def next_decision(params: Any, state: Epochs, rng: Any) -> tuple[int, int]:
    """The next decision of the newest epoch; or an arm drawn evenly, as in `pools.next_arm`."""
    even = params.holdout + (1.0 - params.holdout) * params.explore
    if blocks.block_is_over(state.blocks):
        if state.last_arm[0] < 0:
            begin_block(state, rng)
        elif even == 0.0:
            return state.last_arm[0], UNLEARNED
    draw = rng.random() if even > 0.0 else 1.0
    if draw < even:
        return draw_evenly(state, draw < params.holdout, even, rng)
    if blocks.block_is_over(state.blocks):
        state.equally_likely[0] = 1
        state.chance[0] = even / state.active.size + (1.0 - even)
        return state.last_arm[0], UNLEARNED
    turns = blocks.turns_due(state.blocks)
    state.equally_likely[0] = turns
    if even > 0.0:
        state.chance[0] = even * turns / state.active.size + (1.0 - even)
    arm = blocks.next_turn(state.blocks, rng)
    if blocks.most_turns(state.blocks) > 1:
        own = (1.0 + blocks.turns_left(state.blocks, arm)) / turns
        state.chance[0] = even / state.active.size + (1.0 - even) * own
        state.equally_likely[0] = 1
    if blocks.block_is_over(state.blocks):
        end_of_block(state)
    return arm, state.phase[0]


@kernel(borrows=True)
def draw_evenly(state: Epochs, held: bool, even: float, rng: Any) -> tuple[int, int]:
    """Draw an arm evenly; the decision is UNLEARNED if held out or if the arm is not in play."""
    arms, row = state.active.size, epoch_row(state, state.number[0])
    arm = int(rng.random() * arms)
    state.equally_likely[0] = 1
    state.chance[0] = even / arms + (1.0 - even) * rule_chance(state, arm)
    if held or state.last_arm[0] >= 0 or not state.active[arm]:
        return arm, UNLEARNED
    if 2.0 * state.out_of_turn[arm, row] >= capacity(state.length[0]):
        return arm, UNLEARNED
    state.out_of_turn[arm, row] += 1
    state.left[row] += 1
    return arm, state.number[0]


@kernel(borrows=True)
def begin_block(state: Epochs, rng: Any) -> None:
    """Start a block of the newest epoch, and await its decisions."""
    row = epoch_row(state, state.number[0])
    turns = blocks.draw_turns(state.blocks, state.length[0] - state.blocks_done[0], rng)
    blocks.start_block(state.blocks, turns)
    if 2.0 * (state.blocks_learned[row] + turns) <= capacity(state.length[0]):
        state.blocks_learned[row] += turns
        state.left[row] += blocks.turns_due(state.blocks)
        state.phase[0] = state.number[0]
    else:
        state.phase[0] = UNLEARNED


@kernel(borrows=True)
def rule_chance(state: Epochs, arm: int) -> float:
    """The chance of the arm by the rule alone, without even draws."""
    if state.last_arm[0] >= 0:
        return 1.0 if arm == state.last_arm[0] else 0.0
    return blocks.turns_left(state.blocks, arm) / max(blocks.turns_due(state.blocks), 1)


@kernel(borrows=True)
def end_of_block(state: Epochs) -> None:
    """Count a block; the epoch is fully asked if it is long enough and the next has a row."""
    state.blocks_done[0] += blocks.turns_of_block(state.blocks)
    room = state.number[0] - state.oldest[0] < state.left.size - 1
    state.fully_asked[0] = room and state.blocks_done[0] >= state.length[0]


@kernel(borrows=True)
def is_learned(state: Epochs, arm: int, phase: int) -> bool:
    """Whether the policy learns from a decision: its arm is in play, its epoch not over."""
    return bool(phase >= state.oldest[0] and state.active[arm])


@kernel(borrows=True)
def add_reward(state: Epochs, arm: int, reward: float, phase: int) -> None:
    row = epoch_row(state, phase)
    state.sums[arm, row] += reward
    state.rewards_in_epoch[arm, row] += 1
    state.left[row] -= 1


@kernel(borrows=True)
def give_up(state: Epochs, arm: int, phase: int) -> None:
    """Give up a decision of an open epoch."""
    row = epoch_row(state, phase)
    state.lost[arm, row] += 1
    state.left[row] -= 1


@kernel(borrows=True)
def awaited(state: Epochs, arm: int, row: int) -> int:
    """Decisions of an active arm in the row that have no reward and were not given up."""
    in_turn = state.only[row] < 0 or state.only[row] == arm
    turns = state.blocks_learned[row] if in_turn else 0
    return int(
        turns
        + state.out_of_turn[arm, row]
        - state.rewards_in_epoch[arm, row]
        - state.lost[arm, row]
    )


@kernel(borrows=True)
def is_settled(state: Epochs) -> bool:
    """Whether the oldest epoch has settled and must be released."""
    if state.left[epoch_row(state, state.oldest[0])] > 0:
        return False
    oldest, newest = state.oldest[0], state.number[0]
    return bool(oldest < newest or (oldest == newest and state.fully_asked[0]))


@kernel(borrows=True)
def keep_release(state: Epochs, arm: int, row: int, released: float, radius: float) -> None:
    """Keep the released sum of an arm, and the radius of its mean."""
    n = state.rewards_in_epoch[arm, row]
    rewards = state.rewards[arm] + n
    state.means[arm] = released / n
    state.radii[arm] = radius
    state.widths[arm] = radius
    state.pooled[arm] = (state.pooled[arm] * state.rewards[arm] + released) / rewards
    state.rewards[arm] = rewards
    state.draws[arm] += 1
    state.settled[arm] += 1


@kernel(borrows=True)
def drop_arm(state: Epochs, arm: int) -> None:
    """Take an arm out of play; its open decisions are no longer awaited."""
    state.active[arm] = False
    for row in range(state.left.size):
        state.left[row] -= awaited(state, arm, row)


@kernel(borrows=True)
def eliminate_arms(state: Epochs) -> None:
    """Eliminate the arms that are behind by more than both radii."""
    floor, best = -math.inf, 0
    for arm in range(state.active.size):
        if state.active[arm] and state.means[arm] - state.radii[arm] > floor:
            floor, best = state.means[arm] - state.radii[arm], arm
    for arm in range(state.active.size):
        if state.active[arm] and state.means[arm] + state.radii[arm] < floor:
            drop_arm(state, arm)
    if active_arms(state) == 1:
        play_last_arm(state, best)


@kernel(borrows=True)
def play_last_arm(state: Epochs, arm: int) -> None:
    """Play this arm alone from now on, with chance 1."""
    state.last_arm[0] = arm
    state.chance[0] = 1.0
    state.equally_likely[0] = 1
    blocks.end_block(state.blocks)


@kernel(borrows=True)
def end_epoch(state: Epochs, length: int) -> None:
    """End the oldest epoch; the newest, if it is another, has at least `length` blocks.

    All epochs end if a single arm is left.
    """
    row = epoch_row(state, state.oldest[0])
    for arm in range(state.active.size):
        state.rewards_in_epoch[arm, row] = 0
        state.lost[arm, row] = 0
        state.out_of_turn[arm, row] = 0
        state.sums[arm, row] = 0.0
        state.radii[arm] = math.inf
    state.left[row] = 0
    state.blocks_learned[row] = 0
    state.oldest[0] += 1
    if state.last_arm[0] >= 0:
        state.oldest[0] = state.number[0] + 1
    if state.oldest[0] > state.number[0]:
        return
    state.length[0] = length
    choose_members(state, state.only[epoch_row(state, state.number[0])])
    complete = blocks.block_is_over(state.blocks)
    blocks.drop_inactive(state.blocks, state.active)
    if not complete and blocks.block_is_over(state.blocks):  # the arms still due were eliminated
        state.blocks_done[0] += 1
    state.fully_asked[0] = blocks.block_is_over(state.blocks) and state.blocks_done[0] >= length


def closing_turns(state: Epochs, rng: Any) -> Iterator[tuple[int, int]]:
    """End the newest epoch: arms and phases of the turns that its block lacks, to be given up.

    The caller has given up all open decisions, so the epoch then settles. The turns are not played.
    """
    if state.fully_asked[0] or state.last_arm[0] >= 0:
        return
    if blocks.block_is_over(state.blocks):
        begin_block(state, rng)
    state.length[0] = 0
    while not blocks.block_is_over(state.blocks):
        arm = blocks.next_turn(state.blocks, rng)
        if blocks.block_is_over(state.blocks):
            end_of_block(state)
        yield arm, state.phase[0]


def epoch_driver(
    release: Callable[..., None], finish: Callable[..., None]
) -> tuple[Callable[..., None], Callable[..., None]]:
    """Make `learn_value` and `forget_decision`, which count a decision and settle epochs.

    Args:
        release: a kernel of (params, state, arm, row, rng) that releases an arm's sum, once.
        finish: a kernel of (params, state, row) that compares the arms and ends the epoch.

    Returns:
        A kernel of (params, state, epochs, arm, value, phase, rng) for decisions that are
        `is_learned`, and one of the same without a value for any; `epochs` are those of `state`.
    """

    @kernel(borrows=True)
    def settle(params: Any, state: Any, epochs: Epochs, rng: Any) -> None:
        while is_settled(epochs):
            row = epoch_row(epochs, epochs.oldest[0])
            for arm in range(epochs.active.size):
                if epochs.active[arm] and epochs.rewards_in_epoch[arm, row] > 0:
                    release(params, state, arm, row, rng)
            finish(params, state, row)

    @kernel(borrows=True)
    def learn_value(
        params: Any, state: Any, epochs: Epochs, arm: int, value: float, phase: int, rng: Any
    ) -> None:
        add_reward(epochs, arm, value, phase)
        settle(params, state, epochs, rng)

    @kernel(borrows=True)
    def forget_decision(
        params: Any, state: Any, epochs: Epochs, arm: int, phase: int, rng: Any
    ) -> None:
        if is_learned(epochs, arm, phase):
            give_up(epochs, arm, phase)
            settle(params, state, epochs, rng)

    return learn_value, forget_decision


def learn_in_epochs(
    release: Callable[..., None], finish: Callable[..., None]
) -> tuple[Callable[..., None], Callable[..., None]]:
    """Make `learn` and `forget` from `epoch_driver`, for a state that is the epochs alone."""
    learn_value, forget_decision = epoch_driver(release, finish)

    @kernel(borrows=True)
    def learn(
        params: Any, state: Epochs, t: int, arm: int, reward: float, phase: int, rng: Any
    ) -> None:
        if is_learned(state, arm, phase):
            learn_value(params, state, state, arm, reward, phase, rng)

    @kernel(borrows=True)
    def forget(params: Any, state: Epochs, t: int, arm: int, phase: int, rng: Any) -> None:
        forget_decision(params, state, state, arm, phase, rng)

    return learn, forget


@kernel(borrows=True)
def value_as_told(params: Any, state: Any, t: int, row: int, reward: float) -> float:
    return reward


def learn_in_state(
    release: Callable[..., None],
    finish: Callable[..., None],
    value: Callable[..., float] = value_as_told,
) -> tuple[Callable[..., None], Callable[..., None]]:
    """Make `learn` and `forget` from `epoch_driver`, for a state with `epochs`.

    The kernel `value` of (params, state, t, row, reward) is what counts in row `row`.
    """
    learn_value, forget_decision = epoch_driver(release, finish)

    @kernel(borrows=True)
    def learn(
        params: Any, state: Any, t: int, arm: int, reward: float, phase: int, rng: Any
    ) -> None:
        if is_learned(state.epochs, arm, phase):
            counted = value(params, state, t, epoch_row(state.epochs, phase), reward)
            learn_value(params, state, state.epochs, arm, counted, phase, rng)

    @kernel(borrows=True)
    def forget(params: Any, state: Any, t: int, arm: int, phase: int, rng: Any) -> None:
        forget_decision(params, state, state.epochs, arm, phase, rng)

    return learn, forget
