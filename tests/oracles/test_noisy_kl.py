"""The rate of a released sum, against a search on a grid and against drawn sums."""

from __future__ import annotations

import math

import mpmath
import numpy as np
import pytest

from balaclava.estimators.kl import private_kl
from balaclava.estimators.noisy_kl import noisy_kl, noisy_surprisal, noisy_tail, tail_nats


def plain_rate(n: float, x: float, q: float, epsilon: float, draws: int) -> float:
    """min over z of n kl(z, q) + I_m(epsilon n (z - x)), on a fine grid."""
    z = np.linspace(max(x, 0.0), q, 200_001)[1:-1]
    y = epsilon * n * (z - x)
    s = (np.sqrt(draws**2 + y**2) - draws) / y
    noise = s * y + (draws * np.log1p(-s * s) if draws else 0.0)
    chance = z * np.log(z / q) + (1.0 - z) * np.log((1.0 - z) / (1.0 - q))
    return float((n * chance + noise).min())


def test_the_rate_is_the_least_that_rewards_and_noise_can_share():
    rng = np.random.default_rng(5)
    for _ in range(300):
        n, epsilon = int(10 ** rng.uniform(0.5, 4)), 10 ** rng.uniform(-1.5, 0.7)
        q, draws = rng.uniform(0.05, 0.98), int(rng.integers(1, 12))
        x = q - 10 ** rng.uniform(-2.5, 0)
        expected = plain_rate(n, x, q, epsilon, draws)
        assert noisy_kl(n, x, q, epsilon, draws) == pytest.approx(expected, rel=1e-4, abs=1e-6)


@pytest.mark.parametrize("epsilon", [0.1, 1.0, 5.0])
def test_without_further_draws_it_is_the_rate_of_the_paper(epsilon):
    for x, q in [(0.0, 0.5), (0.2, 0.7), (0.65, 0.7), (0.9, 0.95), (0.3, 1.0)]:
        expected = 40 * private_kl(x, q, epsilon)
        assert noisy_kl(40, x, q, epsilon, 0) == pytest.approx(expected, rel=1e-3)


def test_ends():
    assert noisy_kl(10, 0.7, 0.7, 1.0, 3) == noisy_kl(10, 0.8, 0.7, 1.0, 3) == 0.0
    y = 10 * (1.0 + 0.5)  # a mean below 0 of an arm that always pays 1: noise alone
    s = (math.sqrt(4 + y * y) - 2) / y
    assert noisy_kl(10, -0.5, 1.0, 1.0, 2) == pytest.approx(s * y + 2 * math.log(1 - s * s))


def test_drawn_sums_are_no_likelier_than_the_rate_says():
    """10^6 sums of 40 rewards and 3 draws; the share is below the bound by its own spread."""
    rng = np.random.default_rng(7)
    n, q, epsilon, draws = 40, 0.6, 0.5, 3
    sums = rng.binomial(n, q, 10**6) + rng.laplace(0, 1 / epsilon, (draws, 10**6)).sum(axis=0)
    for x in (0.4, 0.2, 0.0, -0.2):
        share = (sums <= n * x).mean()
        bound = math.exp(-noisy_kl(n, x, q, epsilon, draws))
        assert share <= bound
        assert share >= bound / 30  # and not by far


@pytest.mark.parametrize(("n", "q", "epsilon", "draws"), [(40, 0.75, 1.0, 1), (400, 0.7, 0.1, 3)])
def test_the_surprise_is_what_drawn_sums_show(n, q, epsilon, draws):
    """10^6 sums; at a share of 1e-4 its spread is 0.1 nats, a third of what is allowed."""
    rng = np.random.default_rng(8)
    sums = rng.binomial(n, q, 10**6) + rng.laplace(0, 1 / epsilon, (draws, 10**6)).sum(axis=0)
    for share in (0.3, 0.01, 1e-3, 1e-4):
        x = np.quantile(sums, share) / n
        expected = -math.log(2 * (sums <= n * x).mean())
        assert noisy_surprisal(n, x, q, epsilon, draws) == pytest.approx(expected, abs=0.3)
    assert noisy_surprisal(n, q, q, epsilon, draws) == 0.0


@pytest.mark.parametrize("law", ["coins", "halves", "constant"])
@pytest.mark.parametrize(
    ("n", "q", "epsilon", "draws"),
    [(40, 0.75, 1.0, 1), (400, 0.7, 0.1, 3), (100, 0.5, 0.5, 8), (30, 0.9, 5.0, 5)],
)
def test_drawn_sums_are_no_likelier_than_the_proved_tail(n, q, epsilon, draws, law):
    """200,000 sums. A share is beyond by five standard errors once in 10^6 times."""
    rng, runs = np.random.default_rng(8), 200_000
    rewards = {
        "coins": lambda: rng.binomial(n, q, runs),
        "halves": lambda: 0.5 * rng.binomial(2 * n, q, runs),  # two coins in each reward
        "constant": lambda: n * q,
    }[law]()
    sums = rewards + rng.laplace(0, 1 / epsilon, (draws, runs)).sum(axis=0)
    for quantile in (0.4, 0.1, 0.01, 1e-3):
        x = np.quantile(sums, quantile) / n
        share = (sums <= n * x).mean()
        bound = math.exp(-noisy_tail(n, x, q, epsilon, draws))
        assert share - 5 * math.sqrt(share / runs) <= bound
        if law == "coins":
            assert share > bound / 6  # close enough for a bound to be wrong


@pytest.mark.parametrize("draws", [2, 3, 4, 7, 20])
def test_the_density_of_tilted_draws_is_as_low_as_the_proof_says(draws):
    """The convolution of tilted draws on a fine grid, in units of 1/epsilon."""
    step = 0.01
    for s in (0.05, 0.4, 0.8):
        v = np.arange(-60 / (1 - s), 60 / (1 - s), step)
        one = 0.5 * (1 - s * s) * np.exp(-np.abs(v) - s * v)
        power = np.fft.rfft(one * step, n=draws * v.size) ** draws
        largest = np.fft.irfft(power, n=draws * v.size).max() / step
        ratio = s * math.sqrt(2 * (1 + s * s) * math.pi * (2 * draws - 3)) / (1 - s * s)
        assert largest <= s / ratio * 1.001
        assert largest > 0.6 * s / ratio


def test_the_nats_of_the_tail_rise_with_the_tilt():
    for draws in (1, 2, 5, 40):
        nats = [tail_nats(s, draws) for s in np.linspace(1e-6, 1 - 1e-6, 500)]
        assert (np.diff(nats) > 0).all()
        assert nats[0] < 1e-4


def long_rate(n: float, x: float, q: float, epsilon: float, draws: int) -> float:
    """The supremum over s in 40 digits: where its slope is 0, by bisection."""
    with mpmath.workdps(40):
        n, x, q, epsilon = (mpmath.mpf(number) for number in (n, x, q, epsilon))
        low, high = mpmath.mpf(0), mpmath.mpf(1)
        for _ in range(120):
            s = (low + high) / 2
            tilted = q * mpmath.exp(-epsilon * s)
            slope = epsilon * n * (tilted / (1 - q + tilted) - x) - 2 * draws * s / (1 - s * s)
            low, high = (s, high) if slope > 0 else (low, s)
        rewards = mpmath.log(1 - q + q * mpmath.exp(-epsilon * s))
        return float(-s * epsilon * n * x - n * rewards + draws * mpmath.log(1 - s * s))


@pytest.mark.parametrize(
    ("n", "x", "q", "epsilon", "draws"),
    [
        (300, 0.5, 0.7, 0.1, 4),
        (956_999, 0.99993155, 0.99997242, 168.4, 15),
        (1, -0.006, 0.9902, 29.5, 33),
        (10, 0.2, 1.0, 800.0, 2),
        (40, -3.0, 0.5, 1e-6, 1),
        (1e12, 0.2, 0.9, 1e9, 50),
        (5, 0.5, 1 - 2**-53, 5000.0, 3),
    ],
)
def test_at_every_epsilon(n, x, q, epsilon, draws):
    rate = noisy_kl(n, x, q, epsilon, draws)
    assert rate == pytest.approx(long_rate(n, x, q, epsilon, draws), rel=1e-5, abs=1e-5)
    assert rate <= noisy_surprisal(n, x, q, epsilon, draws) < math.inf
    assert rate <= noisy_tail(n, x, q, epsilon, draws) < math.inf
