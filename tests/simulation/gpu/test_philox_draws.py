"""Random numbers for the GPU, drawn here by the same functions, compiled for the CPU.

Each law is tested with 10^6 draws of a fixed seed at a level of 1e-4 (Kolmogorov and Smirnov), and
with 10^7 in `make test-all`.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from scipy import stats

from balaclava._core.kernels import compiled
from balaclava.simulation.gpu import philox_draws

DRAWS = 1_000_000
LEVEL = 1e-4


def make_draws(draw: Any) -> Any:
    def draws(key: Any, place: Any, memory: Any, arguments: Any, out: Any) -> None:
        for i in range(out.size):
            out[i] = draw(key, place, memory, *arguments)

    return draws


def sample(
    draw: Any, *arguments: Any, seed: int = 1, place: int = 0, draws: int = DRAWS
) -> np.ndarray:
    out = np.empty(draws)
    memory = philox_draws.new_stream()
    compiled(make_draws, draw)(np.uint64(seed), np.uint64(place), memory, arguments, out)
    return out


def test_philox_gives_the_published_answers():
    """The known answers for a counter and a key of zeros, and of ones (Random123)."""
    word, spare = philox_draws.philox(np.uint64(0), np.uint64(0), np.uint64(0))
    assert (int(word), int(spare)) == (0xE169C58D6627E8D5, 0x9B00DBD8BC57AC4C)
    ones = np.uint64(2**64 - 1)
    word, spare = philox_draws.philox(ones, ones, ones)
    assert (int(word), int(spare)) == (0x41C83B0E408F276D, 0x6D5451FDA20BC7C6)


LAWS = pytest.mark.parametrize(
    ("draw", "arguments", "law"),
    [
        (philox_draws.uniform, (), stats.uniform()),
        (philox_draws.exponential, (), stats.expon()),
        (philox_draws.laplace, (0.5, 3.0), stats.laplace(0.5, 3.0)),
        (philox_draws.normal, (), stats.norm()),
        (philox_draws.gamma, (0.3,), stats.gamma(0.3)),
        (philox_draws.gamma, (7.5,), stats.gamma(7.5)),
        (philox_draws.beta, (1.0, 1.0), stats.uniform()),
        (philox_draws.beta, (2.5, 40.0), stats.beta(2.5, 40.0)),
        (philox_draws.student_t, (2.1,), stats.t(2.1)),
        (philox_draws.cauchy, (), stats.cauchy()),
    ],
    ids=lambda value: getattr(value, "__name__", None),
)


@LAWS
def test_a_law_is_drawn_from(draw, arguments, law):
    assert stats.kstest(sample(draw, *arguments), law.cdf).pvalue > LEVEL


@pytest.mark.slow
@LAWS
def test_a_law_is_drawn_from_ten_million_times(draw, arguments, law):
    draws = sample(draw, *arguments, seed=2, draws=10 * DRAWS)
    assert stats.kstest(draws, law.cdf).pvalue > LEVEL


@pytest.mark.parametrize("draws", [DRAWS, pytest.param(10 * DRAWS, marks=pytest.mark.slow)])
def test_integers_are_even(draws):
    counts = np.bincount(sample(philox_draws.integer, 3, 10, draws=draws).astype(int), minlength=10)
    assert counts[:3].sum() == 0
    assert stats.chisquare(counts[3:]).pvalue > LEVEL


def test_tails_of_the_noise_of_privacy():
    """How many of 10^6 draws lie beyond 8 scales: 335 on average, by a binomial test."""
    beyond = int((np.abs(sample(philox_draws.laplace, 0.0, 1.0)) > 8.0).sum())
    assert stats.binomtest(beyond, DRAWS, math.exp(-8.0)).pvalue > LEVEL


def test_streams_do_not_meet():
    """Seeds and places give streams without common numbers and without correlation."""
    first = sample(philox_draws.uniform)
    for other in (sample(philox_draws.uniform, place=1), sample(philox_draws.uniform, seed=2)):
        assert not np.intersect1d(first[:1000], other).size
        assert abs(np.corrcoef(first, other)[0, 1]) < 5 / math.sqrt(DRAWS)


def test_a_stream_goes_on_where_it_stopped():
    key, place = np.uint64(7), np.uint64(3)
    for draw in (philox_draws.uniform, philox_draws.normal):
        whole, parts = philox_draws.new_stream(), philox_draws.new_stream()
        expected = [draw(key, place, whole) for _ in range(7)]
        drawn = [draw(key, place, parts) for _ in range(3)]
        parts = philox_draws.PhiloxState(
            *(array.copy() for array in parts)
        )  # as between two launches
        assert drawn + [draw(key, place, parts) for _ in range(4)] == expected


def test_normal_draws_of_a_pair_are_independent():
    """Neither they nor their squares are correlated: 5 standard errors."""
    first, second = sample(philox_draws.normal).reshape(-1, 2).T
    for power in (1, 2):
        correlation = np.corrcoef(first**power, second**power)[0, 1]
        assert abs(correlation) < 5 / math.sqrt(DRAWS / 2)
