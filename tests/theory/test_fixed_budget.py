"""The chance of error of halving: Chernoff's bound against exact laws, and the union."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from balaclava.theory.fixed_budget import halving_error, overtake_chance


@pytest.mark.parametrize("n", [5, 50, 400])
@pytest.mark.parametrize(("worse", "better"), [(0.0, 0.5), (0.5, 0.6), (0.9, 0.99), (0.2, 1.0)])
def test_the_bound_is_above_the_exact_chance_without_noise(n, worse, better):
    """And within the factor that Chernoff's bound can lose: a few standard deviations."""
    values = np.arange(n + 1)
    exact = float(stats.binom.pmf(values, n, worse) @ stats.binom.cdf(values, n, better))
    bound = overtake_chance(worse, better, n, 1, 1e9)
    assert exact <= bound <= max(exact * 12 * np.sqrt(n), 1e-12)


@pytest.mark.statistical
def test_the_bound_holds_with_noise():
    """200,000 draws; the bound is at least 1.5 times the chance, far beyond sampling error."""
    rng = np.random.default_rng(1)
    for n, draws, epsilon in ((100, 1, 0.5), (400, 3, 0.1), (20, 2, 2.0)):
        sums = [rng.binomial(n, mean, 200_000).astype(float) for mean in (0.4, 0.6)]
        for each in sums:
            each += rng.laplace(0.0, 1.0 / epsilon, (draws, 200_000)).sum(axis=0)
        chance = (sums[0] >= sums[1]).mean()
        assert 1.2 * chance < overtake_chance(0.4, 0.6, n, draws, epsilon) < 12 * chance


def test_the_union_leaves_out_the_arms_that_may_stay():
    def chance(mean: float, pulls: int, stage: int) -> float:
        return overtake_chance(mean, 0.9, pulls, stage, 1.0)

    two = halving_error([0.4, 0.9], [60], [1], 1.0)
    assert two == pytest.approx(chance(0.4, 60, 1))
    four = halving_error([0.9, 0.2, 0.7, 0.4], [60, 150], [2, 1], 1.0)
    near, middle, far = (chance(mean, 60, 1) for mean in (0.7, 0.4, 0.2))
    first = min(middle + far, (near + middle + far) / 2)
    last = sum(chance(mean, 150, 2) for mean in (0.7, 0.4, 0.2))
    assert four == pytest.approx(first + last)
    assert halving_error([0.5, 0.5], [10], [1], 1.0) == 1.0
