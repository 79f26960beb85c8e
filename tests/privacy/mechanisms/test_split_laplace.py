"""The noise of two servers: its law, its loss and its exact form.

A law is rejected by mistake once in a million runs (SIGNIFICANCE).
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from scipy import integrate, stats

from balaclava._core.kernels import compiled
from balaclava.privacy.exact_noise import grid_step
from balaclava.privacy.mechanisms.base import Terms, declared_mechanism
from balaclava.privacy.mechanisms.split_laplace import (
    TwoLaplaceLaw,
    exact_split_laplace,
    split_laplace_release,
    two_noises_quantile,
)
from balaclava.privacy.randomness import SystemRandomness, seeded

SIGNIFICANCE = 1e-6
DECLARED = declared_mechanism(split_laplace_release)


@pytest.mark.parametrize("x", [0.0, 0.3, 1.0, 4.0, 20.0])
def test_the_tail_is_that_of_the_convolution(x: float) -> None:
    """One noise is integrated over the law of the other."""
    one = stats.laplace()
    found, _ = integrate.quad(lambda v: one.pdf(v) * one.sf(x - v), -60.0, 60.0, points=(0.0, x))
    law = TwoLaplaceLaw(3.0, 0.5)
    assert law.sf(3.0 + 0.5 * x) == pytest.approx(found, rel=1e-7)
    assert law.cdf(3.0 - 0.5 * x) == pytest.approx(found, rel=1e-7)
    assert law.cdf(3.0 + 0.5 * x) == pytest.approx(1.0 - found, rel=1e-9)


@pytest.mark.parametrize("nats", [0.0, 1e-9, 1e-3, 0.7, 3.0, 40.0, 1e4])
def test_the_quantile_is_the_inverse_of_the_tail(nats: float) -> None:
    x = two_noises_quantile(nats)
    assert x - math.log1p(0.5 * x) == pytest.approx(nats, rel=1e-9, abs=1e-15)
    assert nats <= x <= 2.0 * nats


def test_the_law_and_its_quantiles_are_inverse() -> None:
    law, p = TwoLaplaceLaw(-1.0, 2.0), np.array([1e-9, 0.01, 0.3, 0.5, 0.8, 0.999])
    assert law.cdf(law.ppf(p)) == pytest.approx(p, rel=1e-9)
    assert law.sf(law.isf(p)) == pytest.approx(p, rel=1e-9)
    assert law.support() == (-math.inf, math.inf)


def test_the_loss_is_that_of_one_noise() -> None:
    """Given one noise it is the Laplace mechanism; without it, as large far out."""
    terms = Terms(0.3, 0.5, 0.7, 0.0)
    other = terms._replace(value=0.8)
    assert DECLARED.loss(terms, other).epsilon == pytest.approx(0.7)
    assert DECLARED.loss(terms, terms._replace(value=0.55)).epsilon == pytest.approx(0.35)
    here, there = DECLARED.law(terms), DECLARED.law(other)  # type: ignore[misc]
    ratios = [math.log(there.sf(x) / here.sf(x)) for x in (1.0, 10.0, 1e2, 4e2)]
    assert ratios == sorted(ratios)
    assert 0.695 < ratios[-1] <= 0.7


def make_sampler(release: Any) -> Any:
    def sample(rng: Any, scale: float, out: np.ndarray) -> None:
        for i in range(out.size):
            out[i] = release(rng, 2.0, scale, 0.7)

    return sample


@pytest.mark.statistical
def test_a_million_draws_follow_the_law() -> None:
    draws = np.empty(1_000_000)
    compiled(make_sampler, split_laplace_release)(seeded(3), 0.5, draws)
    ranks = np.sort(draws)[::50]

    def agreement(scale: float) -> float:
        """Kolmogorov's test at every fiftieth draw, which is a little less sensitive."""
        below = TwoLaplaceLaw(2.0, scale / 0.7).cdf(ranks)
        apart = np.abs(below - np.arange(0.5, draws.size, 50) / draws.size).max()
        return float(stats.kstwobign.sf(apart * math.sqrt(draws.size)))

    assert agreement(0.5) > SIGNIFICANCE
    assert agreement(0.51) < SIGNIFICANCE
    assert agreement(0.49) < SIGNIFICANCE


@pytest.mark.statistical
@pytest.mark.parametrize("value", [0.0, 123.25, -4.5])
def test_exact_answers_follow_the_law_on_the_grid(value: float) -> None:
    terms = Terms(value, 2.0, 0.5, 0.0)
    answers = np.array([exact_split_laplace(terms) for _ in range(4_000)])
    step = grid_step(2.0)
    assert (answers / step == np.round(answers / step)).all()
    law = TwoLaplaceLaw(value, 4.0)
    assert stats.kstest(answers, law.cdf, method="asymp").pvalue > SIGNIFICANCE
    narrow = TwoLaplaceLaw(value, 4.0 / math.sqrt(2.0))  # the noise of one server
    assert stats.kstest(answers, narrow.cdf, method="asymp").pvalue < SIGNIFICANCE


def test_an_agent_draws_by_the_protocol() -> None:
    answer = split_laplace_release(SystemRandomness(), 5.0, 1.0, 1e9)
    assert answer == pytest.approx(5.0)
