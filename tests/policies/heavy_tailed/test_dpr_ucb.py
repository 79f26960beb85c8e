"""DPR-UCB (Tao, Wu, Zhao, Wang 2022): levels, trees, errors and bounds."""

from __future__ import annotations

import math

import numpy as np
import pytest

import balaclava as bl
from balaclava.auditing.replay.replay_audit import audit_by_replay
from balaclava.privacy.mechanisms.counters import tree_levels
from balaclava.testing.conformance import interpreted_run
from tests.policies.heavy_tailed.test_truncated_elimination import MEANS, U, make, points, releases


def test_golden_levels_of_dpr_ucb() -> None:
    policy = make("dpr-ucb")
    assert policy.level(1) == pytest.approx(0.3793536258270509, rel=1e-14)
    assert policy.level(1000) == pytest.approx(14.38770775492968, rel=1e-14)
    state = policy.kernels.begin(policy.constants())
    assert state.trees.exact.shape == (5, 20)


def test_a_node_has_the_noise_of_its_last_item() -> None:
    policy = make("dpr-ucb", arms=1, horizon=100)
    found = [entry.terms for entry in releases(policy, 100)]
    assert len(found) == 100
    for n, terms in enumerate(found, start=1):
        assert terms.sensitivity == pytest.approx(2 * policy.level(n), rel=1e-14)
        assert terms.epsilon == 1 / tree_levels(100)


def test_dpr_ucb_without_noise_is_the_listing_to_the_last_decision() -> None:
    rewards = np.random.default_rng(4).normal(MEANS, size=(300, 3))
    policy = make("dpr-ucb", arms=3, epsilon=1e12, horizon=300, radius_scale=0.01)
    found, _ = interpreted_run(policy, bl.environment("table", rewards=rewards), 0)
    n, total, log = np.zeros(3), np.zeros(3), math.log(300)
    for t, arm in enumerate(found, start=1):
        expected = t - 1
        if t > 3:
            bonus = (math.log(2 * t**4) * log ** (1.5 + 1 / 0.9) / n) ** (0.9 / 1.9)
            expected = (total / n + 0.18 * U ** (1 / 1.9) * bonus).argmax()
        assert arm == expected
        n[arm] += 1
        x = rewards[t - 1, arm]
        total[arm] += x if abs(x) <= (U * n[arm] / log**1.5) ** (1 / 1.9) else 0.0
    assert n.min() > 3


def test_the_tree_of_an_arm_has_the_whole_epsilon() -> None:
    policy = make("dpr-ucb", arms=2, horizon=63, moment_bound=2.0, epsilon=0.7, radius_scale=0.01)
    audit = audit_by_replay(policy, policy.guarantee, rounds=63, pairs=300, seed=1)
    assert audit.verdict == "consistent", str(audit)
    assert 0.5 < audit.declared <= 0.7 * (1 + 1e-9)  # six levels, all of which the first is in
    assert 0.0 < audit.epsilon <= audit.declared  # later nodes are made for larger rewards


@pytest.mark.parametrize("order", [1.01, 1.5, 2.0])
def test_the_error_of_dpr_ucb_is_below_its_bonus(order: float) -> None:
    # At every number of levels: within one the error falls with log T, but for the rounding, which
    # grows with T; at both ends it is below 18.
    for levels in range(7, 56):
        for horizon in (max(2**levels, 100), 2 ** (levels + 1) - 1):
            assert make("dpr-ucb", horizon=horizon, moment_order=order).error < 18
    assert make("dpr-ucb", horizon=10, moment_order=1.01).error > 18


def test_the_error_of_dpr_ucb_by_simulation() -> None:
    """Private means of 64 heavy-tailed rewards are rarely further off than `error` says.

    At t = 64 each side may fail with probability 64^-4; none of 4,000 runs does.
    """
    order, T, n, t = 1.5, 1024, 64, 64
    world = bl.environment("pareto", means=[1.0], shape=1.55)
    policy = make("dpr-ucb", arms=1, horizon=T, moment_order=order, moment_bound=world.moment(1.5))
    rng, L = np.random.default_rng(3), tree_levels(T)
    x = world.least[0] * np.exp(rng.standard_exponential((4_000, n)) / 1.55)
    B = np.array([policy.level(i) for i in range(1, n + 1)])
    mean = (np.where(x <= B, x, 0.0).sum(axis=1) + rng.laplace(0, 2 * B[-1] * L, 4_000)) / n
    unit = policy.constants().bonus / 18 * (math.log(2 * t**4) / n) ** (0.5 / 1.5)
    assert np.abs(mean - 1.0).max() < policy.error * unit


def test_regret_bound_of_dpr_ucb_by_hand() -> None:
    world, T = points(0.0, 0.5, 1.0), 10**9
    common = {"arms": 3, "horizon": T, "moment_order": 2.0, "moment_bound": 1.0}
    policy = make("dpr-ucb", radius_scale=0.25, **common)
    log = math.log(T)
    pulls = 9**2 * math.log(2 * float(T) ** 4) * log**2.5 / np.array([1.0, 0.25]) + 2
    assert (pulls.sum()) < T
    expected = pulls[0] * 1.0 + pulls[1] * 0.5
    assert policy.regret_bound(world, T) == pytest.approx(expected, rel=1e-9)
    assert policy.regret_bound(world, 2 * T) is None  # made for T rounds


def test_dpr_ucb_learns_with_any_declared_horizon() -> None:
    """Its pulls of a worse arm grow as (log T)^(1.5 + 1/v), its sums do not get coarser.

    Fixed seed. Play at random has a regret of 8,000; a grid that grows with the horizon gives that.
    """
    world = bl.environment("pareto", means=[0.9, 0.1], shape=1.95)
    regrets = [
        bl.simulate(
            make(
                "dpr-ucb",
                arms=2,
                epsilon=50.0,
                horizon=declared,
                moment_order=1.9,
                moment_bound=world.moment(1.9),
                radius_scale=0.0003,
            ),
            world,
            horizon=20_000,
            repetitions=20,
            seed=1,
        )
        .final_regret("dpr-ucb")
        .mean()
        for declared in (20_000, 10**12)
    ]
    logs = math.log(10**12) / math.log(20_000)
    assert regrets[1] < regrets[0] * logs ** (1.5 + 1 / 0.9) * 1.5
    assert regrets[1] < 800
