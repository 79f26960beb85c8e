"""Exact release: the laws of the released noise, the grid, forks and threads.

The exact samplers cannot be seeded. A law is rejected by mistake once in a million runs
(SIGNIFICANCE), and the planted errors are more than ten standard errors large.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from scipy import stats

from balaclava.errors import PrivacyError
from balaclava.privacy.exact_noise import (
    GRID_BITS,
    bernoulli_exp,
    discrete_laplace,
    grid_step,
    randomized_bit,
    to_grid,
    to_steps,
    to_unit_grid,
    vector_to_steps,
)
from balaclava.privacy.mechanisms.counters import begin_trees, tree_insert, tree_levels, tree_sum
from balaclava.privacy.mechanisms.laplace import (
    laplace_release,
    laplace_report,
    private_argmax_histogram,
)
from balaclava.privacy.mechanisms.randomized_response import bernoulli_report, report_probability
from balaclava.privacy.mechanisms.truncated_laplace import (
    TruncatedLaplaceLaw,
    reach_in_steps,
    truncated_laplace_release,
    truncated_noise,
)
from balaclava.privacy.randomness import SystemRandomness, seeded

SIGNIFICANCE = 1e-6
STEPS = 2**GRID_BITS + 1  # one unit of sensitivity, and the spare step
RNG = SystemRandomness()


def law_and_scale(noise: np.ndarray, cdf: Callable[..., Any], size: float, spread: float) -> float:
    """The smaller p-value of two tests: the distribution function, and the mean size."""
    law = stats.kstest(noise, cdf, method="asymp").pvalue
    z = (np.abs(noise).mean() - size) / (spread / math.sqrt(noise.size))
    return float(min(law, 2 * stats.norm.sf(abs(z))))


# Laplace


@pytest.mark.parametrize("draws", [160_000, pytest.param(1_000_000, marks=pytest.mark.slow)])
def test_exact_laplace_draws(draws: int) -> None:
    epsilon = 0.7
    noise = np.array(discrete_laplace(STEPS, epsilon)([0] * draws)) / STEPS

    def agreement(scale: float) -> float:
        return law_and_scale(noise, stats.laplace(0, scale).cdf, scale, scale)

    assert agreement(1 / epsilon) > SIGNIFICANCE
    assert agreement(1.02 / epsilon) < SIGNIFICANCE
    assert agreement(0.98 / epsilon) < SIGNIFICANCE


@pytest.mark.statistical
def test_laplace_with_few_steps_is_the_discrete_law() -> None:
    draws = np.array(discrete_laplace(3, 1.5)([0] * 40_000))
    a = math.exp(-1.5 / 3)
    edges = np.arange(-8, 9)
    inner = (1 - a) / (1 + a) * a ** np.abs(edges)
    tail = (1 - inner.sum()) / 2
    expected = np.concatenate([[tail], inner, [tail]]) * draws.size
    observed = np.bincount(np.clip(draws, -9, 9) + 9, minlength=19)
    assert stats.chisquare(observed, expected).pvalue > SIGNIFICANCE


@pytest.mark.parametrize("release", [laplace_release, laplace_report])
def test_released_laplace(release: Callable[..., float]) -> None:
    """The whole path: value to grid, noise, and back."""
    value, sensitivity, epsilon = 123.25, 2.0, 0.5
    answers = np.array([release(RNG, value, sensitivity, epsilon) for _ in range(6_000)])
    step = grid_step(sensitivity)
    assert (answers / step == np.round(answers / step)).all()
    scale = sensitivity / epsilon
    law = stats.laplace(0, scale).cdf
    assert law_and_scale(answers - value, law, scale, scale) > SIGNIFICANCE


@pytest.mark.parametrize("epsilon", [1e-9, 0.01, 1 / 3, 1.0, 30.0, 1e6])
@pytest.mark.parametrize("steps", [2, STEPS, 2 * STEPS - 7])
def test_the_privacy_map_agrees_and_nothing_is_wasted(epsilon: float, steps: int) -> None:
    spent = discrete_laplace(steps, epsilon).map(steps)
    assert epsilon * (1 - 1e-12) <= spent <= epsilon


def test_no_noise_to_speak_of_when_epsilon_is_huge() -> None:
    assert laplace_release(RNG, 5.0, 1.0, 1e12) == 5.0
    assert truncated_laplace_release(RNG, 5.0, 1.0, 1e12, 0.1) == 5.0
    assert bernoulli_report(RNG, 1.0, 700.0) == 1.0
    assert bernoulli_report(RNG, 0.0, 700.0) == 0.0


# The grid


def test_a_step_of_sensitivity_is_never_more_on_the_grid() -> None:
    """Neighbouring values, the worst placed and random ones, are at most `steps` apart."""
    rng = np.random.default_rng(1)
    for sensitivity in (1.0, 0.1, 1 / 3, 1517.06):
        step = grid_step(sensitivity)
        starts = [0.0, step / 2, math.nextafter(step / 2, 0), -step / 2, *rng.normal(0, 1e4, 300)]
        for start in starts:
            near, steps, unit = to_steps(start, sensitivity)
            far, _, _ = to_steps(start + sensitivity, sensitivity)
            assert unit == Fraction(step)
            assert far - near <= steps
            assert steps <= sensitivity / step + 2


@pytest.mark.parametrize("sensitivity", [1.0, 0.3, 758.5315431624155])
def test_rounding_costs_one_step_and_an_array_as_many_as_its_norm_grows(sensitivity: float) -> None:
    _, steps, step = to_steps(0.0, sensitivity)
    assert steps == math.ceil(Fraction(sensitivity) / step) + 1
    for size in range(1, 18):
        value = [0.0] * size
        assert vector_to_steps(value, sensitivity, 1.0) == ([0] * size, steps + size, step)
        root = math.ceil(math.sqrt(size))
        assert vector_to_steps(value, sensitivity, 2.0) == ([0] * size, steps + root, step)


def test_values_on_the_grid_are_not_rounded() -> None:
    total = sum(to_grid(x, 1.0) for x in np.random.default_rng(2).random(1000))
    position, steps, step = to_steps(total, 1.0)
    assert float(position * step) == total
    assert steps == STEPS


def test_values_out_of_reach_are_clamped_and_never_released() -> None:
    assert to_steps(math.inf, 1.0)[0] == 2**62
    assert to_steps(-1e300, 1.0)[0] == -(2**62)
    with pytest.raises(PrivacyError, match="is NaN"):
        laplace_release(RNG, math.nan, 1.0, 1.0)


# Truncated Laplace


def hockey_stick(steps: int, epsilon: float, reach: int, shift: int) -> float:
    """The delta at epsilon between the truncated discrete law and itself shifted."""
    k = np.arange(-reach - shift, reach + shift + 1)
    law = np.where(np.abs(k) <= reach, np.exp(-epsilon / steps * np.abs(k)), 0.0)
    law /= law.sum()
    excess = law[shift:] - math.exp(epsilon) * (1 + 1e-12) * law[: law.size - shift]
    outside = law[:shift].sum()
    return float(np.maximum(excess, 0).sum() + outside)


@pytest.mark.parametrize("epsilon", [0.0, 0.01, 0.5, 2.0, 6.0])
@pytest.mark.parametrize("delta", [1e-4, 0.01, 0.3])
@pytest.mark.parametrize("steps", [2, 9, 40])
def test_the_reach_is_the_smallest_that_keeps_delta(
    epsilon: float, delta: float, steps: int
) -> None:
    reach = reach_in_steps(steps, epsilon, delta)
    worst = max(hockey_stick(steps, epsilon, reach, shift) for shift in range(1, steps + 1))
    assert worst <= delta * (1 + 1e-9)
    if reach > steps:
        assert hockey_stick(steps, epsilon, reach - 1, steps) > delta


@pytest.mark.parametrize("epsilon", [0.0, 1e-250, 1e-12, 1e-6, 0.3, 36.0])
def test_the_reach_tends_to_that_of_the_continuous_law(epsilon: float) -> None:
    continuous = 50.0 if epsilon < 1e-9 else math.log1p(math.expm1(epsilon) / 0.02) / epsilon
    assert reach_in_steps(STEPS, epsilon, 0.01) / STEPS == pytest.approx(continuous, rel=1e-5)


def truncated_agreement(draws: int) -> Callable[[float], float]:
    """Draw, and return the test of the draws against a scale."""
    epsilon, delta = 1.0, 0.01
    noise = np.array([truncated_noise(STEPS, epsilon, delta) for _ in range(draws)]) / STEPS
    reach = math.log1p(math.expm1(epsilon) / (2 * delta))
    sizes = np.linspace(0, reach, 20_001)
    weights = np.exp(-sizes) / np.exp(-sizes).sum()
    size = float((sizes * weights).sum())
    spread = math.sqrt(float((sizes**2 * weights).sum()) - size**2)
    law = TruncatedLaplaceLaw(0.0, 1.0, epsilon, delta)

    def agreement(scale: float) -> float:
        return law_and_scale(noise, lambda w: law.cdf(w / scale), size * scale, spread * scale)

    return agreement


def test_exact_truncated_laplace_draws() -> None:
    assert truncated_agreement(30_000)(1.0) > SIGNIFICANCE


@pytest.mark.slow
def test_a_million_exact_truncated_laplace_draws() -> None:
    agreement = truncated_agreement(1_000_000)
    assert agreement(1.0) > SIGNIFICANCE
    assert agreement(1.02) < SIGNIFICANCE
    assert agreement(0.98) < SIGNIFICANCE


@pytest.mark.statistical
def test_exact_truncated_laplace_at_epsilon_zero_is_uniform() -> None:
    noise = np.array([truncated_laplace_release(RNG, 7.0, 0.5, 0.0, 0.1) for _ in range(30_000)])
    law = stats.uniform(7.0 - 2.5, 5.0).cdf
    assert stats.kstest(noise, law, method="asymp").pvalue > SIGNIFICANCE
    assert np.abs(noise - 7.0).max() <= 2.5 * (1 + 1e-5)


@pytest.mark.statistical
@pytest.mark.parametrize(("numerator", "denominator"), [(0, 1), (1, 3), (1, 1), (5, 2)])
def test_the_exact_exponential_coin(numerator: int, denominator: int) -> None:
    heads = sum(bernoulli_exp(numerator, denominator) for _ in range(20_000))
    expected = math.exp(-numerator / denominator)
    assert stats.binomtest(heads, 20_000, expected).pvalue > SIGNIFICANCE


# Randomized response


@pytest.mark.parametrize("epsilon", [1e-6, 0.1, 1.0, 5.0, 20.0])
def test_the_privacy_map_of_the_bit_agrees(epsilon: float) -> None:
    spent = randomized_bit(epsilon).map(1)
    assert epsilon * (1 - 1e-6) <= spent <= epsilon


def test_the_bit_at_a_large_epsilon_stays_within_it() -> None:
    assert 36 < randomized_bit(700.0).map(1) <= 700


def reported(x: float, epsilon: float, draws: int) -> int:
    return int(sum(bernoulli_report(RNG, x, epsilon) for _ in range(draws)))


@pytest.mark.statistical
@pytest.mark.parametrize("x", [0.0, 0.3, 1.0])
def test_exact_reports(x: float) -> None:
    ones = reported(x, 2.0, 4_000)
    expected = report_probability(x, 2.0)
    assert stats.binomtest(ones, 4_000, expected).pvalue > SIGNIFICANCE


@pytest.mark.statistical
@pytest.mark.slow
def test_a_million_exact_reports() -> None:
    ones = reported(1.0, 2.0, 1_000_000)
    right, low, high = (report_probability(1.0, 2.0 * scale) for scale in (1.0, 0.98, 1.02))
    assert stats.binomtest(ones, 1_000_000, right).pvalue > SIGNIFICANCE
    assert stats.binomtest(ones, 1_000_000, low).pvalue < SIGNIFICANCE
    assert stats.binomtest(ones, 1_000_000, high).pvalue < SIGNIFICANCE


# Composed mechanisms


def test_a_released_counter_stays_on_the_grid() -> None:
    """Sums of many nodes are exact: each answer is a multiple of the step."""
    trees = begin_trees(1, tree_levels(200))
    for item in np.random.default_rng(3).random(200):
        tree_insert(RNG, trees, 0, to_unit_grid(item), 1.0, 1.0)
    total = tree_sum(trees, 0) / grid_step(1.0)
    assert total == round(total)
    # 200 has three set bits: three nodes of scale 8; all below 40 scales but once in 1e16.
    assert abs(total * grid_step(1.0) - 100) < 3 * 40 * 8


def test_a_released_histogram() -> None:
    # The fullest bin leads by 100 noise scales.
    assert private_argmax_histogram(RNG, np.array([0, 400, 200]), 1.0) == 1


# Bad input, and what must not happen


def test_what_no_grid_can_hold_is_refused() -> None:
    with pytest.raises(PrivacyError, match="epsilon = 1e-305 is too small"):
        laplace_release(RNG, 0.5, 1.0, 1e-305)
    for sensitivity in (1e-300, 1e300):
        with pytest.raises(PrivacyError, match="rescale"):
            laplace_release(RNG, 0.5, sensitivity, 1.0)


def test_rewards_on_the_grid_have_exact_sums() -> None:
    rng = seeded(4)
    for width in (1.0, 0.38, 758.5315431624155, 2.0**-30):
        step = grid_step(width)
        assert 2.0**-21 <= step / width <= 2.0**-20
        rewards = width * (2 * rng.random(2000) - 1)
        rounded = [to_grid(reward, width) for reward in rewards]
        assert max(abs(rounded - rewards)) <= step
        assert all(reward / step == round(reward / step) for reward in rounded)
        assert math.fsum(rounded) == sum(rounded) == sum(reversed(rounded))


def test_rounding_stays_inside() -> None:
    for width in (1.0, 0.38, 758.5315431624155, 1e9 / 3):
        for x in (width, -width, math.nextafter(width, 0), 2 * width, -2 * width):
            assert abs(to_grid(x, width)) <= width
    for x in seeded(6).random(1000):
        assert to_unit_grid(x) == to_grid(x, 1.0)
    assert [to_unit_grid(x) for x in (0.0, 0.5, 1.0)] == [0.0, 0.5, 1.0]
    assert 0.0 < to_unit_grid(2.0**-21 * 1.01) < to_unit_grid(math.nextafter(1.0, 0.0)) == 1.0


def test_a_value_is_rounded_to_the_nearest_step() -> None:
    step = 2.0**-20
    for value, position in ((0.49, 0), (0.5, 1), (1.49, 1), (-0.5, 0), (-0.51, -1), (7.0, 7)):
        assert to_steps(value * step, 1.0) == (position, 2**20 + 1, Fraction(step))
