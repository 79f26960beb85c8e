"""Each outcome of a kernel's draws has its exact probability."""

from __future__ import annotations

import math
from collections import Counter

import numpy as np
import pytest
from scipy import stats

from balaclava.auditing.enumeration.branching import (
    BranchCounts,
    NotEnumerable,
    answer_cells,
    branches,
    cell_scale,
)
from balaclava.estimators.arm_probabilities import draw_arm
from balaclava.privacy.mechanisms.analytic_gaussian import gaussian_release
from balaclava.privacy.mechanisms.base import Terms
from balaclava.privacy.mechanisms.laplace import (
    laplace_law,
    laplace_release,
    laplace_vector_release,
)
from balaclava.privacy.mechanisms.randomized_response import bernoulli_report
from balaclava.privacy.mechanisms.truncated_laplace import truncated_laplace_release


def law(call):
    """The probability of each outcome of a call."""
    total = Counter()
    for outcome, rng in branches(call, BranchCounts(1_000, few_cells=False)):
        total[outcome] += rng.probability
    return dict(total)


def test_a_uniform_draw_is_split_where_it_is_compared():
    assert law(lambda rng: int(rng.random() * 3)) == pytest.approx(dict.fromkeys(range(3), 1 / 3))
    assert law(lambda rng: rng.random() < 0.3) == pytest.approx({True: 0.3, False: 0.7})
    assert law(lambda rng: rng.random() >= np.float64(0.3)) == pytest.approx(
        {False: 0.3, True: 0.7}
    )
    assert law(lambda rng: 1.0 - rng.random() / 2 > 0.75) == pytest.approx({True: 0.5, False: 0.5})
    assert law(lambda rng: rng.random() < 2.0) == {True: 1.0}


def test_a_later_comparison_is_of_the_part_that_is_left():
    def call(rng):
        u = rng.random()
        return (u < 0.5, u < 0.25, np.float64(1.0) - u < 0.25)

    assert law(call) == pytest.approx(
        {(True, True, False): 0.25, (True, False, False): 0.25, (False, False, True): 0.25,
         (False, False, False): 0.25}
    )  # fmt: skip


def test_an_arm_is_drawn_by_its_probability():
    chances = np.array([0.2, 0.0, 0.5, 0.3])
    assert law(lambda rng: draw_arm(chances, rng)) == pytest.approx({0: 0.2, 2: 0.5, 3: 0.3})


def test_integers_are_equally_likely():
    assert law(lambda rng: rng.integers(2, 5)) == pytest.approx(dict.fromkeys((2, 3, 4), 1 / 3))
    with pytest.raises(NotEnumerable, match="one of 1000 integers"):
        law(lambda rng: rng.integers(1000))


def test_a_coin_of_randomized_response_has_its_probability():
    for epsilon in (0.1, 1.0, 5.0):
        truthful = 1 / (1 + math.exp(-epsilon))
        found = law(lambda rng, epsilon=epsilon: bernoulli_report(rng, 1.0, epsilon))
        assert found == pytest.approx({1.0: truthful, 0.0: 1 - truthful}, rel=1e-12)


@pytest.mark.parametrize("epsilon", [0.1, 1.0, 4.0])
@pytest.mark.parametrize("value", [0.0, 0.3, 2.0, 9.0])
@pytest.mark.parametrize("few", [False, True])
def test_rounding_costs_laplace_noise_no_privacy_and_hides_none(epsilon, value, few):
    body = laplace_release.__wrapped__
    answers, here, rounded = answer_cells(body, Terms(value, 1.0, epsilon, 0.0), few)
    others, there, _ = answer_cells(body, Terms(value + 1.0, 1.0, epsilon, 0.0), few)
    assert rounded
    assert answers == others
    assert sum(here) == pytest.approx(1.0, rel=1e-12)
    ratios = np.abs(np.log(here) - np.log(there))
    assert ratios.max() == pytest.approx(epsilon, rel=1e-9)


def test_rounding_keeps_the_delta_of_a_law():
    for body, terms in (
        (gaussian_release, Terms(0.0, 1.0, 1.0, 0.01)),
        (truncated_laplace_release, Terms(0.0, 1.0, 1.0, 0.01)),
    ):
        _, p, _ = answer_cells(body.__wrapped__, terms, False)
        _, q, _ = answer_cells(body.__wrapped__, terms._replace(value=1.0), False)
        for one, other in ((p, q), (q, p)):
            excess = np.maximum(np.array(one) - math.e * np.array(other), 0.0).sum()
            assert excess <= 0.01 * (1 + 1e-9)


def test_parts_of_an_array_are_independent():
    out = np.zeros(2)

    def call(rng):
        laplace_vector_release(rng, np.array([0.0, 1.0]), 1.0, 1.0, out)
        return tuple(out.tolist())

    found = law(call)
    assert len(found) == 25
    assert sum(found.values()) == pytest.approx(1.0)
    first, second = ({}, {})
    for (a, b), p in found.items():
        first[a], second[b] = first.get(a, 0) + p, second.get(b, 0) + p
    assert all(p == pytest.approx(first[a] * second[b]) for (a, b), p in found.items())


def test_what_cannot_be_enumerated_is_refused():
    with pytest.raises(NotEnumerable, match=r"rng\.laplace"):
        law(lambda rng: rng.laplace(0.0, 1.0))
    with pytest.raises(NotEnumerable, match="too many outcomes"):
        law(lambda rng: [rng.random() < 0.5 for _ in range(20)] == [])
    counts = BranchCounts(3, few_cells=False)
    assert len(list(branches(lambda rng: rng.random() < 0.5, counts))) == 2
    with pytest.raises(NotEnumerable, match="it has too many outcomes"):  # runs are shared
        list(branches(lambda rng: rng.random() < 0.5, counts))
    with pytest.raises(NotEnumerable, match="not a number"):
        law(lambda rng: laplace_release(rng, math.nan, 1.0, 1.0))


def test_a_plain_continuous_draw_has_a_few_values_and_is_noted():
    counts = BranchCounts(100, few_cells=False)
    found = [float(value) for value, _ in branches(lambda rng: rng.standard_normal(), counts)]
    assert found == pytest.approx([-0.967422, 0.0, 0.967422], abs=1e-6)
    assert counts.coarse == {"standard_normal"}
    numbers = [value for value, _ in branches(lambda rng: math.sqrt(rng.random()), counts)]
    assert numbers == pytest.approx([math.sqrt(1 / 6), math.sqrt(1 / 2), math.sqrt(5 / 6)])
    assert counts.coarse == {"standard_normal", "random"}


def test_cells_of_an_answer_have_the_mass_of_their_law():
    """The scale is the least power of two from the sensitivity and the quartiles on."""
    for sensitivity, epsilon, scale in ((1.0, 4.0, 1.0), (1.0, 0.5, 2.0), (3.0, 1.0, 4.0)):
        terms = Terms(0.3, sensitivity, epsilon, 0.0)
        exact = stats.laplace(0.3, sensitivity / epsilon)
        answers, chances, rounded = answer_cells(laplace_release.__wrapped__, terms, False)
        assert answers == [scale * unit for unit in (-16.0, -1.0, 0.125, 1.0, 16.0)]
        ends = scale * np.array([-4.0, -0.5, 0.5, 4.0])
        assert chances == pytest.approx(np.diff([0.0, *exact.cdf(ends), 1.0]))
        few, shares, _ = answer_cells(laplace_release.__wrapped__, terms, True)
        assert few == [scale * unit for unit in (-4.0, 0.125, 4.0)]
        assert shares == pytest.approx(np.diff([0.0, *exact.cdf(ends[1:3]), 1.0]))
        assert rounded


def test_the_scale_of_cells_ignores_the_value():
    for value in (-7.0, 0.0, 100.0):
        assert cell_scale(laplace_law, Terms(value, 1.0, 0.1, 0.0)) == 8.0
        assert cell_scale(laplace_law, Terms((value, 1.0), 1.0, 0.1, 0.0)) == 8.0


def test_long_arrays_have_fewer_cells_or_none():
    body = laplace_vector_release.__wrapped__
    for parts, answers in ((1, 5), (2, 25), (3, 27), (5, 243)):
        vectors, chances, _ = answer_cells(body, Terms((0.5,) * parts, 1.0, 1.0, 0.0), False)
        assert len(vectors) == len(chances) == answers
        assert sum(chances) == pytest.approx(1.0)
    with pytest.raises(NotEnumerable, match="arrays of 6 numbers"):
        answer_cells(body, Terms((0.5,) * 6, 1.0, 1.0, 0.0), False)


def test_at_most_64_integers_are_equally_likely():
    assert law(lambda rng: rng.integers(2, 5)) == pytest.approx(dict.fromkeys((2, 3, 4), 1 / 3))
    assert law(lambda rng: rng.integers(3)) == pytest.approx(dict.fromkeys((0, 1, 2), 1 / 3))
    assert len(law(lambda rng: rng.integers(64))) == 64
    for low, high in ((0, 65), (3, 3), (4, 3)):
        with pytest.raises(NotEnumerable, match=f"one of {high - low} integers"):
            law(lambda rng, low=low, high=high: rng.integers(low, high))


def test_arithmetic_on_a_uniform_draw():
    cases = [
        (lambda u: u + 2.0 < 2.25, 0.25),
        (lambda u: 2.0 + u < 2.25, 0.25),
        (lambda u: u - 0.5 < -0.25, 0.25),
        (lambda u: 0.5 - u > 0.25, 0.25),
        (lambda u: -u > -0.25, 0.25),
        (lambda u: 4.0 * u <= 1.0, 0.25),
        (lambda u: u * -4.0 >= -1.0, 0.25),
        (lambda u: u / 2.0 < 0.125, 0.25),
        (lambda u: (u * 4.0 + 1.0) * 2.0 < 4.0, 0.25),
        (lambda u: int(u * 4.0) == 0, 0.25),
        (lambda u: math.floor(u * 4.0 + 3.0) == 6, 0.25),
        (lambda u: int(u * 0.0 + 2.0) == 2, 1.0),
        (lambda u: u * 0.0 + 2.0 < 2.0, 0.0),
    ]
    for number, (compare, chance) in enumerate(cases):
        found = law(lambda rng, compare=compare: bool(compare(rng.random()))).get(True, 0.0)
        assert found == pytest.approx(chance), number
    wide = law(lambda rng: int(rng.random() * 64.0))
    assert wide == pytest.approx(dict.fromkeys(range(64), 1 / 64))
    for draw in (lambda rng: int(rng.random() * 65.0), lambda rng: int(rng.random() - 0.5)):
        with pytest.raises(NotEnumerable, match="wide range"):
            law(draw)


def test_a_coarse_value_splits_what_is_left():
    def call(rng):
        u = rng.random()
        return float(u * 6.0) if u < 0.5 else -1.0

    assert law(call) == pytest.approx({0.5: 1 / 6, 1.5: 1 / 6, 2.5: 1 / 6, -1.0: 0.5})


def test_as_many_runs_as_are_allowed():
    for most, enough in ((8, True), (7, False)):
        counts = BranchCounts(most, few_cells=False)
        outcomes = branches(lambda rng: [rng.random() < 0.5 for _ in range(3)] == [], counts)
        if enough:
            assert len(list(outcomes)) == 8
        else:
            with pytest.raises(NotEnumerable, match="one decision or reward has too many"):
                list(outcomes)


def test_reports_of_devices_are_kept():
    counts = BranchCounts(100, few_cells=False)
    found = [rng.reports for _, rng in branches(lambda r: bernoulli_report(r, 1.0, 1.0), counts)]
    assert sorted(found) == [[0.0], [1.0]]
    assert not counts.rounded
    found = [
        rng.reports for _, rng in branches(lambda r: laplace_release(r, 1.0, 1.0, 1.0), counts)
    ]
    assert found == [[]] * 5
    assert counts.rounded
