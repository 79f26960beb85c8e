"""Permuted blocks: each arm has equally many turns in a block, in an order that ignores the data.

So arms are pulled equally often, and none is confounded with the time of day. An arm has one turn a
block, or a random number of them: then an observer of earlier turns seldom knows the next one.
"""

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from balaclava._core.kernels import kernel
from balaclava._core.states import range_faults


class Blocks(NamedTuple):
    """The current block."""

    order: np.ndarray  # its arms; those that had their turn come first
    size: np.ndarray  # one element: number of its arms
    place: np.ndarray  # one element: turns taken
    members: np.ndarray  # the arms of future blocks
    full_size: np.ndarray  # one element: number of members

    def faults(self, decisions: int) -> Iterator[str]:
        arms, places = self.members.size, self.order.size
        yield from range_faults(0, arms - 1, order=self.order, members=self.members)
        yield from range_faults(0, places, size=self.size, place=self.place)
        yield from range_faults(0, arms, full_size=self.full_size)


@kernel
def begin_blocks(arms: int, most_turns: int = 1) -> Blocks:
    """No block; those to come have each arm 1 to `most_turns` times."""
    return Blocks(
        order=np.arange(arms * most_turns) % arms,
        size=np.zeros(1, np.int64),
        place=np.zeros(1, np.int64),
        members=np.arange(arms),
        full_size=np.zeros(1, np.int64),
    )


@kernel(borrows=True)
def block_is_over(blocks: Blocks) -> bool:
    """Whether every arm of the block had its turn."""
    return bool(blocks.place[0] >= blocks.size[0])


@kernel(borrows=True)
def clear_members(blocks: Blocks) -> None:
    """Remove all members; `add_member` adds them."""
    blocks.full_size[0] = 0


@kernel(borrows=True)
def add_member(blocks: Blocks, arm: int) -> None:
    """Add an arm to future blocks."""
    blocks.members[blocks.full_size[0]] = arm
    blocks.full_size[0] += 1


@kernel(borrows=True)
def most_turns(blocks: Blocks) -> int:
    """The most turns that an arm may have in a block."""
    return blocks.order.size // blocks.members.size


@kernel(borrows=True)
def draw_turns(blocks: Blocks, left: int, rng: Any) -> int:
    """Draw the turns that each arm has in the next block, at most `left`, if there may be several.

    The draw depends on no data.
    """
    most = min(most_turns(blocks), max(left, 1))
    return 1 + int(rng.random() * most) if most > 1 else 1


@kernel(borrows=True)
def start_block(blocks: Blocks, turns: int = 1) -> None:
    """Start a block in which each member has so many turns."""
    members = blocks.full_size[0]
    for i in range(turns * members):
        blocks.order[i] = blocks.members[i % members]
    blocks.size[0] = turns * members
    blocks.place[0] = 0


@kernel(borrows=True)
def turns_of_block(blocks: Blocks) -> int:
    """Turns that each arm has in the current block; with several no arm may be dropped from it."""
    return blocks.size[0] // blocks.full_size[0] if most_turns(blocks) > 1 else 1


@kernel(borrows=True)
def end_block(blocks: Blocks) -> None:
    """End the block at once."""
    blocks.size[0] = 0
    blocks.place[0] = 0


@kernel(borrows=True)
def turns_due(blocks: Blocks) -> int:
    """Number of turns that are still to come; each is equally likely to be next."""
    return int(blocks.size[0] - blocks.place[0])


@kernel(borrows=True)
def next_turn(blocks: Blocks, rng: Any) -> int:
    """Draw one of the turns that are due; its arm."""
    place = blocks.place[0]
    other = place + int(rng.random() * (blocks.size[0] - place))
    arm = blocks.order[other]
    blocks.order[other] = blocks.order[place]
    blocks.order[place] = arm
    blocks.place[0] = place + 1
    return int(arm)


@kernel(borrows=True)
def turns_left(blocks: Blocks, arm: int) -> int:
    """Number of turns of the arm that are still to come."""
    count = 0
    for place in range(blocks.place[0], blocks.size[0]):
        if blocks.order[place] == arm:
            count += 1
    return count


@kernel(borrows=True)
def is_still_due(blocks: Blocks, arm: int) -> bool:
    """Whether a turn of the arm is still to come."""
    return turns_left(blocks, arm) > 0


@kernel(borrows=True)
def drop_inactive(blocks: Blocks, active: np.ndarray) -> None:
    """Remove inactive arms from the rest of the block."""
    size = blocks.place[0]
    for i in range(blocks.place[0], blocks.size[0]):
        if active[blocks.order[i]]:
            blocks.order[size] = blocks.order[i]
            size += 1
    blocks.size[0] = size
