"""Pools: an arm's rewards in batches. Several batches may be open; decisions never wait.

The order of decisions determines which batch a decision belongs to; the order of arrivals does
not. A decision carries the number of its arm's batch as its phase. The size of a batch is fixed
when it opens; later releases may cut it short. A batch settles when each of its decisions has its
reward or was given up. Its sum is then released, once, weighted by the number of its rewards.

An arm waits while one of its batches is fully asked and not settled; it is not explored meanwhile,
except an added arm before its first release.
The arm with the best released mean is then played, in its next batch. The policy chooses again
when a batch settles and when the batch in play is fully asked. Between them the batch in play
continues: its decisions count as asked all at once.

Privacy rests on this alone: a reward enters one sum, and decisions and arrivals determine which and
when (`pools.proof.md` beside this file).

Decisions use every release. Intervals use the releases in order: a batch counts there once every
batch that was fully asked before it, of any arm, has settled (`theory.confidence_sequences` says
why).
"""

import functools
import math
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np

from balaclava._core.kernels import kernel
from balaclava._core.states import MOST_PLANNED, added_later, range_faults, ring_index, stored_as
from balaclava.frames import blocks

UNLEARNED = -1  # phase of a decision that the policy does not learn from
NO_ROW = -1  # in place of a row: no batch has settled
NO_PLACE = -1  # of a batch that found no room in the queue
NOT_SETTLED = -1  # in place of a number of rewards
# Open batches of an arm: a power of two. Batches grow, so few are open; 32 is far beyond that.
OPEN_BATCHES_PER_ARM = 32


@added_later(
    *("in_order", "rewards_in_order", "draws_in_order", "place", "placed_batches", "counted"),
    *("queued_arms", "queued_rewards", "queued_sums"),
)
@stored_as(
    arms_untried="fresh",
    arms_with_release="heard",
    first_pulls="first",
    rest_of_batch="rest",
    no_draw="steady",
    held_out="held",
)
class Pools(NamedTuple):
    """The open batches of each arm, and the releases of the settled ones."""

    # [arm]
    number: np.ndarray  # of its newest batch; 0 before the first
    size: np.ndarray  # decisions of that batch
    placed: np.ndarray  # decisions of it so far, with `rest_of_batch` for the arm in play
    planned: np.ndarray  # decisions of all its batches, less those without any reward
    empty: np.ndarray  # settled batches without any reward
    waiting: np.ndarray  # batches fully asked and not settled
    ready: np.ndarray  # whether it may be explored: it has a release and does not wait
    means: np.ndarray  # the released mean that the policy uses
    weights: np.ndarray  # rewards in it; 0 before the first release
    spreads: np.ndarray  # 1/sqrt(weight)
    pooled: np.ndarray  # the mean of all releases
    rewards: np.ndarray  # rewards in it
    draws: np.ndarray  # draws of noise in it
    settled: np.ndarray  # settled batches with rewards
    in_order: np.ndarray  # the mean of the releases in order
    rewards_in_order: np.ndarray
    draws_in_order: np.ndarray
    # [arm, row]: an open batch
    numbers: np.ndarray  # its number; 0: the row is free
    sizes: np.ndarray  # its decisions
    left: np.ndarray  # its decisions that have no reward and were not given up
    lost: np.ndarray  # its decisions that were given up
    sums: np.ndarray  # of its rewards: raw, read only to be released
    place: np.ndarray  # its place among all fully asked batches, from 1; 0: none, NO_PLACE
    # Fully asked batches that do not count yet, in a ring by place
    queued_arms: np.ndarray
    queued_rewards: np.ndarray  # NOT_SETTLED before it is
    queued_sums: np.ndarray  # released
    # One element each
    placed_batches: np.ndarray  # places so far
    counted: np.ndarray  # places that count
    arms_untried: np.ndarray  # arms without a settled batch
    arms_with_release: np.ndarray
    first_pulls: np.ndarray  # whether some arm is untried, or no arm has a release
    lead: np.ndarray  # the arm with the highest released mean
    current: np.ndarray  # the arm in play; -1 when the policy must choose one
    rest_of_batch: np.ndarray  # further decisions of the arm in play
    no_draw: np.ndarray  # whether the decision is of the arm in play, without a random draw
    held_out: np.ndarray  # whether the policy must not learn from the decision
    chance: np.ndarray  # the propensity of the last decision
    blocks: blocks.Blocks

    @property
    def last_chance(self) -> float:
        return float(self.chance[0])

    def faults(self, decisions: int) -> Iterator[str]:
        arms = self.number.size
        yield from range_faults(
            0, decisions, number=self.number, numbers=self.numbers, empty=self.empty,
            waiting=self.waiting, weights=self.weights, draws=self.draws, lost=self.lost,
            rewards=self.rewards, settled=self.settled, counted=self.counted,
            placed_batches=self.placed_batches,
            rewards_in_order=self.rewards_in_order, draws_in_order=self.draws_in_order,
        )  # fmt: skip
        yield from range_faults(
            0, MOST_PLANNED, size=self.size, sizes=self.sizes, planned=self.planned
        )
        yield from range_faults(
            0, arms, arms_untried=self.arms_untried, arms_with_release=self.arms_with_release
        )
        yield from range_faults(-1, arms - 1, current=self.current)
        yield from range_faults(NO_PLACE, decisions, place=self.place)
        yield from range_faults(0, arms - 1, queued_arms=self.queued_arms)
        yield from range_faults(NOT_SETTLED, decisions, queued_rewards=self.queued_rewards)
        yield from range_faults(0, arms - 1, lead=self.lead)
        yield from range_faults(0.0, 1.0, spreads=self.spreads, chance=self.chance)
        if (self.placed > self.size).any() or (self.placed < 0).any():
            yield "a batch has more decisions than its size, or fewer than 0"
        if self.rewards.sum() > decisions or self.placed.sum() - self.rest_of_batch[0] > decisions:
            yield "more rewards or assigned decisions than decisions"
        if self.rest_of_batch[0] < 0 or (
            self.rest_of_batch[0] > 0 and self.placed[self.current[0]] < self.rest_of_batch[0]
        ):
            yield "the arm in play continues beyond its batch"
        if (self.left > self.sizes).any() or (self.left < 0).any():
            yield "a batch awaits more decisions than it has"
        if (self.lost + self.left > self.sizes).any():
            yield "a batch lost more decisions than it has"
        if (self.sums[self.numbers == 0] != 0).any() or (self.settled > self.number).any():
            yield "a sum or a release without a batch"


@kernel
def begin_pools(arms: int, rows: int) -> Pools:
    """No batch; `rows`, a power of two, is the number of open batches an arm may have."""
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
        in_order=np.zeros(arms),
        rewards_in_order=np.zeros(arms, np.int64),
        draws_in_order=np.zeros(arms, np.int64),
        numbers=np.zeros((arms, rows), np.int64),
        sizes=np.zeros((arms, rows), np.int64),
        left=np.zeros((arms, rows), np.int64),
        lost=np.zeros((arms, rows), np.int64),
        sums=np.zeros((arms, rows)),
        place=np.zeros((arms, rows), np.int64),
        queued_arms=np.zeros(8 * arms + rows, np.int64),
        queued_rewards=np.zeros(8 * arms + rows, np.int64),
        queued_sums=np.zeros(8 * arms + rows),
        placed_batches=np.zeros(1, np.int64),
        counted=np.zeros(1, np.int64),
        arms_untried=np.full(1, arms),
        arms_with_release=np.zeros(1, np.int64),
        first_pulls=np.ones(1, np.bool_),
        lead=np.zeros(1, np.int64),
        current=np.full(1, -1),
        rest_of_batch=np.zeros(1, np.int64),
        no_draw=np.zeros(1, np.bool_),
        held_out=np.zeros(1, np.bool_),
        chance=np.ones(1),
        blocks=blocks.begin_blocks(arms),
    )


def fill_order(state: Pools) -> None:
    """Fill the fields of the order, which an earlier version did not keep: count all releases."""
    state.in_order[:], state.rewards_in_order[:] = state.pooled, state.rewards
    state.draws_in_order[:] = state.draws


@kernel(borrows=True)
def in_batch(state: Pools) -> bool:
    """Whether the next decision continues the batch in play, by `continue_batch`."""
    return bool(state.rest_of_batch[0] > 0)


@kernel(borrows=True)
def continue_batch(state: Pools) -> tuple[int, int]:
    """The next decision of the batch in play."""
    state.rest_of_batch[0] -= 1
    arm = state.current[0]
    return arm, state.number[arm]


@kernel(borrows=True)
def leave_batch(state: Pools) -> None:
    """Let the policy choose the arm in play again."""
    if state.rest_of_batch[0] > 0:
        state.placed[state.current[0]] -= state.rest_of_batch[0]
        state.rest_of_batch[0] = 0
    state.current[0] = -1


@kernel(borrows=True)
def must_choose(state: Pools) -> bool:
    """Whether the policy must choose the arm in play, from releases."""
    return bool(state.current[0] < 0 and not state.first_pulls[0])


@kernel(borrows=True)
def arm_without_rewards(state: Pools) -> int:
    """An arm to ask again because none of its rewards ever came, or -1.

    It gets one batch for each settled batch of the leader. So an arm whose rewards are all lost
    takes a share that falls with time. An added arm gets more while it waits for its first release.
    """
    if state.arms_with_release[0] < state.means.size:
        for arm in range(state.means.size):
            silent = state.weights[arm] == 0 and state.waiting[arm] == 0
            if silent and state.number[arm] <= state.settled[state.lead[0]]:
                return arm
            if awaits_few(state, arm):
                return arm
    return -1


@kernel(borrows=True)
def awaits_few(state: Pools, arm: int) -> bool:
    """Whether an arm whose first batch has not settled gets another one.

    Batches double. So its decisions are at most the part 1/arms of those that await their rewards,
    as in a fresh run, where arms take turns until each has a release.
    """
    if state.waiting[arm] == 0 or state.settled[arm] + state.empty[arm] > 0:
        return False
    if state.numbers[arm, ring_row(state, state.number[arm] + 1)] != 0:
        return False
    awaited, arms = 0, state.means.size
    for each in range(arms):
        awaited += state.placed[each] - state.size[each]  # not asked yet
        for row in range(state.left.shape[1]):
            awaited += state.left[each, row]
    return bool(2 * state.planned[arm] * arms <= awaited)


@kernel(borrows=True)
def next_arm(params: Any, state: Pools, rng: Any) -> int:
    """The arm of the decision: first pulls in blocks, then the arm in play; or one drawn evenly.

    With chance `holdout` the arm is drawn evenly and not learned from; otherwise, with chance
    `explore`, it is drawn evenly and learned from. Records the propensity.
    """
    arms = state.means.size
    even = params.holdout + (1.0 - params.holdout) * params.explore
    state.no_draw[0] = even == 0.0 and not state.first_pulls[0]
    if state.no_draw[0]:
        state.chance[0] = 1.0
        return state.current[0]
    if state.first_pulls[0] and blocks.block_is_over(state.blocks):
        fill_block(state)
    draw = rng.random() if even > 0.0 else 1.0
    state.held_out[0] = draw < params.holdout
    own = 1.0
    if draw < even:
        arm = int(rng.random() * arms)
        own = rule_chance(state, arm)
    elif not state.first_pulls[0]:
        arm = state.current[0]
    elif blocks.block_is_over(state.blocks):  # all are waiting
        arm = int(rng.random() * arms)
        own = 1.0 / arms
    else:
        own = 1.0 / blocks.turns_due(state.blocks)
        arm = blocks.next_turn(state.blocks, rng)
    state.chance[0] = even / arms + (1.0 - even) * own
    return arm


@kernel(borrows=True)
def fill_block(state: Pools) -> None:
    """Start a block of the arms that have no release and do not wait."""
    blocks.clear_members(state.blocks)
    for arm in range(state.means.size):
        if state.weights[arm] == 0 and state.waiting[arm] == 0:
            blocks.add_member(state.blocks, arm)
    blocks.start_block(state.blocks)


@kernel(borrows=True)
def rule_chance(state: Pools, arm: int) -> float:
    """The chance of the arm by the rule alone, without even draws."""
    if not state.first_pulls[0]:
        return 1.0 if arm == state.current[0] else 0.0
    if blocks.block_is_over(state.blocks):
        return 1.0 / state.means.size
    return 1.0 / blocks.turns_due(state.blocks) if blocks.is_still_due(state.blocks, arm) else 0.0


@kernel(borrows=True)
def ring_row(state: Pools, number: int) -> int:
    """The row for the batch with this number."""
    return ring_index(number, state.numbers.shape[1])


@kernel(borrows=True)
def needs_batch(state: Pools, arm: int) -> bool:
    """Whether a batch must be opened for the decision."""
    return bool(state.placed[arm] == state.size[arm] and not state.held_out[0])


@kernel(borrows=True)
def batch_ordinal(state: Pools, arm: int) -> int:
    """Ordinal of the arm's next batch, from 1, not counting batches without rewards."""
    return int(state.number[arm] - state.empty[arm] + 1)


@kernel(borrows=True)
def open_batch(state: Pools, arm: int, size: int) -> int:
    """Open the arm's next batch of `size` decisions: its row, or NO_ROW if no row is free."""
    number = state.number[arm] + 1
    row = ring_row(state, number)
    if state.numbers[arm, row] != 0:
        return NO_ROW
    state.number[arm] = number
    state.size[arm] = size
    state.placed[arm] = 0
    state.planned[arm] += size
    state.numbers[arm, row] = number
    state.sizes[arm, row] = size
    state.left[arm, row] = size
    return row


@kernel(borrows=True)
def shorten_batch(state: Pools, arm: int, size: int) -> None:
    """Let the arm's newest batch have `size` decisions; only releases may decide this."""
    spared = state.size[arm] - size
    row = ring_row(state, state.number[arm])
    state.size[arm] = size
    state.planned[arm] -= spared
    state.sizes[arm, row] -= spared
    state.left[arm, row] -= spared


@kernel(borrows=True)
def cut_short(state: Pools, arm: int) -> None:
    """End the arm's newest batch with its next decision; only releases may decide this."""
    shorten_batch(state, arm, state.placed[arm] + 1)


@kernel(borrows=True)
def assign_decision(state: Pools, arm: int) -> tuple[int, int]:
    """Assign a decision to the arm's newest batch: arm and phase.

    The phase is UNLEARNED if the decision is held out or no row was free.
    """
    if state.held_out[0] or state.placed[arm] == state.size[arm]:
        return arm, UNLEARNED
    state.placed[arm] += 1
    if state.placed[arm] == state.size[arm]:
        state.waiting[arm] += 1
        state.ready[arm] = False
        queue_batch(state, arm)
        if state.current[0] == arm:
            state.current[0] = -1
    return arm, state.number[arm]


@kernel(borrows=True)
def assign_batch(state: Pools, arm: int) -> tuple[int, int]:
    """Assign a decision of a policy that plays whole batches: the arm in play continues."""
    decision = assign_decision(state, arm)
    left = state.size[arm] - state.placed[arm]
    if state.no_draw[0] and left > 1:
        state.rest_of_batch[0] = left - 1
        state.placed[arm] += left - 1
    return decision


def closing_decisions(state: Pools) -> Iterator[tuple[int, int]]:
    """End each arm's unfinished batch: arm and phase of one more decision, to be given up.

    The caller has given up all open decisions, so the batch then settles. The decision is not made,
    and does not count.
    """
    for arm in range(state.size.size):
        phase = closing_decision(state, arm)
        if phase is not None:
            yield arm, phase


def closing_decision(state: Pools, arm: int) -> int | None:
    """End an arm's unfinished batch: the phase of one more decision, to be given up, or None."""
    leave_batch(state)
    state.held_out[0] = False
    if state.placed[arm] == state.size[arm]:
        return None
    cut_short(state, arm)
    _, phase = assign_decision(state, arm)
    state.placed[arm] -= 1
    state.size[arm] -= 1
    return int(phase)


@kernel(borrows=True)
def find_row(state: Pools, arm: int, phase: int) -> int:
    """The row of a decision's batch; NO_ROW if the policy does not learn from it."""
    row = ring_row(state, phase)
    if phase < 1 or state.numbers[arm, row] != phase:
        return NO_ROW
    return row


@kernel(borrows=True)
def add_reward(state: Pools, arm: int, row: int, reward: float) -> int:
    """Add a reward to the batch in the row: the row if the batch is now to be released."""
    if row == NO_ROW:
        return NO_ROW
    state.sums[arm, row] += reward
    return settle(state, arm, row)


@kernel(borrows=True)
def give_up(state: Pools, arm: int, row: int) -> int:
    """Give up a decision of the batch: the row if the batch is now to be released."""
    if row == NO_ROW:
        return NO_ROW
    state.lost[arm, row] += 1
    return settle(state, arm, row)


@kernel(borrows=True)
def settle(state: Pools, arm: int, row: int) -> int:
    """Await one decision less: the row if the batch settles; one without rewards is closed."""
    state.left[arm, row] -= 1
    if state.left[arm, row] > 0:
        return NO_ROW
    state.waiting[arm] -= 1
    state.ready[arm] = state.waiting[arm] == 0 and state.weights[arm] > 0
    leave_batch(state)
    if state.settled[arm] + state.empty[arm] == 0:
        state.arms_untried[0] = max(state.arms_untried[0] - 1, 0)  # arms may come later
        state.first_pulls[0] = state.arms_untried[0] > 0 or state.arms_with_release[0] == 0
    if rewards_in_batch(state, arm, row) > 0:
        return row
    state.empty[arm] += 1
    state.planned[arm] -= state.sizes[arm, row]
    drop_batch(state, arm, row)
    return NO_ROW


@kernel(borrows=True)
def rewards_in_batch(state: Pools, arm: int, row: int) -> int:
    """The rewards of a settled batch."""
    return int(state.sizes[arm, row] - state.lost[arm, row])


@kernel(borrows=True)
def empty_row(state: Pools, arm: int, row: int) -> None:
    state.numbers[arm, row] = 0
    state.lost[arm, row] = 0
    state.sums[arm, row] = 0.0


@kernel(borrows=True)
def drop_batch(state: Pools, arm: int, row: int) -> None:
    """End a settled batch without a release of its sum."""
    leave_queue(state, arm, row, 0, 0.0)
    empty_row(state, arm, row)


@kernel(borrows=True)
def joined_mean(mean: float, rewards: int, released: float, more: int) -> float:
    """The mean of `rewards` rewards, joined by the released sum of `more`."""
    return (mean * rewards + released) / (rewards + more)


@kernel(borrows=True)
def close_batch(state: Pools, arm: int, row: int, released: float) -> None:
    """Add the released sum of the batch to the pooled mean, and free its row."""
    n = rewards_in_batch(state, arm, row)
    state.pooled[arm] = joined_mean(state.pooled[arm], state.rewards[arm], released, n)
    state.rewards[arm] += n
    state.draws[arm] += 1
    state.settled[arm] += 1
    leave_queue(state, arm, row, n, released)
    empty_row(state, arm, row)


@kernel(borrows=True)
def queue_batch(state: Pools, arm: int) -> None:
    """Give the arm's newest batch its place; without room it never counts in order."""
    row, room = ring_row(state, state.number[arm]), state.queued_arms.size
    if state.placed_batches[0] - state.counted[0] == room:
        state.place[arm, row] = NO_PLACE
        return
    state.placed_batches[0] += 1
    state.place[arm, row] = state.placed_batches[0]
    state.queued_arms[state.place[arm, row] % room] = arm
    state.queued_rewards[state.place[arm, row] % room] = NOT_SETTLED


@kernel(borrows=True)
def leave_queue(state: Pools, arm: int, row: int, rewards: int, released: float) -> None:
    """Settle a batch in the queue, and count the batches before the first that is not settled."""
    place, room = state.place[arm, row], state.queued_arms.size
    state.place[arm, row] = 0
    if place == 0:  # of a save of before
        count_release(state, arm, rewards, released)
    elif place > 0:
        state.queued_rewards[place % room] = rewards
        state.queued_sums[place % room] = released
    count_settled(state)


@kernel(borrows=True)
def count_settled(state: Pools) -> None:
    """Count the batches in the queue before the first that is not settled."""
    room = state.queued_arms.size
    while state.counted[0] < state.placed_batches[0]:
        first = (state.counted[0] + 1) % room
        if state.queued_rewards[first] == NOT_SETTLED:
            return
        count_release(
            state, state.queued_arms[first], state.queued_rewards[first], state.queued_sums[first]
        )
        state.counted[0] += 1


@kernel(borrows=True)
def count_release(state: Pools, arm: int, rewards: int, released: float) -> None:
    """Count a release in order, if it has rewards."""
    if rewards > 0:
        counted = state.rewards_in_order[arm]
        state.in_order[arm] = joined_mean(state.in_order[arm], counted, released, rewards)
        state.rewards_in_order[arm] += rewards
        state.draws_in_order[arm] += 1


@kernel(borrows=True)
def use_mean(state: Pools, arm: int, mean: float, weight: int) -> None:
    """Let the policy use this released mean of `weight` rewards."""
    if state.weights[arm] == 0:
        state.arms_with_release[0] += 1
        state.first_pulls[0] = state.arms_untried[0] > 0
    state.means[arm] = mean
    state.weights[arm] = weight
    state.spreads[arm] = 1.0 / math.sqrt(weight)
    state.ready[arm] = state.waiting[arm] == 0
    highest = -math.inf
    for other in range(state.means.size):
        if state.weights[other] > 0 and state.means[other] > highest:
            state.lead[0], highest = other, state.means[other]


@functools.cache
def batch_driver(
    best_arm: Callable[..., int], prepare_batch: Callable[..., None]
) -> Callable[..., tuple[int, int]]:
    """Make `decide(params, state, pools, t, rng)` for a policy that plays whole batches.

    - `best_arm(params, state, t) -> arm`: the arm to play, from releases.
    - `prepare_batch(params, state, arm, t)`: open the arm's next batch if `needs_batch`.
    """

    @kernel(borrows=True)
    def decide(params: Any, state: Any, pools: Pools, t: int, rng: Any) -> tuple[int, int]:
        if in_batch(pools):
            return continue_batch(pools)
        if must_choose(pools):
            best = arm_without_rewards(pools)
            pools.current[0] = best if best >= 0 else best_arm(params, state, t)
        arm = next_arm(params, pools, rng)
        prepare_batch(params, state, arm, t)
        return assign_batch(pools, arm)

    return decide


@functools.cache
def choose_in_batches(
    best_arm: Callable[..., int], prepare_batch: Callable[..., None]
) -> Callable[..., tuple[int, int]]:
    """Make `choose` from `batch_driver`, for a policy whose state is the pools alone."""
    decide = batch_driver(best_arm, prepare_batch)

    @kernel(borrows=True)
    def choose(params: Any, state: Pools, t: int, context: Any, rng: Any) -> tuple[int, int]:
        return decide(params, state, state, t, rng)

    return choose


def learn_in_batches(
    release: Callable[..., None],
) -> tuple[Callable[..., None], Callable[..., None]]:
    """Make `learn` and `forget` for a policy whose state is the pools alone.

    `release` is a kernel of (params, state, arm, row, rng) that releases a settled batch, once.
    """

    @kernel(borrows=True)
    def learn(
        params: Any, state: Pools, t: int, arm: int, reward: float, phase: int, rng: Any
    ) -> None:
        row = add_reward(state, arm, find_row(state, arm, phase), reward)
        if row != NO_ROW:
            release(params, state, arm, row, rng)

    @kernel(borrows=True)
    def forget(params: Any, state: Pools, t: int, arm: int, phase: int, rng: Any) -> None:
        row = give_up(state, arm, find_row(state, arm, phase))
        if row != NO_ROW:
            release(params, state, arm, row, rng)

    return learn, forget


@kernel(borrows=True)
def clipped_mean(state: Pools, arm: int) -> float:
    """The released mean, clipped to [0, 1]."""
    return min(max(state.means[arm], 0.0), 1.0)
