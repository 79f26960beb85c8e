"""Permuted blocks."""

from __future__ import annotations

import numpy as np

from balaclava.frames import blocks
from tests.frames.frame_machine import Draws, require_ranges


def block_of(arms: int, *members: int) -> blocks.Blocks:
    state = blocks.begin_blocks(arms)
    blocks.clear_members(state)
    for arm in members:
        blocks.add_member(state, arm)
    blocks.start_block(state)
    return state


def due(state: blocks.Blocks) -> list[int]:
    return [arm for arm in range(state.order.size) if blocks.is_still_due(state, arm)]


def test_each_member_has_one_turn_and_is_due_until_then() -> None:
    state = block_of(5, 0, 2, 3, 4)
    for arm, left in ((4, [0, 2, 3]), (0, [2, 3]), (3, [2]), (2, [])):
        assert blocks.turns_due(state) == len(due(state))
        assert not blocks.block_is_over(state)
        order = state.order[state.place[0] : state.size[0]].tolist()
        turn = blocks.next_turn(state, Draws((order.index(arm) + 0.5) / len(order)))
        assert (turn, due(state)) == (arm, left)
    assert blocks.block_is_over(state)
    blocks.start_block(state)
    assert due(state) == [0, 2, 3, 4]
    blocks.end_block(state)
    assert blocks.block_is_over(state)
    assert (blocks.turns_due(state), due(state)) == (0, [])


def test_inactive_arms_lose_their_turn() -> None:
    state = block_of(4, 0, 1, 2, 3)
    assert blocks.next_turn(state, Draws(0.0)) == 0
    blocks.drop_inactive(state, np.array([False, False, True, True]))
    assert (blocks.turns_due(state), due(state)) == (2, [2, 3])
    assert [blocks.next_turn(state, Draws(0.0)) for _ in range(2)] == [2, 3]
    assert blocks.block_is_over(state)


def test_no_block_before_the_first() -> None:
    state = blocks.begin_blocks(3)
    assert [array.size for array in state] == [3, 1, 1, 3, 1]
    assert blocks.block_is_over(state)
    assert (blocks.turns_due(state), due(state)) == (0, [])
    ranges = dict.fromkeys(("order", "members"), (0.0, 2.0))
    ranges |= dict.fromkeys(("size", "place", "full_size"), (0.0, 3.0))
    require_ranges(state, 0, ranges)
