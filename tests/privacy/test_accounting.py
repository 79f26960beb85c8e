"""Closed forms against goldens, brute force and limits; dp-accounting against closed forms."""

from __future__ import annotations

import itertools
import math

import mpmath
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import special

from balaclava.errors import ParameterError
from balaclava.privacy.accounting import (
    advanced_epsilon,
    gaussian_delta,
    gaussian_epsilon,
    group_delta,
    interval_epsilon,
    least_delta,
    optimal_delta,
    optimal_epsilon,
    smallest_interval,
    spare_delta,
    zcdp_to_approx_dp,
    zeta,
)


def brute_force_delta(epsilon: float, delta: float, n: int, target: float) -> float:
    """The hockey-stick divergence of n worst-case mechanisms, output by output."""
    true = math.exp(epsilon) / (1 + math.exp(epsilon))
    one = {  # output: its probability under the one neighbour, and under the other
        "true": ((1 - delta) * true, (1 - delta) * (1 - true)),
        "false": ((1 - delta) * (1 - true), (1 - delta) * true),
        "all told, of the one": (delta, 0.0),
        "all told, of the other": (0.0, delta),
    }
    total = 0.0
    for outputs in itertools.product(one.values(), repeat=n):
        p = math.prod(pair[0] for pair in outputs)
        q = math.prod(pair[1] for pair in outputs)
        total += max(p - math.exp(target) * q, 0.0)
    return total


def theorem_3_3(epsilon: float, delta: float, n: int) -> list[tuple[float, float]]:
    """The (epsilon, delta) pairs as Kairouz, Oh and Viswanath print them."""
    pairs = []
    for i in range(n // 2 + 1):
        inner = sum(
            math.comb(n, k) * (math.exp((n - k) * epsilon) - math.exp((n - 2 * i + k) * epsilon))
            for k in range(i)
        )
        inner /= (1 + math.exp(epsilon)) ** n
        pairs.append(((n - 2 * i) * epsilon, 1 - (1 - delta) ** n * (1 - inner)))
    return pairs


@pytest.mark.parametrize("epsilon", [0.01, 0.3, 1.0, 4.0])
@pytest.mark.parametrize("delta", [0.0, 1e-3, 0.1])
@pytest.mark.parametrize("n", [1, 2, 5])
def test_optimal_composition_is_brute_force(epsilon: float, delta: float, n: int) -> None:
    for target in np.linspace(0, n * epsilon, 7):
        exact = brute_force_delta(epsilon, delta, n, target)
        assert optimal_delta(epsilon, delta, n, target) == pytest.approx(
            exact, rel=1e-12, abs=1e-13
        )


@pytest.mark.parametrize(
    ("epsilon", "delta", "n"), [(0.2, 0.0, 20), (1.0, 1e-4, 11), (0.05, 0.0, 40)]
)
def test_optimal_composition_is_theorem_3_3(epsilon: float, delta: float, n: int) -> None:
    for e, d in theorem_3_3(epsilon, delta, n):
        assert optimal_delta(epsilon, delta, n, e) == pytest.approx(d, rel=1e-9, abs=1e-15)
        if d > least_delta(delta, n) + 1e-9 and e > 0:
            assert optimal_epsilon(epsilon, delta, n, d) == pytest.approx(e, rel=1e-7)


@settings(deadline=None, max_examples=200, derandomize=True)
@given(
    st.floats(-6, math.log10(50)),
    st.floats(-12, -0.1),
    st.sampled_from([1, 2, 3, 10, 999, 10**4, 10**6]),
    st.floats(0, 0.9),
)
def test_optimal_epsilon_inverts_optimal_delta(
    log_epsilon: float, log_target: float, n: int, share: float
) -> None:
    epsilon, target = 10**log_epsilon, 10**log_target
    delta = share * target / n
    found = optimal_epsilon(epsilon, delta, n, target)
    assert 0 <= found <= n * epsilon
    reached = optimal_delta(epsilon, delta, n, found)
    assert reached <= target * (1 + 1e-7) + 1e-15
    if found > 0:  # and no smaller epsilon would do
        assert optimal_delta(epsilon, delta, n, found * (1 - 1e-5)) > target * (1 - 1e-6)


@pytest.mark.parametrize("epsilon", [1e-6, 1e-3, 1.0, 50.0])
def test_optimal_composition_of_a_million(epsilon: float) -> None:
    found = optimal_epsilon(epsilon, 0.0, 10**6, 1e-6)
    assert math.isfinite(found)
    assert found <= min(10**6 * epsilon, advanced_epsilon(epsilon, 10**6, 1e-6))
    if epsilon <= 1e-3:  # a sum of so many small losses is Gaussian
        assert found == pytest.approx(gaussian_epsilon(epsilon * 1e3, 1e-6), rel=2e-3)


def test_limits_of_optimal_composition() -> None:
    assert optimal_epsilon(0.7, 0.0, 9, 0.0) == pytest.approx(6.3, rel=1e-15)  # pure: n epsilon
    assert optimal_epsilon(0.7, 1e-3, 1, 1e-3) == pytest.approx(0.7, rel=1e-15)
    assert optimal_epsilon(0.0, 1e-3, 10, 0.01) == 0  # a mechanism may have epsilon = 0
    assert optimal_epsilon(0.7, 0.1, 10, 0.5) == math.inf  # 1 - 0.9^10 = 0.65
    assert optimal_epsilon(0.7, 0.1, 10, least_delta(0.1, 10)) == pytest.approx(7)
    assert optimal_epsilon(1.0, 0.0, 1, 0.47) == 0  # above (e - 1)/(e + 1) nothing is left


def test_advanced_composition() -> None:
    expected = 0.1 * math.sqrt(2 * 1000 * math.log(1e6)) + 100 * (math.exp(0.1) - 1)
    assert advanced_epsilon(0.1, 1000, 1e-6) == pytest.approx(expected)
    assert advanced_epsilon(1e4, 2, 1e-6) == math.inf


@pytest.mark.parametrize("shift", [1e-6, 0.1, 1.0, 30.0])
@pytest.mark.parametrize("delta", [1e-30, 1e-9, 1e-2])
def test_gaussian_epsilon_inverts_gaussian_delta(shift: float, delta: float) -> None:
    epsilon = gaussian_epsilon(shift, delta)
    if epsilon == 0:
        assert gaussian_delta(shift, 0.0) <= delta
    else:
        assert gaussian_delta(shift, epsilon) == pytest.approx(delta, rel=1e-6)


def test_gaussian_delta_is_the_integral() -> None:
    x = np.linspace(-12, 13, 2_000_001)
    p, q = (np.exp(-((x - centre) ** 2) / 2) / math.sqrt(2 * math.pi) for centre in (1.0, 0.0))
    integral = float(np.sum(np.maximum(p - math.exp(0.8) * q, 0)) * (x[1] - x[0]))
    assert gaussian_delta(1.0, 0.8) == pytest.approx(integral, rel=1e-6)


def test_zcdp() -> None:
    for rho, delta in [(1e-6, 1e-9), (0.5, 1e-5), (50.0, 1e-2)]:
        epsilon = zcdp_to_approx_dp(rho, delta)
        assert epsilon <= rho + 2 * math.sqrt(rho * math.log(1 / delta))
        assert epsilon >= gaussian_epsilon(math.sqrt(2 * rho), delta)
    assert zcdp_to_approx_dp(0.0, 1e-5) == 0
    with pytest.raises(ParameterError, match="delta"):
        zcdp_to_approx_dp(0.5, 0.0)
    with pytest.raises(ParameterError, match="rho"):
        zcdp_to_approx_dp(-1.0, 0.1)


@pytest.mark.parametrize(
    ("v", "interval", "expected", "digits"),
    [
        (1.1, 1, 21.9, 1),
        (1.1, 10, 3.65, 2),
        (1.1, 66, 1.09, 2),
        (1.1, 100, 0.85, 2),
        (1.5, 10, 0.96, 2),
    ],
)
def test_interval_epsilon_goldens(v: float, interval: int, expected: float, digits: int) -> None:
    assert round(interval_epsilon(interval, 0.01, v), digits) == expected


def test_zeta_is_what_others_find() -> None:
    s = np.concatenate([1 + np.geomspace(1e-9, 1, 50), np.linspace(1.01, 41, 200)])
    np.testing.assert_allclose(zeta(s), special.zeta(s), rtol=3e-15)
    exact = [float(mpmath.zeta(mpmath.mpf(x))) for x in s.tolist()]
    np.testing.assert_allclose(zeta(s), exact, rtol=3e-15)


def test_interval_epsilon_is_the_sum() -> None:
    # Summed by hand where the series is quick enough, its tail between two integrals.
    j = np.arange(1, 10**6)
    epsilons = (5.0 * j) ** -0.75
    cut = float(np.sum(epsilons * np.expm1(epsilons)))
    squares = float(np.sum(epsilons**2))
    tail = 5.0**-1.5 * 2 * 10 ** (-6 * 0.5)  # of the squares; the first sum has nearly the same
    scale = 2 * math.log(100)
    low = cut + math.sqrt(scale * squares) + 0.999 * tail
    high = cut + 1.001 * tail + math.sqrt(scale * (squares + 1.001 * tail))
    assert low < interval_epsilon(5, 0.01, 1.5) < high


@pytest.mark.parametrize("epsilon", [1e-3, 0.1, 1.0, 3.0, 100.0])
@pytest.mark.parametrize("v", [1.0001, 1.1, 1.5])
def test_smallest_interval_is_smallest(epsilon: float, v: float) -> None:
    interval = smallest_interval(epsilon, 0.01, v)
    assert interval_epsilon(interval, 0.01, v) <= epsilon
    if interval > 1:
        assert interval_epsilon(interval - 1, 0.01, v) > epsilon


def test_bad_intervals() -> None:
    for arguments in [
        (0, 0.01, 1.1),
        (1.5, 0.01, 1.1),
        (5, 0.0, 1.1),
        (5, 1.0, 1.1),
        (5, 0.01, 1.0),
    ]:
        with pytest.raises(ParameterError, match="not allowed"):
            interval_epsilon(*arguments)
    for epsilon in (0.0, -1.0, math.nan):
        with pytest.raises(ParameterError, match="epsilon"):
            smallest_interval(epsilon, 0.01, 1.1)


@pytest.mark.parametrize("epsilon", [0.0, 1e-9, 0.3, 2.0])
@pytest.mark.parametrize("rewards", [1, 2, 5])
def test_the_delta_of_a_group_is_the_sum(epsilon: float, rewards: int) -> None:
    total = 1e-3 * sum(math.exp(i * epsilon) for i in range(rewards))
    assert group_delta(epsilon, 1e-3, rewards) == pytest.approx(min(total, 1.0))
    assert group_delta(epsilon, 0.0, rewards) == 0.0
    assert group_delta(epsilon, 0.9, rewards) == pytest.approx(1.0 if rewards > 1 else 0.9)
    assert group_delta(800.0, 1e-9, rewards) == (1e-9 if rewards == 1 else 1.0)


def test_the_deltas_that_are_lost_and_left() -> None:
    assert least_delta(0.1, 10) == pytest.approx(1 - 0.9**10)
    assert spare_delta(0.01, 5, 0.2) == pytest.approx(1 - 0.8 / 0.99**5)
    assert spare_delta(0.1, 10, 0.2) == pytest.approx(1 - 0.8 / 0.9**10)
    assert spare_delta(0.1, 10, 0.2) < 0
    assert advanced_epsilon(0.1, 10, 0.0) == advanced_epsilon(701.0, 1, 0.1) == math.inf
    assert advanced_epsilon(700.0, 1, 0.1) < math.inf


@pytest.mark.parametrize("rho", [1e-4, 0.02, 0.5, 8.0])
@pytest.mark.parametrize("delta", [1e-9, 1e-3, 0.3])
def test_zcdp_is_the_least_over_all_orders(rho: float, delta: float) -> None:
    def epsilon(log_b: float) -> float:
        a = 1 + math.exp(log_b)
        return a * rho - math.log(a * delta) / (a - 1) + math.log(1 - 1 / a)

    best = min(epsilon(log_b) for log_b in np.linspace(-8, 14, 4001))
    assert zcdp_to_approx_dp(rho, delta) == pytest.approx(max(best, 0.0), rel=1e-4, abs=1e-6)


def test_gaussian_epsilon_at_its_ends() -> None:
    assert gaussian_epsilon(1.0, 0.0) == math.inf
    shift = 0.7
    edge = gaussian_delta(shift, 0.0)
    assert edge == pytest.approx(2 * special.ndtr(shift / 2) - 1)
    assert gaussian_epsilon(shift, edge) == 0.0
    assert gaussian_epsilon(shift, edge * (1 - 1e-6)) > 0.0
    for shift, delta in ((0.7, 1e-12), (0.7, 1e-3), (3.0, 0.6)):
        found = gaussian_epsilon(shift, delta)
        assert gaussian_delta(shift, found) == pytest.approx(delta, rel=1e-9)


@pytest.mark.parametrize(("epsilon", "n"), [(0.4, 6), (1.5, 7)])
def test_optimal_epsilon_inverts_brute_force(epsilon: float, n: int) -> None:
    for target in (1e-9, 1e-4, 0.02, 0.2):
        found = optimal_epsilon(epsilon, 0.0, n, target)
        assert brute_force_delta(epsilon, 0.0, n, found) == pytest.approx(target, rel=1e-9)
    lost = least_delta(1e-3, n)
    found = optimal_epsilon(epsilon, 1e-3, n, lost + 0.01)
    assert optimal_delta(epsilon, 1e-3, n, found) == pytest.approx(lost + 0.01, rel=1e-9)


@pytest.mark.parametrize("interval", [1, 2, 64, 77])
def test_the_smallest_interval_reaches_an_epsilon_exactly(interval: int) -> None:
    assert smallest_interval(interval_epsilon(interval, 0.01, 1.1), 0.01, 1.1) == interval
