"""Continual counters: sums, noise, and the privacy loss of one item."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from balaclava.privacy.mechanisms import counters
from balaclava.privacy.mechanisms.base import declared_mechanism
from balaclava.privacy.mechanisms.counters import tree_levels
from balaclava.privacy.randomness import seeded
from tests.oracles.tree_weight import worst_node_weight


def test_node_weights_golden_values() -> None:
    def growing(horizon: int) -> np.ndarray:
        return np.arange(1, horizon + 1) ** (1 / 1.9)

    assert worst_node_weight(np.ones(1024)) == 11
    assert worst_node_weight(growing(1024)) == pytest.approx(9.27800136453298, rel=1e-14)
    assert worst_node_weight(np.ones(10**6)) == 20
    assert worst_node_weight(growing(10**6)) == pytest.approx(18.573144765323534, rel=1e-14)


def test_the_printed_tree_overspends_and_ours_does_not() -> None:
    """epsilon / log T for each node is what the paper prints; it costs 1.45 epsilon."""
    horizon = 10**6
    weight = worst_node_weight(np.ones(horizon))
    assert weight / math.log(horizon) == pytest.approx(1.4476, abs=1e-4)
    assert weight / tree_levels(horizon) == 1.0


@pytest.mark.parametrize("horizon", [1, 2, 3, 4, 7, 8, 1000, 1024, 10**6, 2**40])
def test_levels(horizon: int) -> None:
    assert tree_levels(horizon) == math.floor(math.log2(horizon)) + 1


class Tree:
    begin = staticmethod(lambda horizon: counters.begin_trees(2, tree_levels(horizon)))
    insert = staticmethod(counters.tree_insert)
    total = staticmethod(counters.tree_sum)


class LogarithmicCounter:
    begin = staticmethod(lambda horizon: counters.begin_logarithmic(2))
    insert = staticmethod(counters.logarithmic_insert)
    total = staticmethod(counters.logarithmic_sum)


class HybridCounter:
    begin = staticmethod(lambda horizon: counters.begin_hybrid(2))
    insert = staticmethod(counters.hybrid_insert)
    total = staticmethod(counters.hybrid_sum)


COUNTERS = [Tree, LogarithmicCounter, HybridCounter]


@pytest.mark.parametrize("counter", [Tree, HybridCounter])
@pytest.mark.parametrize("horizon", [1, 2, 64, 100])
def test_without_noise_a_counter_is_the_running_sum(counter: Any, horizon: int) -> None:
    rng = seeded(3)
    items = rng.random(horizon)
    state = counter.begin(horizon)
    for n, item in enumerate(items, start=1):
        counter.insert(rng, state, 1, item, 1.0, 1e14)
        assert counter.total(state, 1) == pytest.approx(items[:n].sum(), abs=1e-9)
        assert counter.total(state, 0) == 0.0


def test_without_noise_the_logarithmic_counter_is_the_sum_at_powers_of_two() -> None:
    rng = seeded(3)
    state = counters.begin_logarithmic(1)
    for n in range(1, 40):
        counters.logarithmic_insert(rng, state, 0, 1.0, 1.0, 1e14)
        assert counters.logarithmic_sum(state, 0) == pytest.approx(2 ** (n.bit_length() - 1))


@pytest.mark.parametrize("counter", COUNTERS)
def test_reading_draws_no_noise(counter: Any) -> None:
    rng = seeded(3)
    state = counter.begin(100)
    for _ in range(100):
        counter.insert(rng, state, 0, 0.5, 1.0, 1.0)
        assert counter.total(state, 0) == counter.total(state, 0)


def test_a_full_tree_takes_no_more() -> None:
    rng = seeded(3)
    state = counters.begin_trees(1, tree_levels(4))
    for _ in range(7):
        counters.tree_insert(rng, state, 0, 1.0, 1.0, 1e14)
    full = counters.tree_sum(state, 0)
    counters.tree_insert(rng, state, 0, 1.0, 1.0, 1e14)
    assert counters.tree_sum(state, 0) == full == pytest.approx(7)


class Loud:
    """A generator whose Laplace noise is always its scale."""

    def laplace(self, centre: float, scale: float) -> float:
        return centre + scale


def test_the_noise_of_a_counter_is_the_number_of_its_nodes() -> None:
    epsilon = 0.5
    tree, hybrid = counters.begin_trees(1, 7), counters.begin_hybrid(1)
    for n in range(1, 101):
        counters.tree_insert(Loud(), tree, 0, 0.0, 3.0, epsilon)
        counters.hybrid_insert(Loud(), hybrid, 0, 0.0, 3.0, epsilon)
        assert counters.tree_sum(tree, 0) == pytest.approx(n.bit_count() * 3.0 * 7 / epsilon)
        levels = n.bit_length() - 1
        releases, nodes = levels + 1, (n - (1 << levels)).bit_count()
        expected = (releases + nodes * levels) * 3.0 / (epsilon / 2)
        assert counters.hybrid_sum(hybrid, 0) == pytest.approx(expected)


class Recorder:
    """Writes down the terms of every release; answers as it is told, or with the value."""

    def __init__(self, answers: list[float] | None = None) -> None:
        self.answers = answers
        self.seen: list[Any] = []

    def release(self, body: Any, *arguments: Any) -> float:
        terms = declared_mechanism(body).terms(*arguments)
        self.seen.append(terms)
        return terms.value if self.answers is None else self.answers[len(self.seen) - 1]


@pytest.mark.parametrize("counter", COUNTERS)
@pytest.mark.parametrize("growth", [0.0, 1 / 1.9])
def test_one_item_costs_no_more_than_epsilon(counter: Any, growth: float) -> None:
    """Replay a neighbour with the same answers: only the nodes that hold the item move."""
    horizon, epsilon = 64, 0.7
    widths = np.arange(1, horizon + 1) ** growth
    items = widths * (seeded(5).random(horizon) - 0.5)

    def play(items: np.ndarray, answers: list[float] | None) -> Recorder:
        recorder, state = Recorder(answers), counter.begin(horizon)
        for item, width in zip(items, widths, strict=True):
            counter.insert(recorder, state, 0, item, width, epsilon)
        return recorder

    first = play(items, None)
    answers = [terms.value for terms in first.seen]
    costs = []
    for s in range(horizon):
        changed = items.copy()
        changed[s] += math.copysign(widths[s], -items[s])
        second = play(changed, answers)
        moved = [
            (before, abs(before.value - after.value))
            for before, after in zip(first.seen, second.seen, strict=True)
            if abs(before.value - after.value) > 1e-9
        ]
        assert all(distance <= before.sensitivity * (1 + 1e-9) for before, distance in moved)
        costs.append(sum(before.epsilon for before, _ in moved))
    assert max(costs) <= epsilon * (1 + 1e-12)
    assert max(costs) > 0.9 * epsilon  # and the budget is used


@pytest.mark.parametrize("order", [1.01, 1.5, math.inf])  # the last: one level for all
def test_trees_of_items_of_any_size_keep_their_sensitivity(order: float) -> None:
    """Whatever one item becomes, every node moves by at most the width its noise is made for.

    Levels start where a sum of all items is far beyond 53 bits of the first one. Sums are compared
    as fractions, so that a rounding error of one bit would show.
    """
    rng = np.random.default_rng(7)
    rounds, first = 1 << 9, 3.7
    # As if the 2^40-th item came now: nodes are small, their grids are coarse against rewards.
    levels = [first * (2.0**40 + n * 2.0**32) ** (1 / order) for n in range(rounds)]

    class Nodes:
        """Written instead of noise: value and width of each node."""

        def __init__(self) -> None:
            self.seen: list[tuple[float, float]] = []

        def release(self, body: Any, *arguments: Any) -> float:
            terms = declared_mechanism(body).terms(*arguments)
            self.seen.append((terms.value, terms.sensitivity))
            return 0.0

    def nodes(items: np.ndarray) -> list[tuple[float, float]]:
        trees, recorder = counters.begin_trees(1, counters.tree_levels(rounds)), Nodes()
        for item, level in zip(items, levels, strict=True):
            counters.tree_insert_within(recorder, trees, 0, float(item), level, 1.0)
        return recorder.seen

    items = rng.uniform(-1, 1, rounds) * levels
    items[rng.random(rounds) < 0.5] = 0.9  # far below the level
    places = (0, 1, 63, 64, 200, rounds - 1)
    items[list(places)] = -np.array(levels)[list(places)]
    here = nodes(items)
    for place in places:
        for value in (levels[place], -levels[place], 0.0, 5e-324, 0.1):
            changed = items.copy()
            changed[place] = value
            for (one, width), (other, same) in zip(here, nodes(changed), strict=True):
                assert width == same
                assert abs(Fraction(one) - Fraction(other)) <= Fraction(width)
    # And the sums are right: off by no more than the steps that the proof counts.
    held = Fraction(here[-1][0])
    true = sum(map(Fraction, items.tolist()), start=Fraction(0))
    L = counters.tree_levels(rounds)
    assert abs(held - true) <= rounds * L * (L + 1) // 2 * Fraction(levels[-1]) / 2**52
    assert here[-1][1] <= 2 * levels[-1] * (1 + 2.0**-40)


def test_a_tree_of_items_of_any_size_splits_epsilon_over_its_levels() -> None:
    recorder, trees = Recorder(), counters.begin_trees(2, 3)
    for n in range(1, 9):
        counters.tree_insert_within(recorder, trees, 1, 0.75, 1.0, 0.6)
        assert counters.tree_sum(trees, 1) == pytest.approx(0.75 * min(n, 7), abs=1e-9)
    assert len(recorder.seen) == 7  # a full tree takes no more
    assert trees.items.tolist() == [0, 7]
    for terms in recorder.seen:
        assert terms.epsilon == pytest.approx(0.6 / 3)
        assert terms.sensitivity == pytest.approx(2.0, rel=1e-6)
