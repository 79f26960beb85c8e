"""Permuted blocks: arms that take turns in a fresh random order each time.

In a block each arm has one turn, in an order drawn by the policy's own randomness and by no data.
So arms are pulled equally often and none is confounded with the time of day.

One number of 53 bits serves for several turns, as dice with as many faces as there are arms left:
what is left of it after a throw is as good as new for the next. It is drawn anew before the throws
could have gone in more than 2^22 ways, ten arms in all their orders, so that each of these has the
same chance but for a part in 2^31.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from balaclava._core.kernels import kernel

BITS = 53  # of a number that is drawn
MOST_WAYS = 2**22  # in which throws may go that are made with one number
MOST_FACES = 2**9  # for more, each throw has a number of its own


class Blocks(NamedTuple):
    """The block under way."""

    order: np.ndarray  # its arms, in the order of their turns
    size: np.ndarray  # one element: how many there are
    place: np.ndarray  # one element: turns taken


@kernel
def begin_blocks(arms: int) -> Blocks:
    """No block."""
    return Blocks(np.arange(arms), np.zeros(1, np.int64), np.zeros(1, np.int64))


@kernel(borrows=True)
def all_had_their_turn(blocks: Blocks) -> bool:
    """Whether the next turn needs a new block."""
    return bool(blocks.place[0] >= blocks.size[0])


@kernel(borrows=True)
def start_block(blocks: Blocks) -> None:
    """An empty block, to which `add_to_block` adds arms; then `shuffle_block`."""
    blocks.size[0] = 0
    blocks.place[0] = 0


@kernel(borrows=True)
def add_to_block(blocks: Blocks, arm: int) -> None:
    """One more arm that will have a turn."""
    blocks.order[blocks.size[0]] = arm
    blocks.size[0] += 1


@kernel(borrows=True)
def shuffle_block(blocks: Blocks, rng: Any) -> None:
    """Its arms, all of them to come, in random order."""
    blocks.place[0] = 0
    order, size = blocks.order, blocks.size[0]
    ways, dice = MOST_WAYS, 0
    for place in range(size - 1):
        faces = size - place
        if faces > MOST_FACES:
            other = place + int(rng.random() * faces)
        else:
            ways *= faces
            if ways > MOST_WAYS:
                ways, dice = faces, int(rng.random() * 2.0**BITS)
            dice *= faces
            other = place + (dice >> BITS)
            dice &= 2**BITS - 1
        arm = order[other]
        order[other] = order[place]
        order[place] = arm


@kernel(borrows=True)
def turns_left(blocks: Blocks) -> int:
    """The arms that still have their turn to come: the next one is any of them, alike."""
    return int(blocks.size[0] - blocks.place[0])


@kernel(borrows=True)
def next_turn(blocks: Blocks) -> int:
    """The arm whose turn it is."""
    arm = blocks.order[blocks.place[0]]
    blocks.place[0] += 1
    return int(arm)


@kernel(borrows=True)
def has_turn_to_come(blocks: Blocks, arm: int) -> bool:
    """Whether the arm is one of them."""
    place = blocks.size[0] - 1
    while place >= blocks.place[0] and blocks.order[place] != arm:
        place -= 1
    return bool(place >= blocks.place[0])


@kernel(borrows=True)
def keep_in_block(blocks: Blocks, active: np.ndarray) -> None:
    """Of the arms that had no turn, only the active ones are left, in the same order."""
    size = blocks.place[0]
    for i in range(blocks.place[0], blocks.size[0]):
        if active[blocks.order[i]]:
            blocks.order[size] = blocks.order[i]
            size += 1
    blocks.size[0] = size
