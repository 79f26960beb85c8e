"""Tests of draws: rare shares, scales, grids, norms and false losses."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats

from balaclava.auditing.laws.array_norms import spread_delta
from balaclava.auditing.laws.draw_tests import law_test_fault, repeats_fault
from balaclava.auditing.laws.mechanism_laws import audit_laws
from balaclava.auditing.laws.probed_laws import bare_after_rare_draws, probed_law
from balaclava.auditing.laws.tape_draws import tape_fault
from balaclava.auditing.tape import Recorder
from balaclava.privacy.accounting import gaussian_delta
from balaclava.privacy.mechanisms.analytic_gaussian import gaussian_law, gaussian_release
from balaclava.privacy.mechanisms.base import Loss, Terms, declared_mechanism, mechanism
from balaclava.privacy.mechanisms.laplace import exact_laplace, laplace_law, laplace_release
from balaclava.privacy.mechanisms.randomized_response import bernoulli_report
from balaclava.privacy.mechanisms.truncated_laplace import truncated_laplace_release
from tests.oracles.violators import hidden

LAPLACE, N = stats.laplace(0.0, 1.0), 200_000


def laplace_sample(seed=0, size=N):
    return np.random.default_rng(seed).laplace(size=size)


@pytest.mark.parametrize("seed", range(5))
def test_true_draws_pass(seed):
    assert law_test_fault(laplace_sample(seed), LAPLACE) == ""
    coins = (np.random.default_rng(seed).random(N) < 0.3).astype(float)
    assert law_test_fault(coins, stats.bernoulli(0.3)) == ""


def test_false_draws_fail():
    sample = laplace_sample()
    assert "scale" in law_test_fault(0.985 * sample, LAPLACE)
    assert "centre" in law_test_fault(np.where(np.arange(N) % 1_000, sample, 0.0), LAPLACE)
    assert "independent" in law_test_fault(np.repeat(sample[: N // 2], 2), LAPLACE)
    coins = (np.random.default_rng(0).random(N) < 0.31).astype(float)
    assert law_test_fault(coins, stats.bernoulli(0.3))


def test_a_grid_that_depends_on_the_value_is_seen():
    noise, more = laplace_sample(0), laplace_sample(1)
    value = math.pi

    def coarse(x):
        return np.rint(1e3 * x) / 1e3

    assert repeats_fault(value + noise, more, value) == ""
    assert "low digits" in repeats_fault(value + coarse(noise), 1.0 + coarse(more), value)
    assert repeats_fault(coarse(value + noise), coarse(1.0 + more), value) == ""  # rounded after
    bare = np.where(np.arange(N) % 50_000, value + noise, value)
    assert "without noise in 4" in repeats_fault(bare, more, value)


def test_the_scale_of_a_body_is_read_exactly():
    terms = Terms(0.7, 2.0, 0.5, 1e-3)
    for release, law in ((laplace_release, laplace_law), (gaussian_release, gaussian_law)):
        known = probed_law(declared_mechanism(release), terms)
        assert known.std() == pytest.approx(law(terms).std(), rel=1e-12)
    assert probed_law(declared_mechanism(bernoulli_report), terms) is None
    assert probed_law(declared_mechanism(hidden.bare_of_a_thousand), terms) is None


def test_small_noise_is_not_missing_noise():
    """Noise far below the value's size is lost by rounding only if it is smaller than that."""
    body = declared_mechanism(truncated_laplace_release)
    for value in (0.3, 31.3, 4e4 / 3.0, 1e12 / 3.0):
        assert not bare_after_rare_draws(body, Terms(value, 1.0, 1.0, 0.005))
    bare = declared_mechanism(hidden.bare_of_a_thousand)
    assert bare_after_rare_draws(bare, Terms(31.3, 1.0, 1.0, 0.0))


def test_the_delta_of_a_spread_move():
    gaussian = spread_delta(stats.norm(0.0, 2.0), 1.0 / math.sqrt(3.0), 3, 0.5)
    assert gaussian == pytest.approx(gaussian_delta(0.5, 0.5), rel=0.02)  # as one move of 1
    assert spread_delta(LAPLACE, 0.25, 4, 1.0) < 1e-9  # within the L1 norm
    assert spread_delta(LAPLACE, 0.5, 4, 1.0) > 0.05  # within the L2 norm only


@mechanism("modest loss", exact_laplace, loss=lambda _, __: Loss(0.1), law=laplace_law)
def modest_loss(rng, value, sensitivity, epsilon):
    return value + rng.laplace(0.0, sensitivity / epsilon)


@mechanism("exact but bare", lambda terms: terms.value, law=laplace_law)
def bare_exact(rng, value, sensitivity, epsilon):
    return value + rng.laplace(0.0, sensitivity / epsilon)


@mechanism("unknown", lambda terms: terms.value)
def unknown_law(rng, value, sensitivity, epsilon):
    return value + (rng.standard_exponential() - rng.standard_exponential()) * sensitivity / epsilon


@pytest.mark.parametrize(
    ("release", "fault"),
    [
        (modest_loss, "the loss that it declares for a move is false"),
        (bare_exact, "exact answers"),
        (unknown_law, "declares no law"),
        (hidden.bare_of_a_thousand, "near the centre"),
        (hidden.bare_seldom, "without noise"),
        (hidden.single_laplace, "low digits"),
        (laplace_release, ""),
    ],
)
def test_a_mechanism_that_declares_too_much(release, fault):
    recorder = Recorder(0)
    release(recorder, 0.3, 1.0, 1.0)
    found = audit_laws(recorder.tape, seed=0)
    assert fault in found.fault
    assert found.verdict == ("unproved" if fault else "consistent")


def test_draws_of_a_tape_are_grouped_by_value():
    from balaclava.auditing.compiled_tape import mechanism_code

    code = mechanism_code(laplace_release.__wrapped__)
    rng = np.random.default_rng(0)
    values = rng.integers(0, 10, 20_000).astype(float)
    noise = rng.laplace(size=values.size)
    entries = np.ones((values.size, 6))
    entries[:, 0], entries[:, 1], entries[:, 4], entries[:, 5] = code, values, 0.0, values + noise
    assert tape_fault(entries) == ""
    entries[:, 5] = values + np.where(values == 3.0, 0.3 * noise, noise)
    assert "do not follow" in tape_fault(entries)
