"""The theorem on IMED in batches: its steps one by one, a second implementation, and runs."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest

import balaclava as bl
from balaclava.estimators.noisy_kl import best_tilt, noisy_kl
from balaclava.theory.imed_regret import imed_pulls

NINE = np.linspace(0.3, 0.7, 9)


def sizes_of(first: float, ratio: float, horizon: int) -> list[int]:
    """Pulls after each batch, until there are `horizon`."""
    sizes = [math.ceil(first)]
    while sizes[-1] < horizon:
        sizes.append(max(math.ceil(first * ratio ** len(sizes)), sizes[-1] + 1))
    return sizes


def plain_rate(n: int, x: float, y: float, epsilon: float, m: int) -> tuple[float, float]:
    """The supremum over a grid of s, and 1 - s there."""
    s = np.linspace(0.0, 1.0, 8_001)[:-1]
    exponents = -s * epsilon * n * x - n * np.log(1 - y + y * np.exp(-epsilon * s))
    exponents += m * np.log(1 - s * s)
    return float(exponents.max()), 1.0 - float(s[exponents.argmax()])


def plain_wait(n: int, x: float, q: float, epsilon: float, m: int, most: float) -> float:
    """The mean of min(most, exp(W - G)) where W >= G, by the tail of W on a grid of x."""
    first, rest = plain_rate(n, x, q, epsilon, m)
    total, before, until = rest, first, first + math.log(max(most, 1.0))
    while before < until:
        x -= 0.1 / min(n * epsilon, n)
        rate, after = plain_rate(n, x, q, epsilon, m)
        total += 0.5 * (rest + after) * (min(rate, until) - before)
        before, rest = rate, after
    return math.exp(-first) * total


@pytest.mark.parametrize(
    ("mean", "best", "epsilon"), [(0.3, 0.7, 0.1), (0.6, 0.65, 5.0), (0.0, 1.0, 1.0)]
)
def test_the_bound_is_that_of_the_theorem(mean: float, best: float, epsilon: float) -> None:
    T = 1000
    sizes = sizes_of(30 / epsilon, 1.5, T)
    growth = max(after / n for n, after in itertools.pairwise(sizes))
    parts = [share * (best - mean) / 10 for share in range(1, 10)]
    lucky, misled = dict.fromkeys(parts, 0.0), dict.fromkeys(parts, 0.0)
    last = {pair: 0 for pair in itertools.product(parts, parts) if sum(pair) < best - mean - 1e-9}
    for m, n in enumerate(sizes[:-1], 1):
        for part in parts:
            rate, rest = plain_rate(n, 1 - mean - part, 1 - mean, epsilon, m)
            lucky[part] += (sizes[m] - n) * rest * math.exp(-rate)
            wait = plain_wait(n, best - part, best, epsilon, m, T / growth / n)
            misled[part] += growth * n * wait
        for d, e in last:
            rate = plain_rate(n, mean + d, best - e, epsilon, m)[0]
            if rate + math.log(n) <= math.log(T):
                last[d, e] = m
    bounds = [sizes[m] + lucky[d] + misled[e] for (d, e), m in last.items()]
    found = imed_pulls(mean, best, sizes, T, epsilon)
    assert min(*bounds, T) - 1 <= found <= min(1.03 * min(bounds), T)  # a left sum is above


@pytest.mark.parametrize(
    ("epsilon", "n", "m"), [(0.1, 30, 1), (0.3, 40, 3), (1.0, 20, 2), (5, 3, 4)]
)
def test_a_released_mean_is_low_as_seldom_as_the_proof_says(epsilon: float, n: int, m: int) -> None:
    """200,000 draws; a share is beyond by five standard errors once in 10^6 times."""
    q, rng = 0.6, np.random.default_rng(3)
    noise = rng.laplace(0.0, 1 / epsilon, (200_000, m)).sum(axis=1)
    means = (rng.binomial(n, q, 200_000) + noise) / n
    for x in np.quantile(means, [0.001, 0.01, 0.1, 0.4]):
        s = best_tilt(n, x, q, epsilon, m) if x < q else 0.0
        bound = (1 - s) * math.exp(-noisy_kl(n, x, q, epsilon, m))
        share = (means <= x).mean()
        assert share - 5 * math.sqrt(share / 200_000) <= bound
        assert share > 0.1 * bound  # close enough for a bound to be wrong


@pytest.mark.parametrize("epsilon", [0.1, 1.0, 5.0])
@pytest.mark.parametrize("m", [1, 4, 12])
def test_the_rate_falls_with_the_leader_as_step_3_says(epsilon: float, m: int) -> None:
    for n, q, e in itertools.product((1, 30, 1000), (0.05, 0.5, 0.99), (0.01, 0.04)):
        least = noisy_kl(n, q - e, q, epsilon, m)
        for x in np.linspace(-3.0, q - e, 60):
            fall = noisy_kl(n, x, q, epsilon, m) - noisy_kl(n, x, q - e, epsilon, m)
            assert fall >= least - 1e-5 * (1 + noisy_kl(n, x, q, epsilon, m))


@pytest.mark.parametrize(("epsilon", "n", "m"), [(0.1, 300, 1), (0.3, 200, 3), (1.0, 45, 2)])
def test_waiting_costs_no_more_than_step_3_says(epsilon: float, n: int, m: int) -> None:
    """A mean of 20,000 draws is beyond it by five standard errors once in 10^6 times."""
    q, e, most = 0.7, 0.05, 10**6 / n
    rng = np.random.default_rng(5)
    noise = rng.laplace(0.0, 1 / epsilon, (20_000, m)).sum(axis=1)
    means = (rng.binomial(n, q, 20_000) + noise) / n
    waits = [
        min(most, math.exp(noisy_kl(n, x, q - e, epsilon, m))) if x < q - e else 0.0 for x in means
    ]
    bound = plain_wait(n, q - e, q, epsilon, m, most)
    assert np.mean(waits) - 5 * np.std(waits) / math.sqrt(20_000) <= bound
    assert np.mean(waits) > 0.05 * bound  # no empty bound, if a wide one


def pulls_of_a_run(
    means: np.ndarray, epsilon: float, T: int, sizes: list[int], rng: np.random.Generator
) -> int:
    """Pulls of the first arm, batch by batch; rewards are 0 or 1."""
    batch, sums, t = np.zeros(means.size, int), np.zeros(means.size), 0
    pulls = np.zeros(means.size, int)
    while t < T:
        if batch.min() == 0:
            arm = int(batch.argmin())
        else:
            released = sums / pulls
            top = min(max(released.max(), 0.0), 1.0)
            arm = int(
                np.argmin(
                    [
                        noisy_kl(pulls[a], released[a], top, epsilon, batch[a]) + math.log(pulls[a])
                        for a in range(means.size)
                    ]
                )
            )
        length = min(sizes[batch[arm]] - pulls[arm], T - t)
        sums[arm] += rng.binomial(length, means[arm]) + rng.laplace(0.0, 1 / epsilon)
        pulls[arm] += length
        batch[arm] += 1
        t += length
    return int(pulls[0])


@pytest.mark.parametrize("epsilon", [0.2, 1.0])
def test_runs_pull_an_arm_less_often(epsilon: float) -> None:
    means, T = np.array([0.3, 0.7]), 20_000
    sizes = sizes_of(30 / epsilon, 1.5, T)
    rng = np.random.default_rng(1)
    pulls = [pulls_of_a_run(means, epsilon, T, sizes, rng) for _ in range(200)]
    assert sizes[0] <= np.mean(pulls) < imed_pulls(0.3, 0.7, sizes, T, epsilon)


def test_the_regret_is_of_the_order_of_the_logarithm() -> None:
    policy = bl.policy("dp-imed", arms=9, epsilon=1.0, index="exact", batches="ratio")
    world = bl.environment("bernoulli", means=NINE)
    bounds = [policy.regret_bound(world, 10**k) for k in (6, 9, 12)]
    assert math.ceil(bounds[0]) == 4626  # as the docstring says
    assert 0 < bounds[2] - bounds[1] < bounds[1] - bounds[0]


def test_of_other_settings_nothing_is_proved() -> None:
    world = bl.environment("bernoulli", means=NINE)
    for options in ({}, {"index": "exact"}, {"batches": "ratio"}):
        assert bl.policy("dp-imed", arms=9, epsilon=1.0, **options).regret_bound(world, 9) is None
    proved = {"index": "exact", "batches": "ratio"}
    even = bl.policy("dp-imed", arms=9, epsilon=1.0, explore=0.1, **proved)
    assert even.regret_bound(world, 9) is None
    wide = bl.policy("dp-imed", arms=9, epsilon=1.0, reward_range=(0, 0.5), **proved)
    assert wide.regret_bound(world, 10**6) is None  # rewards of 1 are outside
    slow = bl.policy("dp-imed", arms=9, epsilon=9.0, first_batch=1, batch_ratio=1.00001, **proved)
    assert slow.regret_bound(world, 10**6) is None


def test_the_bound_is_in_the_units_of_the_rewards() -> None:
    proved = {"arms": 2, "epsilon": 1.0, "index": "exact", "batches": "ratio"}
    coins = bl.environment("bernoulli", means=[0.3, 0.7])
    pounds = bl.environment("two-point", values=[2.0, 2.0], probabilities=[0.3, 0.7])
    plain = bl.policy("dp-imed", **proved).regret_bound(coins, 10**5)
    wide = bl.policy("dp-imed", reward_range=(0, 2), **proved).regret_bound(pounds, 10**5)
    assert wide == pytest.approx(2 * plain)
