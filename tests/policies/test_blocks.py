"""Permuted blocks: every order alike, drawn from few numbers."""

from __future__ import annotations

import itertools
import math
from collections import Counter

import numpy as np
import pytest

from balaclava.frames.blocks import (
    BITS,
    MOST_FACES,
    MOST_WAYS,
    add_to_block,
    begin_blocks,
    keep_in_block,
    next_turn,
    shuffle_block,
    start_block,
    turns_left,
)
from balaclava.privacy.randomness import seeded
from tests.oracles.turns import shuffled


def block_of(arms, rng):
    """A block of these arms, and its order."""
    blocks = begin_blocks(max(arms) + 1)
    start_block(blocks)
    for arm in arms:
        add_to_block(blocks, arm)
    shuffle_block(blocks, rng)
    return blocks, blocks.order[: len(arms)].tolist()


class Chosen:
    """Randomness that gives these numbers, and counts them."""

    def __init__(self, *numbers):
        self.numbers, self.count = numbers, 0

    def random(self):
        self.count += 1
        return self.numbers[(self.count - 1) % len(self.numbers)]


@pytest.mark.parametrize("size", [1, 2, 9, 10, 11, 40])
def test_the_order_is_that_of_exact_fractions(size):
    arms = list(range(3, 3 + size))
    for seed in range(5):
        assert block_of(arms, seeded(seed))[1] == shuffled(arms, seeded(seed))


def test_each_order_has_the_same_share_of_the_numbers():
    """With as many evenly spaced numbers as there are orders, each order comes once."""
    ways = math.factorial(5)
    numbers = [(i + 0.5) / ways for i in range(ways)]
    orders = Counter(tuple(block_of(range(5), Chosen(u))[1]) for u in numbers)
    assert set(orders) == set(itertools.permutations(range(5)))
    assert set(orders.values()) == {1}


@pytest.mark.parametrize(("size", "draws"), [(1, 0), (2, 1), (10, 1), (11, 2), (15, 2)])
def test_one_number_serves_while_the_orders_are_few(size, draws):
    rng = Chosen(0.3, 0.7)
    block_of(range(size), rng)
    assert rng.count == draws


@pytest.mark.parametrize("edge", [0.0, 1.0 - 2.0**-BITS])
@pytest.mark.parametrize("size", [2, 10, 300, MOST_FACES + 3])
def test_the_least_and_the_largest_number_keep_within_the_block(size, edge):
    _, order = block_of(range(size), Chosen(edge))
    assert sorted(order) == list(range(size))


def test_what_a_number_and_its_rest_can_hold_fits_64_bits():
    assert MOST_FACES * 2**BITS <= 2**62
    assert MOST_WAYS * MOST_FACES <= 2**62


def test_arms_that_leave_keep_the_order_of_the_others():
    blocks, order = block_of(range(6), seeded(4))
    first = next_turn(blocks)
    active = np.ones(6, bool)
    active[[order[0], order[2], order[5]]] = False
    keep_in_block(blocks, active)
    assert first == order[0]
    assert turns_left(blocks) == 3
    assert [next_turn(blocks) for _ in range(3)] == [order[1], order[3], order[4]]
