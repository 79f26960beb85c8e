"""Rare answers: extreme, but within the law of their mechanism."""

from __future__ import annotations

import numpy as np
import pytest

from balaclava.auditing.rare_answers import RARE_STYLES, RareAnswers, code_numbers
from balaclava.auditing.tape import Recorder
from balaclava.privacy.mechanisms.base import Terms, declared_mechanism
from balaclava.privacy.mechanisms.laplace import laplace_release, laplace_vector_release
from balaclava.privacy.mechanisms.randomized_response import bernoulli_report
from balaclava.privacy.mechanisms.truncated_laplace import truncated_laplace_release
from tests.oracles.violators import VIOLATORS
from tests.oracles.violators.controls import geometric_release
from tests.oracles.violators.frame import LENGTH


def rare_answers(release, *arguments):
    answers = []
    for number in range(40):
        recorder = Recorder(number, rare=RareAnswers((0.0, 7.25, 7.5), number, 0))
        for _ in range(8):
            release(recorder, *arguments)
        answers += [entry.answer for entry in recorder.tape]
    return np.array(answers)


def test_rare_answers_are_extreme_repeated_noiseless_or_near_constants_of_the_code():
    answers = rare_answers(laplace_release, 3.0, 1.0, 1.0)
    assert answers.max() > 100.0
    assert answers.min() < -100.0
    assert {0.0, 7.25, 7.5, 3.0, 7.375} <= set(answers.tolist())
    assert len(set(answers.tolist())) < answers.size  # some are repeated


def test_rare_answers_stay_within_a_bounded_law():
    terms = Terms(3.0, 1.0, 1.0, 0.01)
    low, high = declared_mechanism(truncated_laplace_release).law(terms).support()
    answers = rare_answers(truncated_laplace_release, *terms)
    assert low < answers.min() < low + 1e-3
    assert high - 1e-3 < answers.max() < high
    reports = rare_answers(bernoulli_report, 0.0, 9.0)  # 1 comes once in 8,000 times
    assert 0.1 < reports.mean() < 0.5


def test_rare_answers_of_a_mechanism_without_a_law_are_draws_of_it():
    answers = rare_answers(geometric_release, 3.0, 1.0, 1.0)
    assert (answers == np.floor(answers)).all()
    assert answers.max() > 6.0


def test_the_numbers_of_the_code_and_of_the_parameters_are_known():
    numbers = code_numbers(VIOLATORS["raw-after-a-window"].policy)
    assert {7.30, 7.31, float(LENGTH)} <= set(numbers)


class Luck:
    """Draws as given: uniform ones, the first of a choice, and two integers."""

    def __init__(self, *draws, pair=(1, 2), sign=0, exponent=-9.0):
        self.draws, self.pair, self.sign, self.exponent = list(draws), pair, sign, exponent

    def random(self):
        return self.draws.pop(0)

    def integers(self, count, size):
        assert (count, size) == (3, 2)
        return self.pair

    def choice(self, options):
        return list(options)[self.sign]

    def uniform(self, low, high):
        assert (low, high) in ((-9.0, 0.5), (-12.0, -2.0))
        return self.exponent


def rare(style, *draws, **luck):
    answers = RareAnswers((2.0, 5.0, 11.0), RARE_STYLES.index(style), 0)
    answers.rng = Luck(*draws, **luck)
    return answers


@pytest.mark.parametrize(
    ("luck", "pair", "expected"),
    [
        (0.29, (1, 2), 5.0),
        (0.31, (1, 2), 55.0),
        (0.49, (1, 2), 55.0),
        (0.51, (1, 2), 3.5),
        (0.69, (2, 0), 8.0),
        (0.69, (0, 0), 2.0),
        (0.71, (1, 2), 5.0 - 1e-9),
    ],
)
def test_numbers_near_those_of_the_code(luck, pair, expected):
    found = rare("number", luck, pair=pair).near_code_number()
    assert found == pytest.approx(expected, abs=1e-12)
    assert rare("number", 0.9, sign=1).near_code_number() == pytest.approx(5.0 + 1e-9, abs=1e-12)


@pytest.mark.parametrize(
    ("style", "draws", "expected"),
    [
        ("number", (0.1,), 5.0),
        ("repeated", (), 8.0),
        ("bare", (0.49,), 3.0),
        ("bare", (0.51,), 2.0),
        ("stretched", (), 3.0 + 3.0 * -1.25),
        ("high", (), 3.0 + 3.0 * 1.25),
        ("low", (), 3.0 - 3.0 * 1.25),
        ("any", (), 3.0 + 3.0 * 1.25),
    ],
)
def test_each_style_of_answers(style, draws, expected):
    answers = rare(style, *draws)
    answers.earlier = [9.0, 8.0, 7.0, 6.0, 5.0]
    assert answers.wanted(3.0, 1.75) == pytest.approx(expected)
    if style == "high":
        assert answers.wanted(3.0, 4.25) == pytest.approx(3.0 + 3.0 * 1.25)
    if style == "stretched":
        assert answers.wanted(3.0, 4.25) == pytest.approx(3.0 + 3.0 * 1.25)


def test_styles_and_natural_shares_follow_the_number():
    found = [RareAnswers((), number, 0) for number in range(26)]
    assert [each.style for each in found[:8]] == list(RARE_STYLES)
    assert [each.natural for each in found] == [0.3] * 8 + [0.6] * 8 + [0.85] * 8 + [0.3] * 2
    assert found[0].rng.random() != found[8].rng.random()


def test_a_natural_answer_stays_and_every_answer_is_remembered():
    laplace = declared_mechanism(laplace_release)
    terms = Terms(3.0, 1.0, 1.0, 0.0)
    answers = rare("high", 0.29, 0.31)
    assert answers.answer(laplace, terms, 3.5, None) == 3.5
    assert answers.answer(laplace, terms, 3.5, None) == 4.5
    assert answers.earlier == [0.0, 3.5, 4.5]
    overflow = rare("high", 0.31)
    assert overflow.answer(laplace, terms._replace(value=-1e308), 1e308, None) == 1e308
    assert overflow.earlier == [0.0]


def test_a_coin_falls_on_either_side():
    coin, terms = declared_mechanism(bernoulli_report), Terms(0.3, 1.0, 1.0, 0.0)
    assert rare("high", 0.49).rare_number(coin, terms, 1.0, None) == 0.0
    assert rare("high", 0.51).rare_number(coin, terms, 0.0, None) == 1.0


def test_ranges_of_answers():
    answers = rare("high")
    laplace, bounded = (
        declared_mechanism(laplace_release),
        declared_mechanism(truncated_laplace_release),
    )
    terms = Terms(3.0, 1.0, 1.0, 0.01)
    assert answers.answer_range(laplace, terms) == (-np.inf, np.inf, False)
    low, high, whole = answers.answer_range(bounded, terms)
    law = bounded.law(terms)
    assert (low, high, whole) == (law.ppf(1e-9), law.isf(1e-9), False)
    moved = answers.answer_range(bounded, terms._replace(value=4.0))
    assert moved[:2] == pytest.approx((low + 1.0, high + 1.0))
    coin = declared_mechanism(bernoulli_report)
    assert answers.answer_range(coin, terms._replace(value=0.3)) == (0.0, 1.0, True)
    assert answers.rare_number(bounded, terms, 4.5, None) == min(3.0 + 3.0 * 1.5, high)
    assert answers.rare_number(bounded, terms, 8.5, None) == high
    assert rare("low").rare_number(bounded, terms, 8.5, None) == low


def test_an_array_is_stretched_part_by_part_or_chosen_among_draws():
    array = declared_mechanism(laplace_vector_release)
    terms = Terms((3.0, 1.0), 1.0, 1.0, 0.0)
    assert rare("high").rare_array(array, terms, (4.0, 0.5), None) == pytest.approx((6.0, 2.5))
    draws = iter([(1.0, 2.0), (-9.0, 1.0), (3.0, 3.0)] + [(0.0, 0.0)] * 21)
    geometric = declared_mechanism(geometric_release)
    found = rare("high").rare_array(geometric, terms, (4.0, 0.5), lambda: next(draws))
    assert found == (-9.0, 1.0)
    assert next(draws, None) is None  # 24 draws
    numbers = iter([float(n) for n in range(24)])
    found = rare("high").rare_number(
        geometric, terms._replace(value=3.0), 4.0, lambda: next(numbers)
    )
    assert found == 6.0  # the draw next to 3 + 3 * 1


def test_some_plain_draws_are_far_out():
    for luck, side, expected in ((0.26, 0.0, 0.3), (0.24, 0.49, 1e-9), (0.24, 0.51, 1 - 1e-9)):
        assert rare("high", luck, side).draw("random", 0.3) == pytest.approx(expected, abs=1e-12)
    assert rare("high", 0.1).draw("standard_normal", 0.3) == pytest.approx(1.2)
    assert rare("high", 0.1).draw("standard_exponential", 0.3) == pytest.approx(1.2)
    assert rare("high", 0.1).draw("beta", 0.3) == 0.3
    assert rare("high").draw("integers", 3) == 3
