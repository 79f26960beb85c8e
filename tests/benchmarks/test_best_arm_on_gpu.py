"""Runs of dp-top-two on a GPU: the binomial draws, and that the loop compiles without one."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

import best_arm
import best_arm_on_gpu
from balaclava.authoring import compiled
from balaclava.simulation.gpu.device_states import map_arrays
from tests.simulation.gpu.ptx import compiled_to_ptx


def make_draws(binomial):
    def draws(rng, trials, chance, out):
        for i in range(out.size):
            out[i] = binomial(rng, trials, chance)

    return draws


@pytest.mark.statistical
@pytest.mark.parametrize(
    ("trials", "chance"),
    [(7, 0.001), (30, 0.5), (20, 0.97), (1_000, 0.0099), (1_000, 0.011), (300, 0.9)],
)
def test_binomial_draws_follow_the_law(trials, chance):
    """A chi-squared test of 100,000 draws; each fails once in a million."""
    out = np.zeros(100_000)
    loop = compiled(make_draws, best_arm_on_gpu.binomial)
    loop(np.random.default_rng(4), float(trials), chance, out)
    expected = stats.binom.pmf(np.arange(trials + 1), trials, chance) * out.size
    seen = np.bincount(out.astype(int), minlength=trials + 1)
    many = expected > 10
    rest = [expected[~many].sum() + 1.0, seen[~many].sum() + 1.0]
    statistic = ((seen - expected)[many] ** 2 / expected[many]).sum()
    statistic += (rest[1] - rest[0]) ** 2 / rest[0]
    assert stats.chi2.sf(statistic, many.sum()) > 1e-6


@pytest.mark.parametrize(("chance", "ones"), [(0.0, 0.0), (1.0, 50.0)])
def test_sure_draws_are_sure(chance, ones):
    assert best_arm_on_gpu.binomial(np.random.default_rng(1), 50.0, chance) == ones


@pytest.mark.slow
def test_the_loop_compiles_for_a_gpu():
    pytest.importorskip("numba_cuda")
    pytest.importorskip("cuda.bindings")
    policy = best_arm.top_two([0.3, 0.6], 1.0, 0.95)
    origin = best_arm_on_gpu.origin_of(policy)
    states = map_arrays(origin, lambda array: np.stack([array, array], axis=-1))
    loop = best_arm_on_gpu.make_device_runs(policy)
    fixed = np.uint64(2), 0, policy.constants(), np.array([0.3, 0.6]), 0.0, 10**6
    assert ".entry" in compiled_to_ptx(loop, *fixed, states, np.zeros((2, 2)))
