"""Permuted blocks: each arm has one turn a block, in a random order that ignores the data.

So arms are pulled equally often, and none is confounded with the time of day.
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
        arms = self.order.size
        yield from range_faults(0, arms - 1, order=self.order, members=self.members)
        yield from range_faults(0, arms, size=self.size, place=self.place, full_size=self.full_size)


@kernel
def begin_blocks(arms: int) -> Blocks:
    return Blocks(
        order=np.arange(arms),
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
def start_block(blocks: Blocks) -> None:
    for i in range(blocks.full_size[0]):
        blocks.order[i] = blocks.members[i]
    blocks.size[0] = blocks.full_size[0]
    blocks.place[0] = 0


@kernel(borrows=True)
def end_block(blocks: Blocks) -> None:
    """End the block at once."""
    blocks.size[0] = 0
    blocks.place[0] = 0


@kernel(borrows=True)
def arms_due(blocks: Blocks) -> int:
    """Number of arms whose turn is still to come; each is equally likely to be next."""
    return int(blocks.size[0] - blocks.place[0])


@kernel(borrows=True)
def next_turn(blocks: Blocks, rng: Any) -> int:
    """Draw one of the arms that had no turn."""
    place = blocks.place[0]
    other = place + int(rng.random() * (blocks.size[0] - place))
    arm = blocks.order[other]
    blocks.order[other] = blocks.order[place]
    blocks.order[place] = arm
    blocks.place[0] = place + 1
    return int(arm)


@kernel(borrows=True)
def is_still_due(blocks: Blocks, arm: int) -> bool:
    """Whether the arm's turn is still to come."""
    place = blocks.size[0] - 1
    while place >= blocks.place[0] and blocks.order[place] != arm:
        place -= 1
    return bool(place >= blocks.place[0])


@kernel(borrows=True)
def drop_inactive(blocks: Blocks, active: np.ndarray) -> None:
    """Remove inactive arms from the rest of the block."""
    size = blocks.place[0]
    for i in range(blocks.place[0], blocks.size[0]):
        if active[blocks.order[i]]:
            blocks.order[size] = blocks.order[i]
            size += 1
    blocks.size[0] = size
