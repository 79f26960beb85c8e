"""The theorem on IMED with a clock: its steps one by one, a second implementation, and runs."""

from __future__ import annotations

import functools
import itertools
import math
from typing import Any

import numpy as np
import pytest

import balaclava as bl
from balaclava.estimators.noisy_kl import noisy_kl, noisy_tail
from balaclava.theory.imed_regret import ImedBound, batch_states, group_gaps

NINE = np.linspace(0.3, 0.7, 9)
SETTINGS: list[dict[str, Any]] = [
    {},
    {"index": "exact"},
    {"batches": "ratio"},
    {"index": "exact", "batches": "ratio"},
]


def imed(arms: int, epsilon: float, **options: Any) -> bl.Policy:
    return bl.policy("dp-imed", arms=arms, epsilon=epsilon, **options)


# Steps of the proof


@pytest.mark.parametrize("rate", [noisy_kl, noisy_tail])
@pytest.mark.parametrize("epsilon", [0.1, 1.0, 5.0])
@pytest.mark.parametrize("m", [1, 4, 12])
def test_a_rate_falls_in_x_and_rises_in_y(rate: Any, epsilon: float, m: int) -> None:
    for n in (3, 30, 1000):
        rates = [
            [rate(n, x, y, epsilon, m) for x in np.linspace(-2.0, 1.0, 60)]
            for y in np.linspace(0.05, 1.0, 20)
        ]
        slack = 0.003 + 1e-5 * np.abs(rates)  # the tilt is found to 1e-3
        assert (np.diff(rates, axis=1) <= slack[:, 1:]).all()
        assert (np.diff(rates, axis=0) >= -slack[1:]).all()


@pytest.mark.parametrize("rate", [noisy_kl, noisy_tail])
@pytest.mark.parametrize("epsilon", [0.1, 1.0, 5.0])
@pytest.mark.parametrize("m", [1, 4, 12])
def test_the_rate_falls_with_the_leader_as_the_theorem_says(
    rate: Any, epsilon: float, m: int
) -> None:
    for n, q, e in itertools.product((1, 30, 1000), (0.05, 0.5, 0.99), (0.01, 0.04)):
        least = noisy_kl(n, q - e, q, epsilon, m)
        for x in np.linspace(-3.0, q - e, 60):
            fall = rate(n, x, q, epsilon, m) - rate(n, x, q - e, epsilon, m)
            assert fall >= least - 0.003 - 1e-5 * rate(n, x, q, epsilon, m)


@pytest.mark.parametrize("growth", [1.0, 2.0])
def test_the_states_are_all_that_runs_reach(growth: float) -> None:
    sizes = [4, 5, 7, 9, 13, 17, 22, 30]

    @functools.cache
    def reached(i: int, m: int) -> frozenset[tuple[int, int]]:
        """All pairs from size i on, by trying every next size."""
        found = {(sizes[i], m)}
        for j in range(i + 1, len(sizes) - 1):
            if j == i + 1 or sizes[j] <= growth * sizes[i]:
                found |= reached(j, m + 1)
        return frozenset(found)

    states = batch_states(sizes, growth)
    assert {(n, m) for n, m, _ in states.astype(int).tolist()} == reached(0, 1)
    for n, _, after in states:
        following = next(size for size in sizes if size > n)
        assert after == max([size for size in sizes if size <= growth * n] + [following])


@pytest.mark.parametrize("options", SETTINGS)
@pytest.mark.parametrize("epsilon", [0.3, 2.0])
def test_every_run_keeps_to_the_proof(options: dict[str, Any], epsilon: float) -> None:
    """No arm has more pulls than its cap and S allow, unless its mean was released above p + d.

    A part of the proof without probabilities: it must hold in every run.
    """
    means, horizon, rng = np.array([0.5, 0.6, 0.7]), 3_000, np.random.default_rng(2)
    policy = imed(3, epsilon, **options)
    e, d = 0.04, 0.03
    growth = 1.0 if policy.batches == "ratio" else 2.0
    sizes = tuple(policy.sizes(horizon))
    how = growth, horizon, epsilon, policy.clock, policy.index == "tail"
    bound = ImedBound(0.7 - means, 0.7, sizes, *how)
    caps = [bound.regular(0.7 - p, d, e)[0] for p in means[:2]]
    rate = noisy_tail if policy.index == "tail" else noisy_kl
    waited = 0
    for seed in range(8):
        agent, most, misled = policy.agent(seed=seed), 0.0, [False, False]
        state: Any = agent._runner.state
        for t in range(1, horizon + 1):
            chooses = not state.first_pulls[0] and state.current[0] < 0
            decision = agent.ask()
            if chooses and decision.arm < 2:
                y, arm = min(max(state.means.max(), 0.0), 1.0), decision.arm
                x, n = state.means[2], state.weights[2]
                if y < 0.7 - e:
                    late = max(policy.clock / t, 1.0)
                    nats = rate(n, x, 0.7 - e, epsilon, state.draws[2])
                    most = max(most, bound.growth * n * max(1.0, math.exp(nats) / late))
                    waited += 1
                elif state.means[arm] > means[arm] + d:
                    misled[arm] = True
            agent.tell(decision, float(rng.random() < means[decision.arm]))
        pulls = [each.decisions for each in agent.estimates()]
        for arm in range(2):
            assert misled[arm] or pulls[arm] <= max(caps[arm], most, sizes[0])
    assert waited > 0


# A second implementation, for batches of fixed sizes


def plain_chance(n: int, x: float, q: float, epsilon: float, m: int) -> float:
    """The bound on the probability of a released mean of at most x, by the best of all s."""
    s = np.linspace(0.0, 1.0, 4_001)[1:-1]
    bounds = s * epsilon * n * x + n * np.log(1 - q + q * np.exp(-epsilon * s))
    bounds -= m * np.log(1 - s * s)
    one = (1 - s) * (2 * s / (1 + s)) ** s
    if m > 1:
        ratio = s * np.sqrt(2 * math.pi * (1 + s * s) * (2 * m - 3)) / (1 - s * s)
        one = np.minimum(one, -np.expm1(-ratio) / ratio)
    return min(1.0, float(np.exp((bounds + np.log(one)).min())))


def plain_tail(
    gap: float, best: float, sizes: list[int], T: int, epsilon: float, H: float, e: float, d: float,
    z: float,
) -> tuple[float, float]:  # fmt: skip
    """Two arms: the regret of the theorem at z, and its probability; index="exact"."""
    growth = max(after / n for n, after in itertools.pairwise(sizes))
    states = list(itertools.pairwise(sizes))
    cap = sizes[0]
    for m, (n, after) in enumerate(states, 1):
        if noisy_kl(n, best - gap + d, best - e, epsilon, m) + math.log(n) <= math.log(max(T, H)):
            cap = after
    chance = 0.0
    rounds = min(1 + max(cap, z) + z, T)
    for m, (n, after) in enumerate(states, 1):
        if after > max(cap, z):
            chance += plain_chance(n, 1 - best + gap - d, 1 - best + gap, epsilon, m)
        level = math.log(z * max(1.0, H / rounds) / (growth * n))
        low, high = best - e - 100.0 / (epsilon * n), best - e
        for _ in range(60 if level > 0.0 else 0):
            middle = (low + high) / 2
            rate = noisy_kl(n, middle, best - e, epsilon, m)
            low, high = (middle, high) if rate >= level else (low, middle)
        chance += plain_chance(n, low if level > 0.0 else best - e, best, epsilon, m)
    return gap * min(max(cap, z), T), chance


@pytest.mark.parametrize(("epsilon", "clock"), [(0.3, 1.0), (1.0, 10_000.0), (5.0, 300.0)])
def test_the_bound_is_that_of_the_theorem(epsilon: float, clock: float) -> None:
    T, gap, best = 20_000, 0.4, 0.7
    sizes = [math.ceil(30 / epsilon * 1.5**k) for k in range(30)]
    sizes = sizes[: 1 + next(k for k, n in enumerate(sizes) if n >= T)]
    bound = ImedBound([gap, 0.0], best, sizes, 1.0, T, epsilon, clock, False)
    for e, part in itertools.product(bound.levels()[::3], (0.2, 0.5)):
        pairs = list(bound._tails(float(e)))
        lost, chance = pairs[(0.2, 0.35, 0.5, 0.65).index(part)]
        for i in (0, 20, 40, len(lost) - 1):
            how = e, part * (gap - e), bound.z[i]
            regret, expected = plain_tail(gap, best, sizes, T, epsilon, clock, *how)
            assert lost[i] == pytest.approx(regret)
            # The tilts of a grid are not the best.
            assert 0.99 * expected <= chance[i] <= 2.0 * expected + 1e-12


# Runs


@pytest.mark.parametrize("options", SETTINGS)
@pytest.mark.parametrize(("means", "epsilon"), [((0.3, 0.7), 1.0), ((0.5, 0.7, 0.8), 0.3)])
def test_runs_keep_to_both_bounds(
    options: dict[str, Any], means: tuple[float, ...], epsilon: float
) -> None:
    """2,000 runs. A share is above its probability by five standard errors once in 10^6 times."""
    horizon, runs = 5_000, 2_000
    world = bl.environment("bernoulli", means=means)
    policy = imed(len(means), epsilon, horizon=horizon, **options)
    how: dict[str, Any] = {"horizon": horizon, "repetitions": runs, "checkpoints": 1}
    regret = bl.simulate(policy, world, seed=3, **how).final_regret("dp-imed")
    mean = policy.regret_bound(world, horizon)
    assert 0.05 * mean < regret.mean() < mean
    for x in np.quantile(regret, [0.5, 0.9, 0.99, 0.999]):
        share = (regret > x).mean()
        assert share - 5 * math.sqrt(share / runs) <= policy.tail_bound(world, horizon, x)


@pytest.mark.parametrize("options", SETTINGS)
def test_the_tail_falls_and_ends(options: dict[str, Any]) -> None:
    world = bl.environment("bernoulli", means=[0.5, 0.7, 0.7, 0.9])
    policy = imed(4, 1.0, horizon=10_000, **options)
    bounds = [policy.tail_bound(world, 10_000, x) for x in np.linspace(-10.0, 4_100.0, 60)]
    assert all(a >= b for a, b in itertools.pairwise(bounds))
    assert (bounds[0], bounds[-1]) == (1.0, 0.0)
    assert 0.0 < bounds[-10] < 0.05


def test_a_longer_clock_lowers_the_tail() -> None:
    world = bl.environment("bernoulli", means=[0.3, 0.7])
    tails = [
        imed(2, 1.0, horizon=planned, batches="ratio").tail_bound(world, 10_000, 400.0)
        for planned in (2, 20_000, 200_000, 2_000_000)
    ]
    assert all(a >= b for a, b in itertools.pairwise(tails))
    assert tails[-1] < 0.05 * tails[0]


def test_the_regret_is_of_the_order_of_the_logarithm() -> None:
    policy = imed(9, 1.0, index="exact", batches="ratio")
    world = bl.environment("bernoulli", means=NINE)
    bounds = [policy.regret_bound(world, 10**k) for k in (6, 9, 12)]
    assert math.ceil(bounds[0]) == 1318  # as docs/figures.md says
    assert 0 < bounds[2] - bounds[1] < 1.05 * (bounds[1] - bounds[0])


def test_equal_arms_lose_nothing() -> None:
    world = bl.environment("bernoulli", means=[0.5, 0.5])
    assert imed(2, 1.0).regret_bound(world, 1_000) == 0.0
    assert imed(2, 1.0).tail_bound(world, 1_000, 0.0) == 0.0


def test_many_gaps_are_bounded_in_groups() -> None:
    """Above the bound in which all arms of a group have its least gap, and lose that."""
    gaps = np.concatenate([[0.0], np.linspace(0.1, 0.4, 30)])
    groups = group_gaps(gaps)
    assert groups.counts.sum() == gaps.size
    assert groups.totals.sum() == pytest.approx(gaps.sum())
    assert (groups.largest[:-1] < groups.least[1:]).all()
    sizes = tuple(imed(2, 1.0, batches="ratio").sizes(50_000))
    how: Any = (0.8, sizes, 1.0, 50_000, 1.0, 1_000.0, True)
    merged = np.repeat(groups.least, groups.counts)
    bound, least = ImedBound(gaps, *how), ImedBound(merged, *how)
    for e in bound.levels():
        assert not ((groups.least < e) & (e <= groups.largest)).any()
    assert least.mean() < bound.mean() < 2.0 * least.mean()
    assert least.tail(9_000.0) <= bound.tail(9_000.0)


def test_of_other_settings_nothing_is_proved() -> None:
    world = bl.environment("bernoulli", means=NINE)
    other: list[dict[str, Any]] = [
        {"index": "paper"},
        {"index": "rechecking"},
        {"explore": 0.1},
        {"holdout": 0.1},
        {"reward_range": (0, 0.5)},  # rewards of 1 are outside
        {"epsilon": 9.0, "first_batch": 1, "batch_ratio": 1.00001},  # too many sizes
    ]
    for options in other:
        policy = imed(9, **{"epsilon": 1.0, **options})
        assert policy.regret_bound(world, 10**6) is None
        assert policy.tail_bound(world, 10**6, 100.0) is None
    assert bl.policy("dp-klucb", arms=9, epsilon=1.0).tail_bound(world, 100, 5.0) is None
    assert imed(3, 1.0).tail_bound(world, 100, 5.0) is None  # other arms


def test_the_bounds_are_in_the_units_of_the_rewards() -> None:
    coins = bl.environment("bernoulli", means=[0.3, 0.7])
    pounds = bl.environment("two-point", values=[2.0, 2.0], probabilities=[0.3, 0.7])
    plain, wide = imed(2, 1.0), imed(2, 1.0, reward_range=(0, 2))
    assert wide.regret_bound(pounds, 10**4) == pytest.approx(2 * plain.regret_bound(coins, 10**4))
    assert wide.tail_bound(pounds, 10**4, 900.0) == plain.tail_bound(coins, 10**4, 450.0)
