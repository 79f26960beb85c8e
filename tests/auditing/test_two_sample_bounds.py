"""Bounds from two samples have the stated coverage."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest

from balaclava.auditing.two_sample_bounds import best_threshold, epsilon_lower, log_wealth


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
