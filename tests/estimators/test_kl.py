"""Divergences of Bernoulli laws, with and without the noise of privacy."""

from __future__ import annotations

import math

import mpmath
import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from balaclava.estimators.kl import kl, kl_exceeds, kl_upper, private_kl, private_kl_upper

unit = st.floats(0.0, 1.0)
levels = st.floats(1e-12, 100.0)


def exact_upper(p: float, level: float) -> float:
    """The root of kl(p, q) = level in 50 digits, by bisection in v = log((1-p)/(1-q))."""
    with mpmath.workdps(50):
        P, low, high = mpmath.mpf(p), mpmath.mpf(0), mpmath.mpf(2000)
        high = (level - P * mpmath.log(P)) / (1 - P) + 1
        for _ in range(160):
            v = (low + high) / 2
            q = 1 - (1 - P) * mpmath.exp(-v)
            divergence = (1 - P) * v + P * mpmath.log(P / q)
            low, high = (v, high) if divergence < level else (low, v)
        return float(1 - (1 - P) * mpmath.exp(-low))


@pytest.mark.parametrize("level", [1e-14, 1e-9, 1e-4, 0.03, 0.5, 3.0, 40.0])
@pytest.mark.parametrize("p", [1e-12, 1e-4, 0.1, 0.25, 0.5, 0.8, 0.999, 1 - 1e-9])
def test_kl_upper_solves_to_high_precision(p: float, level: float) -> None:
    assert kl_upper(p, level) == pytest.approx(exact_upper(p, level), rel=0, abs=1e-12)


def test_kl_upper_at_the_ends() -> None:
    assert kl_upper(0.0, 0.7) == pytest.approx(1 - math.exp(-0.7), abs=1e-15)
    assert kl_upper(1.0, 0.7) == 1.0
    assert kl_upper(0.3, 0.0) == 0.3
    assert kl_upper(0.3, 5e-324) == 0.3
    assert kl_upper(5e-324, 0.7) == pytest.approx(1 - math.exp(-0.7), abs=1e-15)
    assert kl_upper(0.5, 1e6) == 1.0


def test_kl_values() -> None:
    assert kl(0.25, 0.75) == pytest.approx(0.5 * math.log(3), abs=1e-15)
    assert kl(0.4, 0.4) == kl(0.0, 0.0) == kl(1.0, 1.0) == 0.0
    assert kl(0.0, 0.5) == kl(1.0, 0.5) == pytest.approx(math.log(2), abs=1e-15)
    assert kl(0.5, 0.0) == kl(0.5, 1.0) == kl(0.0, 1.0) == kl(1.0, 0.0) == math.inf


@given(p=unit, q=unit)
@example(p=1.0, q=1.0 - 2.0**-53)  # where 1 - m would round to 0
def test_kl_exceeds_agrees_with_kl(p: float, q: float) -> None:
    divergence = kl(p, q)
    assert not kl_exceeds(p, q, divergence * (1 + 1e-9) + 1e-12)
    if 0 < divergence < math.inf:
        assert kl_exceeds(p, q, divergence * (1 - 1e-9) - 1e-12)


@pytest.mark.parametrize(
    ("epsilon", "value"),
    [
        (0.1, 0.049046982523044465),
        (0.5, 0.22470217488719435),
        (1.0, 0.39262598049121145),
        (5.0, 0.5493061443340548),
    ],
)
def test_private_kl_golden(epsilon: float, value: float) -> None:
    assert private_kl(0.25, 0.75, epsilon) == pytest.approx(value, rel=1e-14)
    assert private_kl(0.75, 0.25, epsilon) == pytest.approx(value, rel=1e-14)


@pytest.mark.parametrize("x", [0.0, 0.02, 0.4, 0.9, 1.0])
@pytest.mark.parametrize("y", [0.01, 0.3, 0.7, 0.95])
@pytest.mark.parametrize("epsilon", [0.05, 1.0, 3.0, 1000.0])
def test_private_kl_is_the_minimum(x: float, y: float, epsilon: float) -> None:
    grid = np.linspace(min(x, y), max(x, y), 20_001)
    least = min(epsilon * abs(float(z) - x) + kl(float(z), y) for z in grid)
    # The grid misses the minimiser by at most half a step, where kl is flat to second order
    # unless z is next to 0 or 1.
    assert private_kl(x, y, epsilon) <= least + 1e-12
    assert private_kl(x, y, epsilon) == pytest.approx(least, abs=1e-5)


def test_private_kl_limits() -> None:
    assert private_kl(0.3, 1.0, 0.5) == private_kl(0.7, 0.0, 0.5) == pytest.approx(0.35)
    assert private_kl(0.3, 0.3, 0.5) == private_kl(0.0, 0.0, 2.0) == private_kl(1.0, 1.0, 2.0) == 0
    assert private_kl(0.3, 0.6, 1e4) == kl(0.3, 0.6)


@given(x=unit, level=levels, epsilon=st.floats(1e-3, 800.0))
def test_private_kl_upper_inverts(x: float, level: float, epsilon: float) -> None:
    y = private_kl_upper(x, level, epsilon)
    assert x <= y <= 1
    assert private_kl(x, max(y - 1e-9, x), epsilon) <= level * (1 + 1e-6)
    if y + 1e-9 < 1:
        assert private_kl(x, y + 1e-9, epsilon) >= level * (1 - 1e-6)


def test_private_kl_upper_limits() -> None:
    assert private_kl_upper(0.3, 0.2, 1e4) == kl_upper(0.3, 0.2)
    assert private_kl_upper(0.3, 0.35, 0.5) == 1.0  # y = 1 costs epsilon (1 - x)
    assert private_kl_upper(1.0, 0.1, 0.5) == 1.0
    closed = (1 - math.exp(-0.2)) / (1 - math.exp(-0.5))
    assert private_kl_upper(0.0, 0.2, 0.5) == pytest.approx(closed, rel=1e-14)
