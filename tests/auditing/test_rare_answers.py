"""Rare answers: extreme, but within the law of their mechanism."""

from __future__ import annotations

import numpy as np

from balaclava.auditing.rare_answers import RareAnswers, code_numbers
from balaclava.auditing.tape import Recorder
from balaclava.privacy.mechanisms.base import Terms, declared_mechanism
from balaclava.privacy.mechanisms.laplace import laplace_release
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
