"""The bound on the regret of Beta indices (Wang and Zhu 2024, Theorem 13), step by step."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import special, stats

import balaclava as bl
from balaclava.papers.wang2024.bernoulli_instances import WangSetting
from balaclava.theory.beta_index_regret import (
    best_arm_shortfall,
    beta_index_regret,
    worse_arm_pulls,
)


def log_masses(n: int, p: float) -> np.ndarray:
    s = np.arange(n + 1)
    choose = special.gammaln(n + 1) - special.gammaln(s + 1) - special.gammaln(n - s + 1)
    return choose + s * math.log(p) + (n - s) * math.log1p(-p)


def log_reach(n: int, v: float) -> tuple[np.ndarray, np.ndarray]:
    """log p(s) and log (1 - p(s)) for s = 0, ..., n: the index reaches the level, or does not."""
    k, masses = n // 8 + 1, log_masses(n + 2 * (n // 8 + 1) + 1, 0.1 + 0.8 * v)
    up, down = np.logaddexp.accumulate(masses), np.logaddexp.accumulate(masses[::-1])[::-1]
    return up[k : n + k + 1], down[k + 1 : n + k + 2]


def divergence(p: np.ndarray, q: float) -> np.ndarray:
    return special.xlogy(p, p / q) + special.xlogy(1 - p, (1 - p) / (1 - q))


@pytest.mark.parametrize("v", [0.02, 0.3, 0.66, 0.95])
@pytest.mark.parametrize("n", [97, 104, 300])
def test_steps_of_the_proof(n: int, v: float) -> None:
    """Index and binomial, Zubkov and Serov, steps 3 and 4, for every number of successes."""
    s, k, y = np.arange(n + 1), n // 8 + 1, 0.1 + 0.8 * v
    M = n + 2 * k + 1
    reach, miss = log_reach(n, v)
    law = stats.beta(s + 1 + k, n - s + 1 + k)
    np.testing.assert_allclose(np.exp(reach), law.sf(y), rtol=1e-8, atol=1e-300)
    half_square = M * divergence((s + k) / M, y)
    z = np.sign((s + k) / M - y) * np.sqrt(2 * half_square)
    assert np.all(reach >= special.log_ndtr(z) - 1e-9)
    high = z >= 0
    assert np.all((miss - reach)[high] <= -half_square[high] + 1e-9)
    low = ~high
    birnbaum = 0.5 * math.log(2 * math.pi) + np.log1p(-z[low]) + half_square[low]
    assert np.all(-reach[low] <= birnbaum + 1e-9)
    u = (M * y - k) / n
    c = k - n / 8
    assert u == pytest.approx(v + ((2 * c + 1) * y - c) / n)
    assert u <= v + max(v, 2.4 * v - 0.7) / n + 1e-12
    assert np.all(half_square[low] <= n * divergence(s[low] / n, u) + 1e-9)


@pytest.mark.parametrize(
    ("best", "v", "first"), [(0.7, 0.6, 97), (0.7, 0.68, 827), (0.95, 0.9, 97), (0.1, 0.06, 120)]
)
def test_what_the_best_arm_costs_beta_indices(best: float, v: float, first: int) -> None:
    """E[1/p - 1] over part of the n is below the bound, which is not far above all of them."""
    numbers = range(first, min(8 * first, 2_000))
    terms = []
    for n in numbers:
        reach, miss = log_reach(n, v)
        terms.append(float(np.exp(log_masses(n, best) + miss - reach).sum()))
    assert sum(terms) < best_arm_shortfall(best, v, first) < 20 * sum(terms)


@pytest.mark.parametrize(("mean", "v"), [(0.3, 0.6), (0.5, 0.6), (0.001, 0.1), (0.9, 0.97)])
def test_pulls_of_a_worse_arm_with_a_high_index(mean: float, v: float) -> None:
    first, horizon, total = 97, 10**6, 97.0
    for n in range(first, 2_500):
        reach, _ = log_reach(n, v)
        term = np.exp(log_masses(n, mean) + np.minimum(reach + math.log(horizon), 0)).sum()
        total += float(term)
        if term < 1e-6:
            break
    assert total < worse_arm_pulls(np.array([mean]), v, first, horizon)[0] < 2 * total + 10


def test_an_arm_that_always_or_never_pays() -> None:
    for means in ([1.0, 0.0], [1.0, 0.5], [0.5, 0.0]):
        bound = beta_index_regret(np.array(means), 97, 10**6)
        assert 97 * (means[0] - means[1]) <= bound < 50 + 97 * (means[0] - means[1])


@pytest.mark.parametrize(
    ("number", "delta", "at_most"),
    [(1, 0.01, 3_100), (1, math.exp(-10), 4_500), (2, 0.01, 61_000)],
)
def test_theorem_13_on_the_instances_of_the_paper(
    number: int, delta: float, at_most: float
) -> None:
    """Measured: 1,520, 3,413 and 18,301 (figure 4 a, b, c)."""
    setting = WangSetting(number, 1.0, delta)
    arms = setting.world.arms
    policy = bl.policy("dp-ftpl-beta", arms=arms, epsilon=1.0, delta=delta)
    bound = policy.regret_bound(setting.world, 10**6)
    assert policy.start_phase * setting.world.gaps.sum() < bound < at_most


@pytest.mark.parametrize("means", [(0.3, 0.7), (0.2, 0.6, 0.75)])
def test_the_bound_of_beta_indices_holds(means: tuple[float, ...]) -> None:
    world, T = bl.environment("bernoulli", means=means), 20_000
    policy = bl.policy("dp-ftpl-beta", arms=len(means), epsilon=5.0, delta=0.1)
    regret = bl.simulate(policy, world, horizon=T, repetitions=20, seed=1).final_regret(policy.name)
    bound = policy.regret_bound(world, T)
    assert 0 < regret.mean() < bound < 0.2 * T * world.gaps.max()


def test_where_the_bound_of_beta_indices_applies() -> None:
    policy = bl.policy("dp-ftpl-beta", arms=2, epsilon=5.0, delta=0.1, reward_range=(0.0, 4.0))
    unit = bl.policy("dp-ftpl-beta", arms=2, epsilon=5.0, delta=0.1)
    narrow = unit.regret_bound(bl.environment("bernoulli", means=[0.3, 0.7]), 10**6)
    wide = bl.environment("two-point", values=[4.0, 4.0], probabilities=[0.3, 0.7])
    assert policy.regret_bound(wide, 10**6) == pytest.approx(4 * narrow)
    assert unit.regret_bound(bl.environment("bernoulli", means=[0.5, 0.5]), 10**6) == 0.0
    assert unit.regret_bound(bl.environment("gaussian", means=[0.5, 0.4]), 10**6) is None
    close = bl.environment("bernoulli", means=[0.7, 0.699])
    assert unit.regret_bound(close, 1_000) == pytest.approx(1.0)  # no better than the worst arm
