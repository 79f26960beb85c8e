"""Perturbed indices: thresholds and laws in closed form."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats

from balaclava.errors import PrivacyError
from balaclava.privacy.mechanisms.base import Terms, declared_mechanism
from balaclava.privacy.mechanisms.perturbed_index import (
    ENDLESS_START,
    BetaLaw,
    beta_index,
    beta_shape,
    beta_threshold,
    gaussian_index,
    gaussian_threshold,
    whole_pulls,
)


@pytest.mark.parametrize("delta", [1e-6, 0.01, 0.19])
@pytest.mark.parametrize("epsilon", [0.0, 1e-3, 0.5, 10.0, 20.0, 100.0])
def test_thresholds_are_those_of_the_proofs(epsilon: float, delta: float) -> None:
    first = 1 / (4 * math.pi * delta**2)
    second = math.log(math.e / (4 * math.pi * delta**2)) / epsilon**2 if epsilon else math.inf
    assert gaussian_threshold(epsilon, delta) == pytest.approx(min(first, second))
    first = 40 * math.e / (9 * math.pi * delta**2)
    capped = min(epsilon, 20.0)
    inner = 8000 * math.log(math.e / (2 * math.pi * delta**2)) / 81
    second = inner / capped**2 if epsilon else math.inf
    least = 1000 * math.e / (9 * math.pi)
    assert beta_threshold(epsilon, delta) == pytest.approx(max(min(first, second), least))


def test_a_threshold_beyond_all_floats_never_ends() -> None:
    assert gaussian_threshold(0.0, 1e-300) == beta_threshold(0.0, 1e-300) == math.inf
    assert whole_pulls(math.inf) == ENDLESS_START
    assert [whole_pulls(pulls) for pulls in (0.2, 1.0, 6.01)] == [1, 1, 7]


def test_the_beta_index_has_an_eighth_more_of_both_counts() -> None:
    for n, successes in ((7, 3), (8, 8), (1000, 0), (1023, 511)):
        extra = n // 8 + 2
        shape = (successes + extra, n - successes + extra)
        assert beta_shape(successes / n, 1 / n) == shape
        law, exact = BetaLaw(*shape), stats.beta(*shape)
        x, p = np.linspace(-0.1, 1.1, 13), np.linspace(0.01, 0.99, 5)
        assert law.cdf(x) == pytest.approx(exact.cdf(x), abs=1e-12)
        assert law.sf(x) == pytest.approx(exact.sf(x), abs=1e-12)
        assert law.ppf(p) == pytest.approx(exact.ppf(p))
        assert law.isf(p) == pytest.approx(exact.isf(p))
        assert law.support() == (0.0, 1.0)


@pytest.mark.parametrize(
    ("release", "threshold"), [(gaussian_index, gaussian_threshold), (beta_index, beta_threshold)]
)
def test_an_index_of_too_few_rewards_is_refused(release: object, threshold: object) -> None:
    require = declared_mechanism(release).require  # type: ignore[arg-type]
    least = whole_pulls(threshold(0.5, 0.01))  # type: ignore[operator]
    require(Terms(0.5, 1 / least, 0.5, 0.01))
    with pytest.raises(PrivacyError, match=f"index of {least - 1} rewards .* least {least} "):
        require(Terms(0.5, 1 / (least - 1), 0.5, 0.01))
