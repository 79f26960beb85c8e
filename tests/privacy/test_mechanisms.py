"""Mechanisms as kernels: their laws, their limits, and what a recorder learns of them.

Statistical tests have fixed seeds, so they cannot flicker; the significance is 1e-6.
"""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from scipy import stats

from balaclava._core.kernels import compiled, kernel
from balaclava.errors import PrivacyError
from balaclava.privacy.exact_noise import grid_step, to_grid, to_unit_grid
from balaclava.privacy.mechanisms import counters
from balaclava.privacy.mechanisms.base import check_budget, mechanism, mechanism_of
from balaclava.privacy.mechanisms.counters import tree_levels, worst_node_weight
from balaclava.privacy.mechanisms.laplace import (
    laplace_release,
    laplace_report,
    private_argmax_histogram,
)
from balaclava.privacy.mechanisms.randomized_response import bernoulli_report, report_probability
from balaclava.privacy.mechanisms.truncated_laplace import (
    TruncatedLaplaceLaw,
    truncated_laplace_magnitude,
    truncated_laplace_release,
)
from balaclava.privacy.randomness import seeded

SIGNIFICANCE = 1e-6
DRAWS = 1_000_000
EPSILON, DELTA, SENSITIVITY = 0.7, 0.01, 0.25
BIT_EPSILON = 2.0  # where a bit shows an error of the scale best
KINDS = ("laplace", "laplace report", "truncated", "truncated, epsilon 0", "bernoulli")


@kernel
def draw(kind: int, rng: Any, scale: float) -> float:
    """One draw of the noise of a kind, with its scale wrong by a factor."""
    if kind == 0:
        return laplace_release(rng, 0.0, scale * SENSITIVITY, EPSILON)
    if kind == 1:
        return laplace_report(rng, 0.0, scale * SENSITIVITY, EPSILON)
    if kind == 2:
        return truncated_laplace_release(rng, 0.0, scale * SENSITIVITY, EPSILON, DELTA)
    if kind == 3:
        return truncated_laplace_release(rng, 0.0, scale * SENSITIVITY, 0.0, DELTA)
    return bernoulli_report(rng, 0.9, BIT_EPSILON / scale)


def make_sampler(draw: Any) -> Any:
    def sample(kind: int, rng: Any, scale: float, out: np.ndarray) -> None:
        for i in range(out.size):
            out[i] = draw(kind, rng, scale)

    return sample


def sample(kind: str, scale: float, draws: int = DRAWS) -> np.ndarray:
    out = np.empty(draws)
    compiled(make_sampler, draw)(KINDS.index(kind), seeded(20), scale, out)
    return out


def agreement(kind: str, draws: np.ndarray) -> float:
    """The p-value of the draws under the exact law of scale 1."""
    if kind == "bernoulli":
        expected = (0.9 * math.exp(BIT_EPSILON) + 0.1) / (1 + math.exp(BIT_EPSILON))
        return float(stats.binomtest(int(draws.sum()), draws.size, expected).pvalue)
    laws = {
        "truncated": lambda w: truncated_law(w, EPSILON),
        "truncated, epsilon 0": stats.uniform(-SENSITIVITY / 0.02, SENSITIVITY / 0.01).cdf,
    }
    law = laws.get(kind, stats.laplace(0, SENSITIVITY / EPSILON).cdf)
    return float(stats.kstest(draws, law, method="asymp").pvalue)


def truncated_law(w: np.ndarray, epsilon: float) -> np.ndarray:
    """The distribution function as Wang and Zhu state it (Lemma 15)."""
    excess, rate = math.expm1(epsilon), epsilon / SENSITIVITY
    reach = math.log1p(excess / (2 * DELTA)) / rate
    low = -np.minimum(np.abs(w), reach)
    below = DELTA * ((1 + excess / (2 * DELTA)) * np.exp(rate * low) - 1) / excess
    return np.where(w <= 0, below, 1 - below)


@pytest.mark.statistical
@pytest.mark.parametrize("kind", KINDS)
def test_a_million_draws_follow_the_law(kind: str) -> None:
    assert agreement(kind, sample(kind, 1.0)) > SIGNIFICANCE


@pytest.mark.statistical
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("scale", [0.98, 1.02])
def test_a_scale_wrong_by_two_percent_is_noticed(kind: str, scale: float) -> None:
    assert agreement(kind, sample(kind, scale)) < SIGNIFICANCE


@pytest.mark.parametrize("kind", KINDS)
def test_interpreted_and_compiled_draws_are_the_same(kind: str) -> None:
    rng = seeded(20)
    interpreted = [draw(KINDS.index(kind), rng, 1.0) for _ in range(500)]
    assert interpreted == sample(kind, 1.0, 500).tolist()


def test_truncated_laplace_golden_values() -> None:
    # Ten rewards in [0, 1]: their mean has sensitivity 1/10.
    def magnitude(v: float) -> float:
        return truncated_laplace_magnitude(v, 0.1, 1.0, 0.01)

    assert magnitude(1.0) == pytest.approx(0.44649201758912077, rel=1e-14)
    assert magnitude(0.5) == pytest.approx(0.0681707252629635, rel=1e-14)
    assert magnitude(0.9) == pytest.approx(0.22040523590733807, rel=1e-14)


@pytest.mark.parametrize("epsilon", [0.0, 1e-12, 1e-6, 0.1, 1.0, 20.0, 800.0])
@pytest.mark.parametrize("delta", [1e-9, 0.01, 0.9])
def test_quantile_and_distribution_function_are_inverse(epsilon: float, delta: float) -> None:
    p = np.linspace(0.001, 0.999, 31)
    law = TruncatedLaplaceLaw(0.0, 0.5, epsilon, delta)
    pure = TruncatedLaplaceLaw(0.0, 0.5, 1.0, 0.0)
    w = law.ppf(p)
    assert law.cdf(w) == pytest.approx(p, rel=1e-9)
    assert pure.cdf(w) == pytest.approx(stats.laplace(0, 0.5).cdf(w))


@pytest.mark.parametrize(("epsilon", "delta"), [(0.0, 0.01), (0.1, 0.01), (1.0, 1e-6), (5.0, 0.2)])
def test_truncated_laplace_spends_exactly_its_delta(epsilon: float, delta: float) -> None:
    """P(S) - e^epsilon P'(S) is largest beyond the other law's end, and there it is delta."""
    end = truncated_laplace_magnitude(1.0, 1.0, epsilon, delta)
    law = TruncatedLaplaceLaw(0.0, 1.0, epsilon, delta)
    assert 1 - law.cdf(end - 1.0) == pytest.approx(delta, rel=1e-9)
    # Nowhere else is there any excess: the distribution functions' increments keep the ratio.
    edges = np.linspace(1.0 - end, end, 400)
    ours, shifted = np.diff(law.cdf(edges)), np.diff(law.cdf(edges - 1.0))
    assert (shifted <= math.exp(epsilon) * ours * (1 + 1e-9) + 1e-15).all()


def test_truncated_laplace_limits() -> None:
    for v in (0.1, 0.5, 0.99):
        uniform = truncated_laplace_magnitude(v, 1.0, 0.0, 0.01)
        assert uniform == pytest.approx(v * 50)
        for epsilon in (1e-9, 1e-12, 1e-150, 1e-250):
            near = truncated_laplace_magnitude(v, 1.0, epsilon, 0.01)
            assert near == pytest.approx(uniform, rel=1e-6)
        assert truncated_laplace_magnitude(v, 1.0, 2.0, 0.0) == -math.log1p(-v) / 2
        assert truncated_laplace_magnitude(v, 1.0, 1e4, 0.5) == -math.log1p(-v) / 1e4


def test_randomized_response_keeps_its_ratio() -> None:
    for epsilon in (1e-9, 0.1, 1.0, 10.0):
        low, high = report_probability(0.0, epsilon), report_probability(1.0, epsilon)
        assert low + high == pytest.approx(1)
        assert math.log(high / low) == pytest.approx(epsilon, rel=1e-6)
        assert report_probability(0.5, epsilon) == pytest.approx(0.5)
    assert report_probability(0.3, 1e4) == 0.3


# Counters


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
        terms = mechanism_of(body).terms(*arguments)
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


@pytest.mark.statistical
def test_histogram() -> None:
    counts = np.array([3, 40, 41, 5])
    assert private_argmax_histogram(seeded(1), counts, 1e9) == 2
    recorder = Recorder()
    private_argmax_histogram(recorder, counts, 0.8)
    assert [terms.value for terms in recorder.seen] == counts.tolist()
    assert all(terms.sensitivity == 1 and terms.epsilon == 0.4 for terms in recorder.seen)
    rng = seeded(2)
    chosen = [private_argmax_histogram(rng, np.array([7, 7]), 1.0) for _ in range(4000)]
    assert stats.binomtest(sum(chosen), 4000, 0.5).pvalue > SIGNIFICANCE


def make_walk(insert: Any) -> Any:
    def walk(rng: Any, items: np.ndarray, counts: np.ndarray, sums: np.ndarray) -> int:
        trees = counters.begin_trees(1, 10)
        hybrid = counters.begin_hybrid(1)
        for i in range(items.size):
            counters.tree_insert(rng, trees, 0, items[i], 1.0, 1.0)
            counters.hybrid_insert(rng, hybrid, 0, items[i], 1.0, 1.0)
            sums[i] = counters.tree_sum(trees, 0) + counters.hybrid_sum(hybrid, 0)
        return private_argmax_histogram(rng, counts, 1.0)

    return walk


def test_counters_and_histogram_compile_to_what_they_are() -> None:
    items, counts = seeded(8).random(300), np.array([5, 4, 6])
    ours, theirs = np.empty(300), np.empty(300)
    chosen = make_walk(None)(seeded(9), items, counts, ours)
    assert compiled(make_walk, counters.tree_insert)(seeded(9), items, counts, theirs) == chosen
    assert ours.tolist() == theirs.tolist()


# What is known of a mechanism


def test_terms() -> None:
    terms = mechanism_of(truncated_laplace_release).terms(3.0, 0.5, 1.0, 0.01)
    assert terms == (3.0, 0.5, 1.0, 0.01)
    assert mechanism_of(laplace_release).terms(3.0, 0.5, 1.0) == (3.0, 0.5, 1.0, 0.0)
    assert mechanism_of(bernoulli_report).terms(0.3, 1.0) == (0.3, 1.0, 1.0, 0.0)
    local = {f: mechanism_of(f).local for f in (laplace_release, laplace_report, bernoulli_report)}
    assert list(local.values()) == [False, True, True]


def test_a_mechanism_must_say_what_it_protects() -> None:
    with pytest.raises(PrivacyError, match="a mechanism has rng, value"):

        @mechanism("odd", lambda terms: 0.0)
        def odd(rng: Any, value: float, noise: float) -> float:
            return value

    with pytest.raises(PrivacyError, match="not a declared mechanism"):
        mechanism_of(tree_levels)


@pytest.mark.parametrize(
    ("epsilon", "delta", "sensitivity", "named"),
    [
        (-0.1, 0.0, 1.0, "epsilon"),
        (math.nan, 0.0, 1.0, "epsilon"),
        (math.inf, 0.0, 1.0, "epsilon"),
        (1.0, -1e-9, 1.0, "delta"),
        (1.0, 1.0, 1.0, "delta"),
        (1.0, math.nan, 1.0, "delta"),
        (0.0, 0.0, 1.0, "epsilon = 0 with delta = 0"),
        (1.0, 0.0, 0.0, "sensitivity"),
        (1.0, 0.0, -1.0, "sensitivity"),
        (1.0, 0.0, math.inf, "sensitivity"),
        (1.0, 0.0, math.nan, "sensitivity"),
    ],
)
def test_bad_budgets(epsilon: float, delta: float, sensitivity: float, named: str) -> None:
    with pytest.raises(PrivacyError, match=named):
        check_budget(epsilon, delta, sensitivity)


# The grid


def test_rewards_on_the_grid_have_exact_sums() -> None:
    rng = seeded(4)
    for width in (1.0, 0.38, 758.5315431624155, 2.0**-30):
        step = grid_step(width)
        assert 2.0**-21 <= step / width <= 2.0**-20
        rewards = width * (2 * rng.random(2000) - 1)
        rounded = [to_grid(reward, width) for reward in rewards]
        assert max(abs(rounded - rewards)) <= step
        assert all(reward / step == round(reward / step) for reward in rounded)
        assert math.fsum(rounded) == sum(rounded) == sum(reversed(rounded))


def test_rounding_stays_inside() -> None:
    for width in (1.0, 0.38, 758.5315431624155, 1e9 / 3):
        for x in (width, -width, math.nextafter(width, 0), 2 * width, -2 * width):
            assert abs(to_grid(x, width)) <= width
    for x in seeded(6).random(1000):
        assert to_unit_grid(x) == to_grid(x, 1.0)
    assert [to_unit_grid(x) for x in (0.0, 0.5, 1.0)] == [0.0, 0.5, 1.0]
    assert 0.0 < to_unit_grid(2.0**-21 * 1.01) < to_unit_grid(math.nextafter(1.0, 0.0)) == 1.0


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
            terms = mechanism_of(body).terms(*arguments)
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
