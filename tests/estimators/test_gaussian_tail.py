"""Tail bounds of sums with Gaussian noise."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import optimize

from balaclava.estimators.gaussian_tail import gaussian_kl, gaussian_tail


@pytest.mark.oracle
def test_the_rate_is_the_best_exponent() -> None:
    rng = np.random.default_rng(1)
    for _ in range(200):
        n, draws, q = int(rng.integers(1, 2_000)), int(rng.integers(1, 10)), rng.uniform(0.01, 1.0)
        x, variance = q - rng.uniform(0.0, 1.5), rng.uniform(0.1, 500.0)
        total = draws * variance

        def less(s: float, n: int = n, q: float = q, x: float = x, total: float = total) -> float:
            return s * n * x + n * math.log(1.0 - q + q * math.exp(-s)) + total * s * s / 2.0

        most = n * (q - x) / total
        best = optimize.minimize_scalar(less, bounds=(0.0, most), method="bounded")
        rate = gaussian_kl(n, x, q, math.sqrt(variance), draws)
        assert rate == pytest.approx(-best.fun, rel=1e-3, abs=1e-6)


@pytest.mark.statistical
@pytest.mark.parametrize("draws", [1, 4])
def test_the_tail_is_a_bound_and_nearer_than_the_rate(draws: int) -> None:
    """Two million sums; a bound that is right fails with probability below 1e-6."""
    rng, n, q, deviation, games = np.random.default_rng(2), 50, 0.4, 3.0, 2_000_000
    sums = rng.binomial(n, q, games) + rng.normal(0.0, deviation * math.sqrt(draws), games)
    for x in (0.39, 0.3, 0.2, 0.1):
        share = float(np.mean(sums <= n * x))
        above = share + 5.0 * math.sqrt(share / games)
        nats = gaussian_tail(n, x, q, deviation, draws)
        assert gaussian_kl(n, x, q, deviation, draws) < nats
        assert math.exp(-nats) >= share - (above - share)
        assert math.exp(-nats) < 4.0 * above


def test_limits_and_order() -> None:
    assert gaussian_kl(10, 0.5, 0.5, 1.0, 1) == gaussian_tail(10, 0.6, 0.5, 1.0, 1) == 0.0
    assert gaussian_kl(100, 0.0, 1.0, 1.0, 1) == pytest.approx(100**2 / 2, rel=1e-3)
    for tail in (gaussian_kl, gaussian_tail):
        by_x = [tail(100, x, 0.7, 5.0, 2) for x in np.linspace(-0.5, 0.69, 50)]
        by_q = [tail(100, 0.2, q, 5.0, 2) for q in np.linspace(0.21, 1.0, 50)]
        assert by_x == sorted(by_x, reverse=True)
        assert by_q == sorted(by_q)
        less_noise = [tail(100, 0.3, 0.7, deviation, 2) for deviation in (10.0, 1.0, 1e-3)]
        assert less_noise == sorted(less_noise)
    kl = 0.3 * math.log(0.3 / 0.7) + 0.7 * math.log(0.7 / 0.3)
    assert gaussian_kl(100, 0.3, 0.7, 1e-6, 1) == pytest.approx(100 * kl, rel=1e-4)
