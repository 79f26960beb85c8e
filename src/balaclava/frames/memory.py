"""Memory: pools that forget old releases, for means that change.

A batch belongs to the round in which it was opened. Batches opened before a first round that counts
are forgotten: those with a release no longer enter the arm's mean, those still open are not
released. An arm without a release that counts is examined again, by a batch of its own.

Privacy is that of the pools (`memory.proof.md` beside this file). Forgetting does not undo
a release: observers keep what they have seen.

`pooled`, `rewards`, `draws` and `planned` of the pools are then those of the releases that count.
The number of settled batches, and the releases in order, are those of the whole run.
"""

import functools
import math
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np

from balaclava._core.kernels import kernel
from balaclava._core.states import range_faults, ring_index
from balaclava.frames import pools as frame

# Releases kept of an arm, a power of two. Batches grow, and take at most an eighth of a memory, so
# about 40 are kept; beyond 64 the oldest is forgotten early.
RELEASES_PER_ARM = 64
# Longest batches after which an arm whose rewards were all lost is asked again. With a memory of a
# fixed length that is one memory.
BATCHES_PER_MEMORY = 8


class Memory(NamedTuple):
    """Pools, and the releases that count."""

    pools: frame.Pools
    # [arm, place in the ring]: a release that counts
    kept_sums: np.ndarray  # with noise
    kept_rewards: np.ndarray
    kept_rounds: np.ndarray  # in which its batch was opened
    # [arm]: numbers of releases, from 1
    oldest: np.ndarray  # that counts
    newest: np.ndarray  # less than `oldest` if none counts
    last_opened: np.ndarray  # round in which the arm's newest batch was opened
    # [arm, row]
    rounds: np.ndarray  # in which an open batch was opened
    # One element each
    first: np.ndarray  # the first round that counts
    clock: np.ndarray  # the last round in which a batch could be opened
    restarts: np.ndarray  # times that everything was forgotten

    @property
    def last_chance(self) -> float:
        return self.pools.last_chance

    def faults(self, decisions: int) -> Iterator[str]:
        yield from range_faults(
            0, decisions, kept_rewards=self.kept_rewards, kept_rounds=self.kept_rounds,
            last_opened=self.last_opened, rounds=self.rounds, clock=self.clock,
            restarts=self.restarts, newest=self.newest,
        )  # fmt: skip
        yield from range_faults(1, decisions + 1, oldest=self.oldest, first=self.first)
        kept = self.newest - self.oldest + 1
        if (kept < 0).any() or (kept > RELEASES_PER_ARM).any():
            yield "more releases are kept than there is room for, or fewer than none"


@kernel
def begin_memory(arms: int, rows: int) -> Memory:
    """No release; `rows` is as for `begin_pools`."""
    return Memory(
        pools=frame.begin_pools(arms, rows),
        kept_sums=np.zeros((arms, RELEASES_PER_ARM)),
        kept_rewards=np.zeros((arms, RELEASES_PER_ARM), np.int64),
        kept_rounds=np.zeros((arms, RELEASES_PER_ARM), np.int64),
        oldest=np.ones(arms, np.int64),
        newest=np.zeros(arms, np.int64),
        last_opened=np.zeros(arms, np.int64),
        rounds=np.zeros((arms, rows), np.int64),
        first=np.ones(1, np.int64),
        clock=np.zeros(1, np.int64),
        restarts=np.zeros(1, np.int64),
    )


@kernel(borrows=True)
def place_of(number: int) -> int:
    """The place of a release in the ring."""
    return ring_index(number, RELEASES_PER_ARM)


@kernel(borrows=True)
def forget_before(memory: Memory, first: int) -> None:
    """Let only batches count that were opened in round `first` or later."""
    if first > memory.first[0]:
        memory.first[0] = first
    for arm in range(memory.oldest.size):
        while memory.oldest[arm] <= memory.newest[arm]:
            if memory.kept_rounds[arm, place_of(memory.oldest[arm])] >= memory.first[0]:
                break
            forget_oldest(memory, arm)
    summarise(memory.pools)


@kernel(borrows=True)
def forget_oldest(memory: Memory, arm: int) -> None:
    """Take the arm's oldest release out of its mean."""
    pools, place = memory.pools, place_of(memory.oldest[arm])
    memory.oldest[arm] += 1
    more = memory.kept_rewards[arm, place]
    total = pools.pooled[arm] * pools.rewards[arm] - memory.kept_sums[arm, place]
    if memory.oldest[arm] > memory.newest[arm]:  # all are forgotten
        pools.rewards[arm] = pools.draws[arm] = pools.weights[arm] = 0
        pools.pooled[arm] = pools.means[arm] = pools.spreads[arm] = 0.0
        pools.ready[arm] = False
    else:
        pools.rewards[arm] -= more
        pools.draws[arm] -= 1
        pools.pooled[arm] = total / pools.rewards[arm]
        show_mean(pools, arm)
    recount_plan(pools, arm)


@kernel(borrows=True)
def show_mean(pools: frame.Pools, arm: int) -> None:
    """Let the policy use the mean of the releases that count."""
    pools.means[arm], pools.weights[arm] = pools.pooled[arm], pools.rewards[arm]
    pools.spreads[arm] = 1.0 / math.sqrt(pools.rewards[arm])


@kernel(borrows=True)
def recount_plan(pools: frame.Pools, arm: int) -> None:
    """Count the rewards that count, and the decisions of open batches."""
    pools.planned[arm] = pools.rewards[arm]
    for row in range(pools.numbers.shape[1]):
        if pools.numbers[arm, row] != 0:
            pools.planned[arm] += pools.sizes[arm, row]


@kernel(borrows=True)
def summarise(pools: frame.Pools) -> None:
    """Find the leader, and how many arms have a release that counts."""
    highest = -math.inf
    pools.arms_with_release[0] = 0
    for arm in range(pools.means.size):
        if pools.weights[arm] > 0:
            pools.arms_with_release[0] += 1
            if pools.means[arm] > highest:
                pools.lead[0], highest = arm, pools.means[arm]
    pools.first_pulls[0] = pools.arms_untried[0] > 0 or pools.arms_with_release[0] == 0


@kernel(borrows=True)
def keep_release(
    memory: Memory, arm: int, rewards: int, released: float, opened: int, forgets: bool
) -> None:
    """Keep a release that was just added to the arm's mean.

    Without room the oldest is forgotten; or, unless the memory `forgets`, it counts until all are.
    """
    if memory.newest[arm] - memory.oldest[arm] + 1 == RELEASES_PER_ARM:
        if forgets:
            forget_oldest(memory, arm)
        else:
            memory.oldest[arm] += 1
    memory.newest[arm] += 1
    place = place_of(memory.newest[arm])
    memory.kept_sums[arm, place], memory.kept_rewards[arm, place] = released, rewards
    memory.kept_rounds[arm, place] = opened


@kernel(borrows=True)
def newest_releases(memory: Memory, arm: int, batches: int) -> tuple[float, int]:
    """The sum of the arm's last kept releases, and their rewards."""
    total, rewards = 0.0, 0
    for number in range(memory.newest[arm] - batches + 1, memory.newest[arm] + 1):
        total += memory.kept_sums[arm, place_of(number)]
        rewards += memory.kept_rewards[arm, place_of(number)]
    return total, rewards


@kernel(borrows=True)
def drop_if_forgotten(memory: Memory, arm: int, row: int) -> bool:
    """Drop a settled batch, without a release, if it was opened before the first round."""
    if memory.rounds[arm, row] >= memory.first[0]:
        return False
    pools = memory.pools
    pools.planned[arm] -= pools.sizes[arm, row]
    pools.empty[arm] += 1
    frame.drop_batch(pools, arm, row)
    return True


@kernel(borrows=True)
def end_forgotten_batch(memory: Memory, arm: int) -> None:
    """End the arm's unfinished batch, by its decisions so far, if it was opened too long ago."""
    pools = memory.pools
    unfinished = pools.placed[arm] < pools.size[arm]
    tried = pools.settled[arm] + pools.empty[arm] > 0
    if not (unfinished and tried and memory.last_opened[arm] < memory.first[0]):
        return
    row = frame.ring_row(pools, pools.number[arm])
    frame.shorten_batch(pools, arm, pools.placed[arm])
    if pools.left[arm, row] == 0:
        drop_if_forgotten(memory, arm, row)
    else:
        pools.waiting[arm] += 1
        pools.ready[arm] = False
        frame.queue_batch(pools, arm)


@kernel(borrows=True)
def arm_to_examine(memory: Memory, longest: int) -> int:
    """An arm without a release that counts, or -1.

    It has no batch in this memory, or one that is not fully asked. If the rewards of that batch
    were all lost, it is asked again after BATCHES_PER_MEMORY longest batches.
    """
    pools = memory.pools
    past = max(memory.first[0], memory.clock[0] - BATCHES_PER_MEMORY * longest + 1)
    for arm in range(pools.means.size):
        due = pools.placed[arm] < pools.size[arm] or memory.last_opened[arm] < past
        if due and pools.weights[arm] == 0 and pools.waiting[arm] == 0:
            return arm
    return -1


@functools.cache
def remembering_driver(
    best_arm: Callable[..., int], prepare_batch: Callable[..., None]
) -> Callable[..., tuple[int, int]]:
    """Make `choose` from kernels on pools, as `pools.choose_in_batches` does.

    They see the round since the first one that counts. `params.memory` has the rounds that are
    remembered, the longest batch of the arm in play, and that of an arm drawn evenly.
    """

    @kernel(borrows=True)
    def choose(params: Any, memory: Memory, t: int, context: Any, rng: Any) -> tuple[int, int]:
        pools = memory.pools
        if frame.in_batch(pools):
            return frame.continue_batch(pools)
        rounds, longest, drawn = params.memory
        memory.clock[0] = t
        forget_before(memory, t - rounds + 1)
        since = t - memory.first[0] + 1
        if frame.must_choose(pools):
            due = arm_to_examine(memory, longest)
            pools.current[0] = due if due >= 0 else best_arm(params, pools, since)
        arm = frame.next_arm(params, pools, rng)
        end_forgotten_batch(memory, arm)
        number = pools.number[arm]
        prepare_batch(params, pools, arm, since)
        if pools.number[arm] != number:
            memory.last_opened[arm] = t
            memory.rounds[arm, frame.ring_row(pools, pools.number[arm])] = t
            by_rule = arm == pools.current[0] or pools.first_pulls[0]
            most = longest if by_rule else drawn
            if pools.size[arm] > most:
                frame.shorten_batch(pools, arm, most)
        return frame.assign_batch(pools, arm)

    return choose
