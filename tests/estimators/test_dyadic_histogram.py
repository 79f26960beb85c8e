"""Histograms on powers of two: bins, what is seen through noise, levels, moments."""

from __future__ import annotations

import math

import numpy as np
import pytest

from balaclava.estimators.dyadic_histogram import (
    ADJACENT_BIN,
    BINS,
    HIDDEN_MASS,
    ISOLATED_BIN,
    SIDE,
    bin_index,
    clipped_mean,
    clipped_variance,
    cut_level,
    denoise,
    fullest,
    last_seen,
)


def histogram(bins):
    shares = np.zeros(BINS)
    for k, share in bins.items():
        shares[SIDE + k] = share
    return shares


def test_bins():
    middle = SIDE
    for tiny in (0.0, -0.0, 1e-300, -1e-300, 2.0**-64, -(2.0**-64)):
        assert bin_index(tiny) == middle
    assert bin_index(1.0) == middle + 64  # a power of two is the largest of its bin
    assert bin_index(math.nextafter(1.0, 2.0)) == middle + 65
    assert bin_index(0.51) == bin_index(0.99) == middle + 64
    assert bin_index(-1.0) == middle - 64
    assert bin_index(2.0**64) == bin_index(1e300) == BINS - 1
    assert bin_index(-1e300) == 0


def test_what_noise_may_have_made_is_not_seen():
    grain = 1e-3
    shares = histogram({64: 0.5, 65: 0.99 * ADJACENT_BIN * grain, 100: 0.99 * ISOLATED_BIN * grain})
    shares[SIDE - 64] = 1.01 * ADJACENT_BIN * grain
    assert fullest(shares, grain) == 64
    assert last_seen(shares, grain, 1, 64) == 64
    assert last_seen(shares, grain, -1, 64) == 64
    shares[SIDE + 100] = 1.01 * ISOLATED_BIN * grain  # far from all others more is needed
    assert last_seen(shares, grain, 1, 64) == 100
    assert fullest(histogram({64: 0.99 * ISOLATED_BIN * grain}), grain) == -1
    assert not denoise(histogram({64: 0.99 * ISOLATED_BIN * grain}), grain, False)


def test_noise_alone_hardly_ever_looks_like_rewards():
    """10,000 histograms of noise: none stands out, with a chance of 0.98."""
    noise = np.random.default_rng(1).laplace(0.0, 1.0, (10_000, BINS))
    assert (noise.max(axis=1) <= ISOLATED_BIN).all()


def test_smoothing_keeps_what_was_seen_and_what_may_be_next():
    shares = histogram({64: 0.8, 66: -0.01, 70: 0.003, -64: 0.2, -90: 0.003})
    assert denoise(shares, 1e-3, False)
    assert shares[SIDE + 64] == pytest.approx(0.8 + HIDDEN_MASS * 1e-3)
    assert shares[SIDE + 65] == pytest.approx(HIDDEN_MASS * 1e-3)
    assert (shares >= 0).all()
    assert shares[SIDE + 66 :].sum() == shares[: SIDE - 66].sum() == 0.0
    # Rewards all on one side of 0, unless 0 is about their mean.
    shares = histogram({64: 1.0})
    assert denoise(shares, 1e-3, False)
    assert shares[:SIDE].sum() == 0.0
    shares = histogram({64: 1.0})
    assert denoise(shares, 1e-3, True)
    assert shares[SIDE - 64] > 0.0


def test_the_level_cuts_off_the_part_that_it_may():
    assert cut_level(histogram({}), 1, 0.3) == 0.0
    # A single bin is never cut.
    assert cut_level(histogram({70: 0.1, 0: 0.9}), 1, 0.3) == 2.0**6
    # P(X > 2^k) = 4^-k: beyond the level 2^j there is a part 2^-j of the mean, about.
    tail = histogram({64 + k: 0.75 * 4.0 ** -(k - 1) for k in range(1, 40)})
    for j in range(2, 8):
        level = cut_level(tail, 1, 2.0**-j)
        kept = clipped_mean(tail, 0.0, level)
        assert 1.0 - kept / clipped_mean(tail, 0.0, math.inf) <= 2.0**-j
        assert 2.0 ** (j - 2) <= level <= 2.0**j


def test_moments_of_uniform_bins():
    """Against a million draws, uniform within three bins, and moved into [-1/4, 2]."""
    shares = histogram({66: 0.25, 64: 0.35, -63: 0.4})
    draws = np.random.default_rng(2).random(1_000_000)
    sizes = np.repeat([4.0, 1.0, -0.5], [250_000, 350_000, 400_000])
    x = sizes * (1.0 + draws) / 2.0
    assert clipped_mean(shares, math.inf, math.inf) == pytest.approx(x.mean(), rel=0.01)
    assert clipped_variance(shares, math.inf, math.inf) == pytest.approx(x.var(), rel=0.01)
    moved = np.clip(x, -0.25, 2.0)
    assert clipped_mean(shares, 0.25, 2.0) == pytest.approx(moved.mean(), rel=0.02)
    assert clipped_variance(shares, 0.25, 2.0) == pytest.approx(moved.var(), rel=0.1)
