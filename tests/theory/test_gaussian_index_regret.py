"""The bound on the regret of Gaussian indices (Wang and Zhu 2024, Theorem 11)."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats

import balaclava as bl
from balaclava.theory.gaussian_index_regret import best_arm_misses


@pytest.mark.parametrize("lam", [0.05, 0.2])
@pytest.mark.parametrize("mean", [0.3, 0.9])
def test_what_the_best_arm_costs_gaussian_indices(mean: float, lam: float) -> None:
    """E[1/p - 1] of Theorem 11, summed exactly for Bernoulli arms, is below the closed form."""
    first, total = 4, 0.0
    for n in range(first, 400):
        s = np.arange(n + 1)
        p = stats.norm.sf((mean - lam - s / n) * math.sqrt(n / 2))
        total += float(stats.binom.pmf(s, n, mean) @ (1 / p - 1))
    assert 0 < total < best_arm_misses(lam, first) - best_arm_misses(lam, 400)


def test_the_bound_of_gaussian_indices_holds_and_says_something() -> None:
    world, T = bl.environment("bernoulli", means=[0.9, 0.2]), 10_000
    policy = bl.policy("dp-ftpl-gauss", arms=2, epsilon=1.0, delta=0.01)
    bound = policy.regret_bound(world, T)
    assert bound < 0.2 * T * 0.7  # below what play at random costs, by far
    regret = bl.simulate(policy, world, horizon=T, repetitions=50, seed=1).final_regret(policy.name)
    assert 0 < regret.mean() < bound
    assert policy.regret_bound(bl.environment("bernoulli", means=[0.5, 0.5]), T) == 0.0
    assert policy.regret_bound(bl.environment("gaussian", means=[0.5, 0.4]), T) is None
