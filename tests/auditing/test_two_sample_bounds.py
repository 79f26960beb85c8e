"""Bounds from two samples have the stated coverage."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from scipy import stats

from balaclava.auditing.two_sample_bounds import (
    best_threshold,
    cautious_log_ratio,
    count_beyond,
    epsilon_lower,
    log_wealth,
)


def test_the_bound_has_the_stated_coverage():
    """At a ratio of e^1 exactly, at most 5 % of 4,000 samples exceed 1 (plus 3 sd)."""
    rng = np.random.default_rng(0)
    n, p = 2_000, 0.4
    left, right = rng.binomial(n, p, 4_000), rng.binomial(n, p / math.e, 4_000)
    assert np.mean(epsilon_lower(left, right, n, 0.0, 0.05) > 1.0) <= 0.05 + 3 * 0.0035


def test_delta_is_subtracted():
    without = epsilon_lower(500, 100, 1_000, 0.0, 0.05)
    assert epsilon_lower(500, 100, 1_000, 0.1, 0.05) < without
    assert epsilon_lower(500, 100, 1_000, 0.9, 0.05) == 0.0


def test_the_best_threshold_tells_shifted_noise_apart():
    """Laplace noise of scale 1, moved by 1: the best event has a ratio of e."""
    rng = np.random.default_rng(1)
    train, test = ([rng.laplace(centre, 1.0, 40_000) for centre in (0.0, 1.0)] for _ in range(2))
    event = best_threshold(train, 200, 0.0, 0.05)
    assert 0.85 < event.bound(test, 0.0, 0.05) < 1.0
    assert str(event).startswith("at least" if event.side else "at most")


@pytest.mark.parametrize(
    ("epsilon", "delta", "q"), [(1.0, 0.0, 0.2), (0.3, 0.1, 0.5), (3.0, 0.0, 0.04)]
)
def test_the_bettor_gains_nothing_on_a_true_claim(epsilon, delta, q):
    """At the edge of the claim the expected wealth is exactly 1: all outcomes of 3 pairs."""
    p = math.exp(epsilon) * q + delta
    expected = 0.0
    for outcome in itertools.product(itertools.product((0, 1), repeat=2), repeat=3):
        counts = np.zeros((2, 2))
        probability = 1.0
        for x, y in outcome:
            counts[x, y] += 1
            probability *= (p if x else 1 - p) * (q if y else 1 - q)
        expected += probability * math.exp(log_wealth(counts, epsilon, delta))
    assert expected == pytest.approx(1.0, rel=1e-9)


def test_the_bound_is_the_ratio_of_two_exact_ones():
    low = stats.beta.ppf(0.01, 500, 501)
    high, of_fewer = stats.beta.ppf(0.99, 101, 900), stats.beta.ppf(0.99, 101, 300)
    assert epsilon_lower(500, 100, 1_000, 0.1, 0.02) == pytest.approx(math.log((low - 0.1) / high))
    fewer = epsilon_lower(500, 100, 1_000, 0.1, 0.02, right_trials=400)
    assert fewer == pytest.approx(math.log((low - 0.1) / of_fewer))
    assert epsilon_lower(100, 500, 1_000, 0.0, 0.02) == 0.0


def test_a_cautious_ratio_is_some_deviations_below():
    deviation = math.sqrt(0.4 * 0.6 / (100 * 0.3**2) + 0.9 / (0.1 * 50))
    found = cautious_log_ratio(np.array(0.4), np.array(0.1), 0.1, 2.0, 100.0, 50.0)
    assert found == pytest.approx(math.log(3.0) - 2.0 * deviation)
    alone = cautious_log_ratio(np.array(0.4), np.array(0.1), 0.0, 1.0)
    assert alone == pytest.approx(math.log(4.0) - math.sqrt(0.6 / 0.4 + 0.9 / 0.1))


def test_values_at_least_or_at_most_a_threshold_are_counted():
    sample, thresholds = np.array([3.0, 2.0, 1.0, 2.0]), np.array([0.0, 2.0, 2.5, 4.0])
    assert count_beyond(sample, thresholds, True).tolist() == [4, 3, 1, 0]
    assert count_beyond(sample, thresholds, False).tolist() == [0, 3, 3, 4]


@pytest.mark.parametrize("side", [0, 1])
@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_the_best_of_two_thresholds(side, sign):
    """Of 100, 60 against 10 are beyond 1: a ratio above that of 90 against 40 before it."""
    likely, unlikely = (sign * np.repeat([0.0, 1.0], counts) for counts in ((40, 60), (90, 10)))
    samples = [unlikely, likely] if side else [likely, unlikely]
    event = best_threshold(samples, 5, 0.0, 0.05)
    assert event == (side, sign > 0, sign)
    assert str(event) == ("at least 1" if sign > 0 else "at most -1")
    assert event.bound(samples, 0.1, 0.05) == epsilon_lower(60, 10, 100, 0.1, 0.05)


def test_wealth_is_the_mean_over_the_stakes():
    counts = np.array([[3, 1], [7, 2]])
    stakes = np.linspace(0.01, 0.99, 99) / (math.exp(0.5) + 0.1)
    wealth = np.mean(
        [
            math.prod(
                (1 + stake * (x - math.exp(0.5) * y - 0.1)) ** int(counts[x, y])
                for x in (0, 1)
                for y in (0, 1)
            )
            for stake in stakes
        ]
    )
    assert log_wealth(counts, 0.5, 0.1) == pytest.approx(math.log(wealth))
    assert log_wealth(counts, 800.0, 0.1) == 0.0
