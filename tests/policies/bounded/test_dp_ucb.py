"""dp-ucb, dp-ucb-bound, dp-ucb-int and private-ucb: their rules, their noise and their limits."""

from __future__ import annotations

import math
from collections import defaultdict
from typing import Any

import numpy as np
import pytest

import balaclava as bl
from balaclava.auditing.replay.replay_audit import audit_by_replay
from balaclava.errors import ParameterError
from balaclava.privacy.randomness import seeded
from balaclava.testing.conformance import interpreted_run
from tests.effort import looks

COUNTERS = ["dp-ucb", "dp-ucb-bound", "private-ucb"]
NAMES = [*COUNTERS, "dp-ucb-int"]
NEEDS: dict[str, dict[str, Any]] = {"private-ucb": {"horizon": 300}, "dp-ucb-int": {"delta": 0.01}}
MEANS = [0.2, 0.5, 0.9]


def make(name: str, **more: Any) -> Any:
    return bl.policy(name, **{"arms": 3, "epsilon": 1.0, **NEEDS.get(name, {}), **more})


def uniform_rewards(seed: int) -> bl.Environment:
    """Rewards of many values, on the grid, so that indices do not tie."""
    rewards = np.random.default_rng(seed).integers(0, 1025, (300, 3)) / 1024
    return bl.environment("table", rewards=rewards * [0.6, 0.8, 1.0])


# Limits


@pytest.mark.parametrize("name", COUNTERS)
def test_without_noise_it_is_ucb1(name: str) -> None:
    world = uniform_rewards(1)
    expected = interpreted_run(bl.policy("ucb1", arms=3), world, 0)[0]
    assert np.array_equal(interpreted_run(make(name, epsilon=1e100), world, 0)[0], expected)
    assert not np.array_equal(interpreted_run(make(name, epsilon=1.0), world, 0)[0], expected)


@pytest.mark.parametrize("name", NAMES)
def test_choosing_draws_no_noise(name: str) -> None:
    policy = make(name, epsilon=20.0)
    params, (begin, choose, learn, _) = policy.constants(), policy.kernels
    state, rng = begin(params), seeded(3)
    for t in range(1, 101):
        arm, phase = choose(params, state, t, None, None)  # there is no generator to draw from
        learn(params, state, t, arm, 0.5, phase, rng)
    again = [choose(params, state, 101, None, None)[0] for _ in range(5)]
    assert len(set(again)) == 1


@pytest.mark.parametrize("name", NAMES)
def test_huge_epsilon_and_exact_noise(name: str) -> None:
    agent = make(name, arms=2, epsilon=1e100).agent()
    for _ in range(20):
        agent.tell(decision := agent.ask(), reward=float(decision.arm))
    if name != "dp-ucb-int":  # whose noise has a floor
        assert agent.ask().arm == 1


# Independent versions: dictionaries of noise by node, sums from the definition


def laplace(rng: np.random.Generator, scale: float) -> float:
    return float(rng.exponential(scale) - rng.exponential(scale))


def tree_noise(
    rng: np.random.Generator, nodes: dict[Any, float], key: Any, items: int, scale: float
) -> float:
    """The noise of the dyadic blocks that make up the first `items` items."""
    total, end = 0.0, 0
    for level in reversed(range(items.bit_length())):
        if items >> level & 1:
            end += 1 << level
            if (key, level, end) not in nodes:
                nodes[key, level, end] = laplace(rng, scale)
            total += nodes[key, level, end]
    return total


def hybrid_noise(
    rng: np.random.Generator, nodes: dict[Any, float], arm: int, n: int, epsilon: float
) -> float:
    j = n.bit_length() - 1
    for power in range(j + 1):
        if (arm, power) not in nodes:
            nodes[arm, power] = laplace(rng, 2 / epsilon)
    total = sum(nodes[arm, power] for power in range(j + 1))
    rest = n - 2**j
    return total + (tree_noise(rng, nodes, (arm, j), rest, 2 * j / epsilon) if rest else 0.0)


def independent_regret(policy: bl.Policy, horizon: int, seed: int) -> float:
    """One run of a counter policy."""
    rng = np.random.default_rng([seed, 77])
    p = policy.parameters
    K, epsilon, scale = p["arms"], p["epsilon"], p["radius_scale"]
    nodes: dict[Any, float] = {}
    n, exact, shown = [0] * K, [0.0] * K, [0.0] * K
    for t in range(1, horizon + 1):
        if t <= K:
            arm = t - 1
        else:
            values = []
            for a in range(K):
                margin = 0.0
                if policy.name == "dp-ucb-bound":
                    margin = math.sqrt(8) / epsilon * math.log(4 * t**4)
                    if math.log2(n[a]) % 1:
                        margin *= 1 + math.log(n[a])
                if policy.name == "private-ucb":
                    T = p["horizon"]
                    margin = math.log(T) ** 2 * math.log(K * T * math.log(T) / 0.1) / epsilon
                    margin *= K if p["split_epsilon"] else 1
                radius = math.sqrt(2 * math.log(t) / n[a]) + margin / n[a]
                values.append(shown[a] / n[a] + scale * radius)
            arm = values.index(max(values))
        n[arm] += 1
        exact[arm] += rng.random() < MEANS[arm]
        if policy.name == "private-ucb":
            levels = math.floor(math.log2(p["horizon"])) + 1
            share = epsilon / K if p["split_epsilon"] else epsilon
            noise = tree_noise(rng, nodes, arm, n[arm], levels / share)
        else:
            noise = hybrid_noise(rng, nodes, arm, n[arm], epsilon)
        shown[arm] = exact[arm] + noise
    return sum((max(MEANS) - mean) * pulls for mean, pulls in zip(MEANS, n, strict=True))


def independent_interval_regret(policy: Any, horizon: int, seed: int) -> float:
    """One run of dp-ucb-int, every index looked at in every round."""
    rng = np.random.default_rng([seed, 78])
    K, f, v = policy.arms, policy.interval, policy.v
    rewards: dict[int, list[bool]] = defaultdict(list)
    index: dict[int, tuple[int, float]] = {}
    for t in range(1, horizon + 1):
        arm = (t - 1) % K
        if t > K * f:
            for a in range(K):
                n = len(rewards[a])
                if n % f == 0 and index.get(a, (0, 0.0))[0] != n:
                    noise = laplace(rng, n ** -(1 - v / 2))
                    index[a] = n, sum(rewards[a]) / n + noise + math.sqrt(2 * math.log(t) / n)
            arm = max(range(K), key=lambda a: index[a][1])
        rewards[arm].append(bool(rng.random() < MEANS[arm]))
    return sum((max(MEANS) - MEANS[a]) * len(rewards[a]) for a in range(K))


LONG = pytest.mark.slow


@pytest.mark.oracle
@pytest.mark.parametrize(
    ("name", "more"),
    [
        ("dp-ucb", {"epsilon": 1.0}),
        pytest.param("dp-ucb", {"epsilon": 7.3}, marks=LONG),
        ("dp-ucb-bound", {"epsilon": 1.0, "radius_scale": 0.03}),
        pytest.param("dp-ucb-bound", {"epsilon": 37.0}, marks=LONG),
        ("private-ucb", {"epsilon": 1.0, "radius_scale": 0.05}),
        pytest.param("private-ucb", {"epsilon": 123.4, "split_epsilon": True}, marks=LONG),
        ("dp-ucb-int", {"epsilon": 4.0}),
        pytest.param("dp-ucb-int", {"epsilon": 0.77, "delta": 0.2, "v": 1.45}, marks=LONG),
    ],
)
def test_agrees_with_an_independent_version(name: str, more: dict[str, Any]) -> None:
    # Seeds are fixed; with fresh ones 1 of 16,000 right policies would be 4 errors off.
    policy, horizon = make(name, **more), 300
    world = bl.environment("bernoulli", means=MEANS)
    ours = bl.simulate(policy, world, horizon=horizon, repetitions=1000, seed=5).final_regret(name)
    version = independent_interval_regret if name == "dp-ucb-int" else independent_regret
    theirs = np.array([version(policy, horizon, seed) for seed in range(200)])
    error = math.sqrt(ours.var(ddof=1) / ours.size + theirs.var(ddof=1) / theirs.size)
    assert abs(ours.mean() - theirs.mean()) < 4 * error
    assert error < 7  # of at most 210: the comparison has some power


# Privacy


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("pairs", looks(60, 200))
def test_decisions_see_rewards_through_mechanisms_only(name: str, pairs: int) -> None:
    policy = make(name, epsilon=4.0)
    audit = audit_by_replay(policy, policy.guarantee, rounds=200, pairs=pairs, seed=1)
    assert audit.verdict == "consistent", str(audit)
    assert audit.moved > pairs // 2
    assert 0 < audit.epsilon <= 4.0 * (1 + 1e-9)


# dp-ucb-int: when its indices change


# private-ucb


# Bad input


def test_refusals() -> None:
    with pytest.raises(ParameterError, match=r"delta = 0.0 .* above 0"):
        make("dp-ucb-int", delta=0.0)
    with pytest.raises(ParameterError, match="'delta' is missing"):
        bl.policy("dp-ucb-int", arms=3, epsilon=1.0)
    with pytest.raises(ParameterError, match=r"epsilon = 1e-30 is too small"):
        make("dp-ucb-int", epsilon=1e-30)
    with pytest.raises(ParameterError, match=r"v"):
        make("dp-ucb-int", v=1.0)
    with pytest.raises(ParameterError, match="'horizon' is missing"):
        bl.policy("private-ucb", arms=3, epsilon=1.0)
    for name in NAMES:
        with pytest.raises(ParameterError, match="epsilon"):
            make(name, epsilon=0.0)


@pytest.mark.parametrize("name", NAMES)
def test_guarantee(name: str) -> None:
    guarantee = make(name, epsilon=0.7).guarantee
    assert (guarantee.epsilon, guarantee.model, guarantee.scope) == (0.7, "central", "trajectory")
    assert guarantee.delta == (0.01 if name == "dp-ucb-int" else 0.0)


@pytest.mark.parametrize(("pulls", "expected"), [(99, 2), (100, 0)])
def test_first_pulls_of_an_added_arm_end_with_its_even_share(pulls: int, expected: int) -> None:
    """At this epsilon the noise stays above the bonus for tens of millions of pulls."""
    policy = make("dp-ucb", epsilon=0.01)
    params = policy.constants()._replace(added_after=np.array([0, 0, 200]))
    state = policy.kernels.begin(params)
    state.indices.tally.asked[:] = 100, 100, pulls
    state.indices.tally.pulls[:] = state.indices.tally.asked
    state.indices.tally.sums[:] = 60.0, 50.0, 40.0
    assert policy.kernels.choose(params, state, 300, None, None)[0] == expected
