"""Exact tests of noisy sums: laws against closed forms, levels and limits against simulation."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats

from balaclava.theory.confidence_sequences import REWARD_GRID, mean_interval
from balaclava.theory.fixed_sample import (
    MOST_LOOKS,
    beats_rival,
    best_of_sample,
    boundary,
    chance_of_score,
    exact_difference_interval,
    exact_mean_interval,
    is_above,
    lead_score,
    look_share,
    mean_tail,
    score_places,
)


def noise_tail(x: np.ndarray, draws: int) -> np.ndarray:
    """P(the sum of one or two Laplace draws of scale 1 is at least x)."""
    size = np.abs(x)
    above = 0.5 * np.exp(-size) * (1.0 if draws == 1 else 1.0 + size / 2)
    return np.where(x >= 0, above, 1.0 - above)


@pytest.mark.oracle
@pytest.mark.parametrize("draws", [1, 2])
@pytest.mark.parametrize("epsilon", [0.05, 1.0, 10.0])
@pytest.mark.parametrize(("n", "p"), [(5, 0.5), (300, 0.03), (300, 0.62), (20_000, 0.999)])
def test_tails_are_those_of_the_exact_law_and_never_below(n, p, epsilon, draws):
    sums = np.arange(n + 1)
    chances = stats.binom.pmf(sums, n, p)
    deviation = math.sqrt(n * p * (1 - p) + 2 * draws / epsilon**2)
    for away in (-1.0, 0.3, 1.5, 3.0):
        total = n * p + away * deviation
        exact = float(chances @ noise_tail(epsilon * (total - sums), draws))
        bound = mean_tail(total, n, p, draws, epsilon, 0.01)
        assert exact <= bound <= 1.03 * exact + 0.0002


def test_discrete_noise_is_below_the_continuous_noise_of_the_law():
    """The inequalities of the proof, for the law that agents release."""
    for scale in (0.5, 3.0, 40.0):  # in steps of the grid
        r = math.exp(-1 / scale)
        for j in range(1, 200):
            assert r**j / (1 + r) <= 0.5 * r ** (j - 1) * (1 + 1e-12)
        for j in range(-200, 1):
            assert r ** (1 - j) / (1 + r) >= 0.5 * r ** (1 - j) * (1 - 1e-12)


def arms(*rows: tuple[float, float, float]) -> np.ndarray:
    return np.array(rows, float)


def test_the_boundary_is_where_the_score_is_and_never_rises():
    worse, better = arms((40, 0, 2), (55, 0, 2))
    means = np.linspace(1.4, -0.4, 1_801)
    for score in (0.5, 2.0, 4.0):
        least = boundary(worse, better, 0.7, score, means)
        assert (np.diff(least) <= 0).all()
        wider = boundary(worse, better, 0.7, score - 0.1, means)
        assert (wider <= least).all()  # the sets are nested
        scores = [
            lead_score(np.array([40, v, 2]), np.array([55, u, 2]), 0.7)
            for v, u in zip(means, least, strict=True)
        ]
        assert max(scores) <= score + 1e-9  # every pair with the score is in the set
        assert np.isclose(scores, score).mean() > 0.8


@pytest.mark.statistical
@pytest.mark.parametrize(("p", "epsilon"), [(0.6, 1.0), (0.02, 1.0), (0.98, 5.0), (0.5, 0.05)])
def test_the_chance_of_a_score_is_that_of_simulation(p, epsilon):
    """10^5 draws; a bound that is too low by 5 per cent would be seen. Error rate 1 in 10,000."""
    rng, n, score = np.random.default_rng(3), np.array([280, 260, 300]), 2.2
    low, step, size = p - 0.6 - 40 / epsilon / 260, 2e-4 * (1 + 10 / epsilon / 260), 0
    size = math.ceil(2 * (p - low) / step)
    released = np.column_stack([n, np.full(3, p), np.ones(3)])
    places = score_places(released, 0, epsilon, score, (low, step, size))
    bound = chance_of_score(released, 0, places, epsilon, 12.0, (p, p), (low, step, size))
    draws = 100_000
    means = (rng.binomial(n, p, (draws, 3)) + rng.laplace(0, 1 / epsilon, (draws, 3))) / n
    reached = np.zeros(draws, bool)
    for arm in (1, 2):
        c = boundary(released[0], released[arm], epsilon, score, -np.sort(-means[:, 0]))
        reached[np.argsort(-means[:, 0])] |= means[np.argsort(-means[:, 0]), arm] >= c
    share, error = reached.mean(), 4 * math.sqrt(bound / draws)
    assert share - error <= bound <= 1.06 * share + error


@pytest.mark.statistical
@pytest.mark.parametrize(
    ("p", "epsilon", "n"),
    [
        (0.5, 0.05, 1_000),
        pytest.param(0.01, 0.05, 1_000, marks=pytest.mark.slow),
        pytest.param(0.97, 1.0, 150, marks=pytest.mark.slow),
        pytest.param(0.02, 1.0, 150, marks=pytest.mark.slow),
        pytest.param(0.5, 10.0, 60, marks=pytest.mark.slow),
    ],
)
def test_a_wrong_arm_is_named_as_seldom_as_promised(p, epsilon, n):
    """Two arms of one mean: each is named with chance 0.05 at most. Error rate 1 in 1,000."""
    rng, trials, wrong = np.random.default_rng(5), 400, 0
    for _ in range(trials):
        rewards = rng.binomial(n, [0.95, 0.8])
        sums = rng.binomial(rewards, p) + rng.laplace(0, 1 / epsilon, 2)
        released = np.column_stack([rewards, sums / rewards, np.ones(2)])
        wrong += best_of_sample(released, epsilon, 0.05) == 1
    assert wrong <= stats.binom.ppf(0.999, trials, 0.05)


def test_a_sure_winner_is_named_and_a_leader_within_noise_is_not():
    table = arms((300, 0.55, 1), (290, 0.71, 1), (310, 0.60, 1))
    assert best_of_sample(table, 1.0, 0.05) == 1
    assert best_of_sample(table, 1.0, 1e-4) == -1
    assert best_of_sample(table, 0.02, 0.05) == -1
    assert best_of_sample(arms((300, 0.5, 1), (0, 0.0, 0)), 1.0, 0.05) == -1  # nothing is known
    assert best_of_sample(arms((300, 0.5, 1), (300, 0.5, 1)), 1.0, 0.05) == -1
    # Noise may carry means beyond [0, 1].
    assert best_of_sample(arms((300, 1.2, 1), (300, -0.3, 1)), 1.0, 0.05) == 0
    assert best_of_sample(arms((900_000, 0.55, 5), (900_000, 0.556, 5)), 0.01, 0.05) == 1


def test_more_rivals_make_it_harder_but_less_than_their_number():
    """Against Bonferroni: the chance of any arm is below the sum of the chances."""
    pair = arms((300, 0.60, 1), (300, 0.69, 1))
    many = arms(*[(300, 0.60, 1)] * 3, (300, 0.69, 1))
    levels = np.geomspace(0.005, 0.2, 60)
    first_pair = next(x for x in levels if beats_rival(pair, 1, 0, 1.0, x, True))
    first_many = next(x for x in levels if beats_rival(many, 3, 0, 1.0, x, True))
    assert first_pair < first_many < 3 * first_pair


def test_intervals_are_those_of_clopper_and_pearson_without_noise():
    for n, x, failure in [(1_000, 613, 0.05), (50, 0, 0.01), (50, 50, 0.2), (200, 3, 0.05)]:
        low, high = exact_mean_interval(x / n, n, 1, 1e9, failure)
        least = stats.beta.ppf(failure / 2, x, n - x + 1) if x else 0.0
        most = stats.beta.ppf(1 - failure / 2, x + 1, n - x) if x < n else 1.0
        assert least - 2e-4 - 4 * REWARD_GRID <= low <= least
        assert most <= high <= most + 2e-4 + 4 * REWARD_GRID
    assert exact_mean_interval(0.0, 0, 0, 1.0, 0.05) == (0.0, 1.0)


@pytest.mark.statistical
@pytest.mark.slow
@pytest.mark.parametrize(("p", "epsilon", "draws"), [(0.02, 1.0, 1), (0.6, 0.1, 3)])
def test_intervals_hold(p, epsilon, draws):
    """Error rate 1 in 1,000; and intervals for fixed samples are shorter than for all times."""
    rng, trials, misses = np.random.default_rng(2), 300, 0
    for _ in range(trials):
        noise = rng.laplace(0, 1 / epsilon, draws).sum()
        mean = (rng.binomial(400, p) + noise) / 400
        low, high = exact_mean_interval(mean, 400, draws, epsilon, 0.1)
        misses += not low <= p <= high
    assert misses <= stats.binom.ppf(0.999, trials, 0.1)
    always = mean_interval(mean, 400, draws, 1 / epsilon, 0.1)
    assert high - low < always[1] - always[0]


def test_an_interval_of_a_difference_without_noise_is_close_to_that_of_the_normal_law():
    n, first, second = 2_000, 0.63, 0.55
    low, high = exact_difference_interval((n, first, 1), (n, second, 1), 1e6, 0.05)
    half = 1.96 * math.sqrt((first * (1 - first) + second * (1 - second)) / n)
    assert low == pytest.approx(first - second - half, abs=0.1 * half)
    assert high == pytest.approx(first - second + half, abs=0.1 * half)
    swapped = exact_difference_interval((n, second, 1), (n, first, 1), 1e6, 0.05)
    assert swapped == (-high, -low)
    # Shorter than from the two intervals at the same confidence.
    one, other = (exact_mean_interval(x, n, 1, 1e6, 0.025) for x in (first, second))
    assert high - low < 0.8 * (one[1] - other[0] - one[0] + other[1])


def test_an_interval_of_a_difference_at_the_edges():
    low, high = exact_difference_interval((300, 1.0, 1), (290, 0.0, 1), 10.0, 0.05)
    assert 0.97 < low < 0.99
    assert high == 1.0
    low, high = exact_difference_interval((300, 0.71, 1), (290, 0.6, 1), 0.05, 0.05)
    assert -0.4 < low < 0.0 < 0.4 < high < 0.6


@pytest.mark.statistical
@pytest.mark.slow
def test_intervals_of_differences_hold():
    """Error rate 1 in 1,000. Limits are found by halving; here the truth itself is tested."""
    rng, trials, misses = np.random.default_rng(4), 400, 0
    for _ in range(trials):
        n = rng.binomial(200, [0.9, 0.8])
        means = (rng.binomial(n, [0.3, 0.42]) + rng.laplace(0, 2, 2)) / n
        worse, better = np.column_stack([n, means, np.ones(2)])
        misses += is_above(worse, better, 0.5, 0.12, 0.05)
    assert misses <= stats.binom.ppf(0.999, trials, 0.05)


def test_the_shares_of_all_looks_add_up_to_one():
    for looks in range(1, MOST_LOOKS + 1):
        shares = [look_share(look, looks) for look in range(1, looks + 1)]
        assert math.isclose(sum(shares), 1.0)
        assert shares == sorted(shares)
