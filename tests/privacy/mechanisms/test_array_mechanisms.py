"""Arrays as one release, and the Gaussian mechanism: terms, laws, exact noise, compiled or not."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats

from balaclava._core.kernels import compiled
from balaclava.auditing.tape import Recorder, Replayer
from balaclava.errors import PrivacyError
from balaclava.privacy.accounting import gaussian_delta
from balaclava.privacy.exact_noise import vector_to_steps
from balaclava.privacy.mechanisms.analytic_gaussian import (
    exact_gaussian_vector,
    gaussian_excess,
    gaussian_fault,
    gaussian_release,
    gaussian_shift,
    gaussian_vector_release,
    group_epsilon,
)
from balaclava.privacy.mechanisms.base import Terms, declared_mechanism, distance
from balaclava.privacy.mechanisms.laplace import laplace_vector_release
from balaclava.privacy.randomness import SystemRandomness

VALUE = np.array([1.0, -2.0, 0.25])
RELEASES = {
    "laplace": lambda rng, value, out: laplace_vector_release(rng, value, 0.5, 1.0, out),
    "gaussian": lambda rng, value, out: gaussian_vector_release(rng, value, 0.5, 1.0, 1e-5, out),
}


@pytest.mark.parametrize(("epsilon", "delta"), [(1.0, 1e-5), (0.01, 1e-9), (5.0, 0.01), (0, 0.1)])
def test_the_calibration_uses_delta_up(epsilon, delta):
    shift = gaussian_shift(epsilon, delta)
    assert 1 - 1e-6 < gaussian_delta(shift, epsilon) / delta < 1


def test_terms_of_an_array_are_one_release():
    out = np.empty(3)
    terms = declared_mechanism(gaussian_vector_release).terms(VALUE, 0.5, 1.0, 1e-5, out)
    assert terms == ((1.0, -2.0, 0.25), 0.5, 1.0, 1e-5)
    assert distance((3.0, 4.0), (0.0, 0.0), 1.0) == 7.0
    assert distance((3.0, 4.0), (0.0, 0.0), 2.0) == 5.0
    assert distance((3.0, math.nan), (0.0, 0.0), 2.0) == math.inf
    assert distance((3.0,), (0.0, 0.0), 2.0) == math.inf


@pytest.mark.parametrize("name", RELEASES)
def test_the_tape_gives_an_array_back(name):
    release, first, again = RELEASES[name], np.empty(3), np.empty(3)
    recorder = Recorder(1)
    release(recorder, VALUE, first)
    player = Replayer(recorder.tape, 0)
    release(player, VALUE + np.array([0.0, 0.5, 0.0]), again)
    assert (first == again).all()
    (move,) = player.moves
    if name == "laplace":
        assert move.loss.epsilon == 1.0
    else:
        assert move.loss.shift == pytest.approx(gaussian_shift(1.0, 1e-5))


@pytest.mark.parametrize("name", RELEASES)
def test_exact_noise_of_an_array_has_its_law(name):
    """Each part by Kolmogorov-Smirnov at 1e-4, the correlations within 5 deviations."""
    rows = np.empty((3_000, 3))
    for row in rows:
        RELEASES[name](SystemRandomness(), VALUE, row)
    law = (
        stats.laplace(0, 0.5) if name == "laplace" else stats.norm(0, 0.5 / gaussian_shift(1, 1e-5))
    )
    for part in (rows - VALUE).T:
        assert stats.kstest(part, law.cdf).pvalue > 1e-4
    correlations = np.corrcoef(rows.T)[np.triu_indices(3, 1)]
    assert np.abs(correlations).max() < 5 / math.sqrt(3_000)
    assert len(set(rows[:, 0].tolist())) > 2_900


def test_exact_noise_of_an_array_is_on_the_grid():
    terms = Terms((0.3, -7.7), 1.5, 1.0, 1e-5)
    _, steps, step = vector_to_steps(terms.value, terms.sensitivity, 2.0)
    assert steps == 1.5 / float(step) + 1 + 2  # its own, the spare one, sqrt(2) rounded up
    assert all((part / float(step)).is_integer() for part in exact_gaussian_vector(terms))
    assert vector_to_steps((0.0,) * 5, 1.0, 1.0)[1] == 2**20 + 1 + 5


def test_compiled_arrays_agree_with_interpreted_ones():
    def factory(release):
        def loop(value, out, rng):
            release(rng, value, 0.5, 1.0, 1e-5, out)

        return loop

    fast, slow = np.empty(3), np.empty(3)
    compiled(factory, gaussian_vector_release)(VALUE, fast, np.random.default_rng(3))
    gaussian_vector_release(np.random.default_rng(3), VALUE, 0.5, 1.0, 1e-5, slow)
    assert fast == pytest.approx(slow, rel=1e-12)


@pytest.mark.parametrize(("epsilon", "delta"), [(1.0, 0.0), (800.0, 0.1), (1e-7, 1e-5)])
def test_what_no_gaussian_keeps_is_refused(epsilon, delta):
    with pytest.raises(PrivacyError, match=r"epsilon = "):
        gaussian_release(SystemRandomness(), 0.3, 1.0, epsilon, delta)


def test_settings_that_exact_gaussian_noise_cannot_keep_are_named() -> None:
    assert gaussian_fault(1.0, 0.01, 5) == ""
    assert "is too large for Gaussian noise" in gaussian_fault(700.1, 0.01, 1)
    assert "is too small for exact Gaussian noise on 5 elements" in gaussian_fault(1.99e-5, 0.01, 5)
    assert gaussian_fault(2.01e-5, 0.01, 5) == ""


@pytest.mark.parametrize("rewards", [1, 25, 10_000])
@pytest.mark.parametrize("delta", [1e-6, 1e-2])
def test_a_group_pays_for_exact_noise_in_each_release(rewards: int, delta: float) -> None:
    """Epsilon has 4e-6 a reward added; delta is divided by e^(4e-6) a reward first; no more."""
    shift, cost = 0.3, 4e-6 * rewards
    epsilon = group_epsilon(shift, delta, rewards)
    assert gaussian_excess(shift, epsilon - cost) <= delta * math.exp(-cost)
    assert gaussian_excess(shift, epsilon - cost - 1e-9) > delta * math.exp(-cost)
