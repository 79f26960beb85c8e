"""Tests of draws: rare shares, scales, grids, norms and false losses."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats

from balaclava.auditing.laws.array_norms import spread_delta
from balaclava.auditing.laws.draw_tests import (
    LAW_ERROR,
    atoms_fault,
    cells_fault,
    follows_law,
    law_test_fault,
    repeats_fault,
)
from balaclava.auditing.laws.mechanism_laws import audit_laws
from balaclava.auditing.laws.probed_laws import bare_after_rare_draws, probed_law
from balaclava.auditing.laws.tape_draws import largest_groups, tape_fault
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


def evenly(law, size=20_000):
    """A sample with the quantiles of a law, in an order without any correlation."""
    return law.ppf((np.random.default_rng(3).permutation(size) + 0.5) / size)


@pytest.mark.parametrize("size", [1_000, 20_000])
def test_the_whole_shape_may_be_off_by_what_chance_allows(size):
    allowed = math.sqrt(math.log(2 / 1e-3) / (2 * size))
    sample = evenly(stats.uniform(), size)
    for share, passes in ((0.9, True), (1.1, False)):
        assert follows_law(sample, stats.uniform(share * allowed, 1.0), 1e-3) is passes
        assert follows_law(sample, stats.uniform(-share * allowed, 1.0), 1e-3) is passes
    assert follows_law(sample, stats.uniform(1.1 * allowed, 1.0))  # at its own error of 1e-7


def test_mean_and_scale_may_be_off_by_what_chance_allows():
    law, size = stats.norm(1.0, 2.0), 20_000
    sample = evenly(law, size)
    limit = -stats.norm.ppf(LAW_ERROR / 20) / math.sqrt(size)
    assert cells_fault(sample, law) == ""
    for sign in (-1, 1):
        assert "mean" not in cells_fault(sample + sign * 0.95 * limit * 2.0, law)
        assert "mean" in cells_fault(sample + sign * 1.05 * limit * 2.0, law)
        scale = math.sqrt(2.0) * limit / 2  # the square grows twice as fast
        assert "scale" not in cells_fault(1.0 + (sample - 1.0) * (1 + sign * 0.93 * scale), law)
        assert "scale" in cells_fault(1.0 + (sample - 1.0) * (1 + sign * 1.07 * scale), law)


def test_draws_that_follow_each_other_are_not_independent():
    law, size = stats.norm(), 20_000
    sample = evenly(law, size)
    limit = -stats.norm.ppf(LAW_ERROR / 20) / math.sqrt(size)
    for sign in (-1, 1):
        for share, seen in ((0.8, False), (1.5, True)):
            part = sign * share * limit * 1.1
            mixed = part * np.roll(sample, 1) + math.sqrt(1 - part**2) * sample
            assert ("independent" in cells_fault(mixed, law)) is seen


def test_the_centre_and_each_tail_are_counted():
    """Half of the draws are moved out of a cell, which is more than chance allows."""
    law, size, mass = stats.uniform(), 200_000, 1e-3
    sample = evenly(law, size)
    cells = {
        "low": lambda x: x < mass,
        "high": lambda x: x > 1 - mass,
        "centre": lambda x: np.abs(2 * x - 1) < mass,
    }
    for inside in cells.values():
        moved = sample.copy()
        rows = np.flatnonzero(inside(moved))
        moved[rows[: rows.size // 2]] = np.linspace(0.2, 0.4, rows.size // 2)
        assert "near the centre" in cells_fault(moved, law)
        few = sample.copy()
        few[rows[: rows.size // 50]] = 0.3
        assert cells_fault(few, law) == ""


def test_shares_of_a_discrete_law():
    law, size = stats.bernoulli(0.3), 10_000
    spread = -stats.norm.ppf(LAW_ERROR / 20) * math.sqrt(size * 0.21)
    for share, wrong in ((0.9, False), (1.1, True)):
        for sign in (-1, 1):
            ones = round(0.3 * size + sign * share * spread)
            sample = np.repeat([1.0, 0.0], (ones, size - ones))
            assert bool(atoms_fault(sample, law)) is wrong
    assert atoms_fault(np.arange(65.0), stats.randint(0, 1_000)) == ""
    assert atoms_fault(np.zeros(64), stats.randint(0, 1_000)) != ""


def test_few_repeats_say_nothing():
    noise, others = laplace_sample(0, 1_000), laplace_sample(1, 1_000)
    for repeats, seen in ((4, False), (5, True)):
        sample = noise.copy()
        sample[1 : 1 + repeats] = sample[0]
        assert bool(repeats_fault(sample, others, math.pi)) is seen
        assert repeats_fault(sample, np.append(others, sample[0]), math.pi) == ""
    for bare, seen in ((1, False), (2, True)):
        sample = noise.copy()
        sample[:bare] = math.pi
        found = repeats_fault(sample, others, math.pi)
        assert found == (f"it answered without noise in {bare} of 1,000 draws" if seen else "")


def tape_of(values, noise):
    from balaclava.auditing.compiled_tape import mechanism_code

    entries = np.ones((values.size, 6))
    entries[:, 0] = mechanism_code(laplace_release.__wrapped__)
    entries[:, 1], entries[:, 4], entries[:, 5] = values, 0.0, values + noise
    return entries


def test_the_draws_of_a_tape_are_tested_by_time_by_value_and_near_0():
    size, rng = 4_000, np.random.default_rng(5)
    noise, time = rng.laplace(size=size), np.arange(size)
    values = rng.permutation(np.linspace(0.05, 9.0, size))
    assert tape_fault(tape_of(values, noise)) == ""
    for part in (time < size // 3, time >= 2 * size // 3, values < np.quantile(values, 0.25),
                 values > np.quantile(values, 0.75)):  # fmt: skip
        assert "do not follow" in tape_fault(tape_of(values, np.where(part, 0.3 * noise, noise)))
    near = np.where(time % 20 == 0, 0.09, 5.0 + values)  # 200 of them
    assert tape_fault(tape_of(near, noise)) == ""
    assert tape_fault(tape_of(near, np.where(near < 1.0, 0.4 * noise, noise)))
    bare = np.where(np.isin(time, (7, 900)), 0.0, noise)
    assert "without noise more than once" in tape_fault(tape_of(values, bare))
    once = np.where(time == 7, 0.0, noise)
    assert tape_fault(tape_of(values, once)) == ""


def test_only_groups_with_enough_draws_are_tested():
    columns = np.repeat([[1.0, 2.0], [2.0, 1.0], [3.0, 3.0]], (99, 100, 150), axis=0)
    groups = largest_groups(columns, 24)
    assert [rows.tolist() for rows in groups] == [list(range(199, 349)), list(range(99, 199))]
    assert [rows.size for rows in largest_groups(columns, 1)] == [150]
