"""prae-raw and prae-central: radii, estimates, phases, limits, and independent implementations."""

from __future__ import annotations

import math
import warnings

import numpy as np
import pytest

import balaclava as bl
import radius_coverage
from balaclava.auditing.replay import replay_audit
from balaclava.errors import ParameterError
from balaclava.policies.contaminated.prae import level_of, radius_of
from balaclava.privacy.randomness import seeded
from balaclava.theory.truncation_radius import (
    counted_terms,
    counted_threshold,
    level_ratio,
    located_threshold,
    located_width,
    mixed_terms,
    truncation_level,
    truncation_radius,
)


def raw(**changes):
    given = {"arms": 3, "epsilon": 1.0, "moment_order": 2, "horizon": 10**6}
    return bl.policy("prae-raw", **{**given, **changes})


def central(**changes):
    given = {"arms": 3, "epsilon": 1.0, "moment_order": 2, "horizon": 10**6, "mean_range": 20}
    return bl.policy("prae-central", **{**given, **changes})


# Radii


@pytest.mark.parametrize("k", [2.0, 3.0, 8.0])
@pytest.mark.parametrize("epsilon", [0.1, 1.0, 20.0])
@pytest.mark.parametrize("alpha", [0.0, 0.05, 0.4])
@pytest.mark.parametrize("n", [2, 64, 2**20])
def test_raw_radius(k, epsilon, alpha, n):
    delta = 1e-4
    M = (n * min(epsilon, 4.5 * (k - 1)) / math.log(1 / delta)) ** (1 / k)
    if alpha:
        M = min(M, alpha ** (-1 / k))
    beta = (
        math.sqrt(2 * (1 + alpha * M**2) * math.log(4 / delta) / n)
        + 2 * M * math.log(4 / delta) / (3 * n)
        + M ** (1 - k)
        + alpha * (M + 1)
        + 2 * M / (n * epsilon) * math.log(2 / delta)
    )
    most = alpha ** (-1 / k) if alpha else math.inf
    assert truncation_level(n, k, level_ratio(k, epsilon, delta), most) == pytest.approx(M)
    found = truncation_radius(M, n, k, epsilon, mixed_terms(alpha, delta))
    assert found == pytest.approx(beta, rel=1e-12)
    counted = (
        math.sqrt(2 * math.log(6 / delta) / n)
        + 2 * M * math.log(6 / delta) / (3 * n)
        + M ** (1 - k)
        + 2 * alpha * (M + 1)
        + 2 * M / (n * epsilon) * math.log(3 / delta)
    )
    found = truncation_radius(M, n, k, epsilon, counted_terms(alpha, delta))
    assert found == pytest.approx(counted, rel=1e-12)
    policy = raw(moment_order=k, epsilon=epsilon, contamination=alpha, failure_probability=delta)
    widened = radius_of(policy.constants(), n) / beta  # by what rounding to a grid can add
    assert 1 - 1e-12 < widened < 1 + 1e-4


@pytest.mark.parametrize("k", [2.0, 3.0, 8.0])
@pytest.mark.parametrize("alpha", [0.0, 0.05, 0.2])
@pytest.mark.parametrize("u", [1.0, 7.3])
def test_central_radius(k, alpha, u):
    delta, epsilon, B = 1e-4, 0.5, 2**14
    n, s = B // 2, u ** (1 / k)
    r = 10 ** (1 / k) if alpha == 0 else ((1 - alpha) / ((alpha + 0.25) / 2 - alpha)) ** (1 / k)
    c = 1 + 2 * r
    M = c * (n * epsilon / math.log(1 / delta)) ** (1 / k)
    if alpha:
        M = min(M, c * alpha ** (-1 / k))
    beta = (
        c * math.sqrt(2 * (1 + alpha * (M / c) ** 2) * math.log(8 / delta) / n)
        + 2 * M * math.log(8 / delta) / (3 * n)
        + c**k * M ** (1 - k)
        + alpha * (M + c)
        + 2 * M / (n * epsilon) * math.log(4 / delta)
    )
    policy = central(
        moment_order=k,
        epsilon=epsilon,
        contamination=alpha,
        moment_bound=u,
        failure_probability=delta,
        mean_range=50,
    )
    params = policy.constants()
    assert level_of(params, B) == pytest.approx(s * M, rel=1e-12)
    assert radius_of(params, B) == pytest.approx(s * beta, rel=1e-6)
    assert radius_of(params._replace(radius_scale=0.1), B) == pytest.approx(
        0.1 * radius_of(params, B)
    )


def test_bins_and_thresholds():
    assert located_width(2, 0.0) == (pytest.approx(math.sqrt(10)), pytest.approx(0.2))
    width, margin = located_width(3, 0.1)
    assert (width**3, margin) == (pytest.approx(12), pytest.approx(0.1))
    assert located_threshold(10, 0.2, 1.0, 1e-3) == pytest.approx(200 * math.log(8e4))
    assert located_threshold(10, 0.2, 0.01, 1e-3) == pytest.approx(4000 * math.log(4e4))
    assert counted_threshold(0.1, 1e-3) == pytest.approx(30 * math.log(3e3))
    policy = central(mean_range=20)  # bins of width 3.16 over [-23.2, 23.2)
    assert policy.bins == 15
    assert policy.needed_threshold == pytest.approx(2 * 200 * math.log(8 * 15 * 1e6))
    params = policy.constants()
    assert params.low == pytest.approx(-20 - math.sqrt(10))
    assert params.low + params.bins * params.width >= 20 + math.sqrt(10)
    assert raw(contamination=0.2).constants().threshold == 0
    assert raw(contamination=0.2, radius="paper").constants().threshold == pytest.approx(
        15 * math.log(3e6)
    )


COVERAGE = [
    ("prae-raw", "two-point", 2.0, 1.0, 0.0, 64),
    ("prae-raw", "two-point", 3.0, 0.1, 0.2, 1024),
    ("prae-central", "pareto", 2.0, 1.0, 0.0, None),
    ("prae-central", "pareto", 3.0, 0.1, 0.05, None),
]


@pytest.mark.slow
@pytest.mark.parametrize("setting", COVERAGE, ids=str)
def test_radii_cover_the_mean(setting):
    """Heavy tails, and outliers at the very edge of what is not truncated.

    An estimate misses with chance delta = 0.05 at most. Of 2,000 a share of 0.05 + 4 standard
    deviations = 0.0695 is allowed; seeds are fixed.
    """
    policy, world, size = radius_coverage.setting(*setting)
    seen = radius_coverage.coverage(policy, world, size, 2_000)
    assert seen.missed <= 0.0695
    assert 0.02 < seen.error < 1


@pytest.mark.slow
def test_a_radius_that_forgets_the_outliers_does_not_cover():
    """The same measurement finds fault with a radius that is too small: it misses every time."""
    policy, world, size = radius_coverage.setting("prae-raw", "two-point", 2.0, 1.0, 0.2, 4096)
    params = policy.constants()
    assert radius_coverage.coverage(policy, world, size, 500).missed == 0
    found = radius_coverage.estimates_of(policy, world, size, 500, seed=1)
    level = level_of(params, size)
    clean = truncation_radius(level, size, 2.0, 1.0, mixed_terms(0.0, 0.05)) - 1 / level
    assert (np.abs(found - world.means[0]) > clean).all()


# Estimates, beside plain numpy


def told(policy, rewards, seed):
    """Play given rewards[arm, pull] through one batch, arms in turn; the state after it."""
    params, rng = policy.constants(), seeded(seed)
    begin, choose, learn, _ = policy.kernels
    state, pulls = begin(params), np.zeros(policy.arms, int)
    for t in range(1, rewards.size + 1):
        arm, phase = choose(params, state, t, None, rng)
        learn(params, state, t, arm, rewards[arm, pulls[arm]], phase, rng)
        pulls[arm] += 1
    assert (pulls == rewards.shape[1]).all()
    return state


def test_one_batch_of_prae_raw():
    policy = raw(arms=2, epsilon=0.7, moment_order=3, moment_bound=5.0, contamination=0.02)
    rewards = np.random.default_rng(3).standard_t(2.5, (2, 2))
    M = 5 ** (1 / 3) * min((2 * 0.7 / math.log(1e6)) ** (1 / 3), 0.02 ** (-1 / 3))
    kept = np.where(np.abs(rewards) <= M, rewards, 0.0)
    rng = seeded(8)
    rng.random(4)  # the order of the arms in two blocks
    noise = rng.laplace(0, 2 * M / (2 * 0.7), 2)
    np.testing.assert_allclose(told(policy, rewards, 8).means, kept.mean(axis=1) + noise, rtol=1e-9)


def test_one_batch_of_prae_central():
    """The first batch is made as long as two folds of 1; noise in the order of its drawing."""
    policy = central(arms=2, epsilon=9.0, moment_order=3, moment_bound=2.0, threshold=0)
    rewards = np.array([[7.0, 8.5], [-12.0, 300.0]])
    s = 2 ** (1 / 3)
    r = s * 10 ** (1 / 3)
    c = s + 2 * r
    M = c * (1 * 9 / math.log(1e6)) ** (1 / 3)
    edges = -20 - r + r * np.arange(math.ceil(2 * (20 + r) / r) + 1)
    rng, centres, expected = seeded(5), [], []
    rng.random(2)  # the order of the arms
    for arm in range(2):
        counts, _ = np.histogram(rewards[arm, :1], edges)
        noisy = counts + rng.laplace(0, 2 / 9, counts.size)
        centres.append(edges[np.argmax(noisy)])
    rng.random(2)
    for arm in range(2):
        offset = rewards[arm, 1] - centres[arm]
        kept = offset if abs(offset) <= M else 0.0
        expected.append(centres[arm] + kept + rng.laplace(0, 2 * M / 9))
    assert np.abs(np.array(centres) - [7.0, -12.0]).max() <= r
    state = told(policy, rewards, 5)
    np.testing.assert_allclose(state.centres, centres, rtol=1e-12)
    np.testing.assert_allclose(state.batch.means, expected, rtol=1e-9)
    assert not state.counts.any()


def listing(world, policy, horizon, rng):
    """Algorithms 1 and 2 in plain numpy: the pulls of each arm."""
    values, chances = world.inner.values, world.inner.probabilities
    K, epsilon, k = len(values), policy.epsilon, policy.moment_order
    alpha, delta, u = policy.contamination, 1 / horizon, policy.moment_bound ** (1 / k)
    active, pulls, left, B = list(range(K)), np.zeros(K, int), horizon, 1
    while left > 0 and len(active) > 1:
        B *= 2
        if policy.threshold > B:
            arm, length = rng.integers(K), min(B, left)
            pulls[arm] += length
            left -= length
            continue
        if left < B * len(active):
            share, more = divmod(left, len(active))
            pulls[active] += share
            pulls[active[:more]] += 1
            return pulls
        left -= B * len(active)
        pulls[active] += B
        M = min((B * epsilon / math.log(1 / delta)) ** (1 / k), alpha ** (-1 / k))
        beta = (
            policy.radius_scale
            * u
            * (
                math.sqrt(2 * (1 + alpha * M**2) * math.log(4 / delta) / B)
                + 2 * M * math.log(4 / delta) / (3 * B)
                + M ** (1 - k)
                + alpha * (M + 1)
                + 2 * M / (B * epsilon) * math.log(2 / delta)
            )
        )
        means = []
        for arm in active:
            x = np.where(rng.random(B) < chances[arm], values[arm], 0.0)
            x[rng.random(B) < world.fraction] = world.outliers["value"]
            x[np.abs(x) > u * M] = 0.0
            means.append(x.mean() + rng.laplace(0, 2 * u * M / (B * epsilon)))
        best = max(means)
        active = [arm for arm, mean in zip(active, means, strict=True) if best - mean <= 2 * beta]
    pulls[active[0]] += left
    return pulls


@pytest.mark.oracle
def test_regret_agrees_with_the_listing():
    """Means of 200 runs each within 4 standard errors; seeds are fixed."""
    inner = {"name": "two-point", "values": [3.0, 1.0, -2.0], "probabilities": [0.4, 0.5, 0.3]}
    world = bl.environment(
        "contaminated", inner=inner, fraction=0.02, outliers={"kind": "point", "value": 3.0}
    )
    horizon = 6_000
    policy = raw(
        epsilon=0.4,
        moment_bound=3.6,
        contamination=0.02,
        radius_scale=0.3,
        threshold=30,
        horizon=horizon,
    )
    ours = bl.simulate(policy, world, horizon=horizon, repetitions=200, seed=1)
    rng = np.random.default_rng(2)
    theirs = np.array([listing(world, policy, horizon, rng) @ world.gaps for _ in range(200)])
    found = ours.final_regret("prae-raw")
    assert theirs.std() > 0
    error = math.hypot(found.std(), theirs.std()) / math.sqrt(200)
    assert abs(found.mean() - theirs.mean()) <= 4 * error


def test_less_privacy_never_widens_the_radius():
    for k in (2.0, 3.0, 8.0):
        radii = [
            radius_of(raw(moment_order=k, epsilon=epsilon).constants(), 2**12)
            for epsilon in (0.1, 1.0, 4.0, 20.0, 1e3, 1e9)
        ]
        assert radii == sorted(radii, reverse=True)


# Phases and limits


def decisions(policy, rounds, rewards=lambda arm, t: 0.0, seed=0):
    agent = policy.agent(seed=seed)
    made = []
    for t in range(rounds):
        made.append(agent.ask())
        agent.tell(made[-1], rewards(made[-1].arm, t))
    return made


def test_first_phase_uniform():
    """Batches of 2, 4, 8, each of one arm; then all arms in turn."""
    seen = set()
    for seed in range(20):
        made = decisions(raw(threshold=16), 14 + 3, seed=seed)
        arms = [decision.arm for decision in made]
        for first, last in ((0, 2), (2, 6), (6, 14)):
            assert len(set(arms[first:last])) == 1
        assert all(decision.phase == -1 for decision in made[:14])
        assert sorted(arms[14:]) == [0, 1, 2]
        seen |= {arms[0], arms[2], arms[6]}
    assert seen == {0, 1, 2}


def test_first_phase_each_round():
    made = decisions(raw(threshold=256, first_phase="each-round"), 254 + 3, seed=1)
    arms = [decision.arm for decision in made]
    # 254 fair draws from 3 arms: each count within 5 standard deviations (7.5) of 84.7.
    assert all(47 <= arms[:254].count(arm) <= 122 for arm in range(3))
    assert len(set(arms[:2]) | set(arms[2:6])) > 1
    assert sorted(arms[254:]) == [0, 1, 2]


@pytest.mark.parametrize("make", [raw, central])
def test_first_phase_greedy(make):
    """Each arm once, then the one whose released estimate is highest; nothing is removed."""
    policy = make(epsilon=1e6, threshold=100, first_phase="greedy", radius_scale=1e-3)
    rewards = (0.1, 0.9, 0.5)
    made = decisions(policy, 126 + 3, lambda arm, t: rewards[arm])
    arms = [decision.arm for decision in made]
    assert arms[:14] == [0] * 2 + [1] * 4 + [2] * 8
    assert arms[14:126] == [1] * 112
    assert sorted(arms[126:]) == [0, 1, 2]


def test_first_phase_half_greedy_tries_others():
    policy = raw(epsilon=1e6, threshold=10**6, first_phase="half-greedy")
    later = set()
    for seed in range(30):
        made = decisions(policy, 600, lambda arm, t: float(arm == 1), seed=seed)
        later |= {decision.arm for decision in made[400:]}
    assert later == {0, 1, 2}


def test_a_horizon_within_the_first_phase():
    policy = central(horizon=50)
    assert policy.constants().threshold > 1000
    world = bl.environment("gaussian", means=[0.0, 0.1, 0.2])
    pulls = bl.simulate(policy, world, horizon=50, repetitions=5, seed=1).pulls("prae-central")
    assert (pulls.sum(axis=1) == 50).all()
    assert all(decision.phase == -1 for decision in decisions(policy, 50))


@pytest.mark.parametrize("make", [raw, central])
def test_one_arm(make):
    assert {(d.arm, d.phase) for d in decisions(make(arms=1), 30)} == {(0, -1)}


@pytest.mark.parametrize("make", [raw, central])
def test_without_noise_the_best_arm_stays(make):
    policy = make(epsilon=1e9, radius_scale=1e-3, threshold=0)
    last = decisions(policy, 600, lambda arm, t: (0.05, 0.5, 0.3)[arm])[-1]
    assert (last.arm, last.phase) == (1, -1)


def test_a_batch_that_is_cut_off_releases_nothing():
    policy = raw(radius_scale=1e-9, epsilon=1e9)
    agent = policy.agent(seed=0)
    for _ in range(5):  # a batch takes 6
        decision = agent.ask()
        agent.tell(decision, 0.5 * decision.arm)
    assert np.isinf(agent._runner.state.means).all()
    assert agent._runner.state.epochs.active.all()


def test_rewards_may_be_rescaled_with_their_moment():
    """Rewards times 4 with a second moment times 16: the same decisions, exactly."""
    noise = np.random.default_rng(4).standard_t(3, 500)

    def arms(policy, scale):
        made = decisions(policy, 500, lambda arm, t: scale * (noise[t] + arm), seed=7)
        return [decision.arm for decision in made]

    small, large = raw(radius_scale=0.05), raw(radius_scale=0.05, moment_bound=16.0)
    assert arms(small, 1.0) == arms(large, 4.0)
    assert len(set(arms(small, 1.0)[-20:])) < 3  # something was removed
    small = central(radius_scale=0.01, threshold=8, mean_range=16)
    large = central(radius_scale=0.01, threshold=8, mean_range=64, moment_bound=16.0)
    assert arms(small, 1.0) == arms(large, 4.0)


@pytest.mark.slow
def test_prae_central_finds_means_far_from_0():
    """Where prae-raw truncates everything away."""
    world = bl.environment("gaussian", means=[500.0, 530.0, 560.0], scales=1.0)
    given = {"horizon": 60_000, "moment_order": 4, "moment_bound": 3.0}
    located = central(mean_range=600, **given)
    played = bl.simulate(located, world, horizon=60_000, repetitions=5, seed=1)
    assert (played.pulls("prae-central").argmax(axis=1) == 2).all()
    assert (played.pulls("prae-central")[:, 2] > 25_000).all()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # its moment bound is false here
        blind = bl.simulate(raw(**given), world, horizon=60_000, repetitions=5, seed=1)
    assert (blind.pulls("prae-raw")[:, 2] < 25_000).all()


@pytest.mark.parametrize("make", [raw, central])
@pytest.mark.parametrize(
    "extreme",
    [
        {"epsilon": 1e-100},
        {"epsilon": 1e100},
        {"moment_order": 500},
        {"horizon": 1},
        {"horizon": 10**18},
        {"contamination": 1e-300},
    ],
)
def test_extremes(make, extreme):
    """Nothing overflows, divides by 0 or stops, with rewards of every size."""
    policy = make(**extreme)
    assert all(beta > 0 for _, beta in policy.batches(10**6))
    for rewards in (lambda arm, t: 1e308 * (-1) ** t, lambda arm, t: 1e-320):
        assert len(decisions(policy, 40, rewards)) == 40


# Privacy


@pytest.mark.parametrize("number", range(7))
def test_replay_at_the_scale_of_the_truncation(number, monkeypatch):
    """Neighbours that move the sums as far as they can move cost epsilon, and no more."""
    from balaclava.testing.examples import examples

    policies = [p for make in (raw, central) for p in examples(type(make()))]
    policy = policies[number]
    level = level_of(policy.constants(), 8)
    monkeypatch.setattr(replay_audit, "reward_limits", lambda _: (-level, level))
    found = replay_audit.audit_by_replay(policy, policy.guarantee, rounds=160, pairs=160, seed=1)
    assert (found.verdict, found.fault) == ("consistent", "")
    assert found.moved > 20
    assert 0.5 < found.epsilon <= 1.0 + 1e-6


# Bounds


@pytest.mark.statistical
def test_regret_bound_holds_and_says_something():
    inner = {"name": "two-point", "values": [1.0, 1.0, 1.0], "probabilities": [0.9, 0.3, 0.1]}
    outliers = {"kind": "point", "value": 3.0}
    world = bl.environment("contaminated", inner=inner, fraction=0.0, outliers=outliers)
    policy = raw(horizon=30_000, moment_order=4, threshold=64)
    bound = policy.regret_bound(world, 30_000)
    found = bl.simulate(policy, world, horizon=30_000, repetitions=20, seed=3)
    assert found.final_regret("prae-raw").max() <= bound < 0.5 * 30_000 * 0.8
    sizes = [size for size, _ in policy.batches(30_000)]
    assert sizes == [2**tau for tau in range(6, 15)]
    removed = [next(s for s, b in policy.batches(30_000) if 4 * b < gap) for gap in (0.6, 0.8)]
    pulls = [2 * last - 64 for last in removed]
    by_hand = 62 * (0.6 + 0.8) / 3 + 0.6 * pulls[0] + 0.8 * pulls[1]
    failure = 3 * len(sizes) / 30_000
    assert bound == pytest.approx(by_hand + failure * 0.8 * (30_000 - 62))


def test_under_contamination_small_gaps_cost_linear_regret():
    world = bl.environment("two-point", values=[1.0, 1.0], probabilities=[0.6, 0.5])
    policy = raw(arms=2, contamination=0.2, horizon=10**9)
    assert policy.regret_bound(world, 10**9) == pytest.approx(0.1 * 10**9)


def test_no_bound_where_nothing_is_proved():
    world = bl.environment("two-point", values=[1.0, 1.0], probabilities=[0.9, 0.1])
    outliers = {"kind": "point", "value": 1.0}
    dirty = bl.environment("contaminated", inner=world, fraction=0.1, outliers=outliers)
    twice = bl.environment("contaminated", inner=dirty, fraction=0.1, outliers=outliers)
    rounds = 1000
    assert raw(arms=2).regret_bound(world, rounds) is not None
    assert raw(arms=2, radius_scale=0.9).regret_bound(world, rounds) is None
    assert raw(arms=2, radius_scale=1.1).regret_bound(world, rounds) is not None
    assert raw(arms=2, moment_bound=0.5).regret_bound(world, rounds) is None
    assert raw(arms=2).regret_bound(dirty, rounds) is None
    assert raw(arms=2, contamination=0.1).regret_bound(dirty, rounds) is not None
    assert raw(arms=2, contamination=0.1).regret_bound(twice, rounds) is None
    assert raw(arms=2, contamination=0.19).regret_bound(twice, rounds) is not None
    most = bl.environment("contaminated", inner=world, fraction=0.3, outliers=outliers)
    assert raw(arms=2, contamination=0.3).regret_bound(most, rounds) is not None
    assert raw(arms=2).regret_bound(bl.environment("table", rewards=[[1, 0]] * 9), 9) is None
    assert central(arms=2).regret_bound(world, rounds) is not None
    assert central(arms=2, threshold=64).regret_bound(world, rounds) is None
    far = bl.environment("gaussian", means=[0.0, 30.0])
    assert central(arms=2).regret_bound(far, rounds) is None
    assert central(arms=2, mean_range=30).regret_bound(far, rounds) is not None


# Refusals


@pytest.mark.parametrize(
    ("make", "wrong", "message"),
    [
        (raw, {"moment_order": 1.9}, "moment_order = 1.9 .* at least 2"),
        (raw, {"contamination": 0.5}, "contamination = 0.5"),
        (raw, {"horizon": None}, "horizon and failure_probability"),
        (raw, {"radius": "other"}, "radius = 'other' .* 'mixed', 'paper'"),
        (raw, {"first_phase": "none"}, "first_phase"),
        (
            raw,
            {"epsilon": 1e-100, "moment_bound": 1e-300},
            "gives truncation levels",
        ),
        (central, {"contamination": 0.25}, "contamination = 0.25 is too large: from 0.25 on"),
        (central, {"mean_range": 6.3}, "mean_range = 6.3 is below 6.32"),
        (central, {"mean_range": 20, "moment_bound": 16.0}, "mean_range = 20.0 is below"),
        (central, {"mean_range": 1e12}, "more than 1,000,000 bins"),
    ],
)
def test_refusals(make, wrong, message):
    with pytest.raises(ParameterError, match=message):
        make(**wrong)
    assert raw(contamination=0.49).contamination == 0.49
    assert central(contamination=0.24, mean_range=100).constants().threshold > 10**5


def test_short_batches_settle_while_longer_ones_are_under_way():
    """With all rewards late by 60 rounds, batches of 2, 4, 8 and 16 pulls of two arms are asked.

    Each is released as soon as its own rewards are in.
    """
    policy = bl.policy("prae-raw", arms=2, epsilon=1.0, moment_order=2, horizon=10**6)
    agent = policy.agent(seed=1)
    decisions = [agent.ask() for _ in range(60)]
    assert [decision.phase for decision in decisions] == [1] * 4 + [2] * 8 + [3] * 16 + [4] * 32
    for place, decision in enumerate(decisions, start=1):
        agent.tell(decision, reward=1.0)
        settled = sum(place >= end for end in (4, 12, 28, 60))
        assert agent.status().releases == 2 * settled


def lossy_first_fold(policy, rounds, seed):
    """Play prae-central; of the first fold of each batch three rewards of an arm arrive."""
    agent, rng = policy.agent(seed=seed), np.random.default_rng(seed)
    state = agent._runner.state
    arrived: dict[tuple[int, int], int] = {}
    for _ in range(rounds):
        decision = agent.ask()
        epochs, key = state.batch.epochs, (decision.phase, decision.arm)
        row = int(decision.phase) % epochs.left.size
        if decision.phase >= 0 and state.is_first_fold[row] and arrived.get(key, 0) == 3:
            agent.cancel(decision)
            continue
        arrived[key] = arrived.get(key, 0) + 1
        agent.tell(decision, (40.0, 30.0)[decision.arm] + rng.choice([-1.0, 1.0]))
    return state


def test_an_arm_is_compared_only_if_enough_rewards_located_its_centre():
    """Three rewards locate no centre among 600 bins; arms were dropped by such centres."""
    policy = bl.policy(
        "prae-central", arms=2, epsilon=1.0, moment_order=2, mean_range=1000.0,
        failure_probability=0.05,
    )  # fmt: skip
    rounds = 6 * int(policy.needed_threshold)
    state = lossy_first_fold(policy, rounds, seed=1)
    assert state.batch.epochs.settled.min() >= 1  # means about such centres
    assert state.batch.epochs.active.all()
    agent, rng = policy.agent(seed=1), np.random.default_rng(1)
    for _ in range(rounds):
        decision = agent.ask()
        agent.tell(decision, (40.0, 30.0)[decision.arm] + rng.choice([-1.0, 1.0]))
    assert agent._runner.state.batch.epochs.active.tolist() == [True, False]


def test_the_threshold_is_one_of_rewards():
    """With radius = "paper" the radius is not proved for the few rewards that arrive."""
    policy = bl.policy(
        "prae-raw", arms=2, epsilon=1.0, moment_order=2, moment_bound=1.0, contamination=0.05,
        radius="paper", failure_probability=0.1, radius_scale=0.01,
    )  # fmt: skip
    agent, rng = policy.agent(seed=1), np.random.default_rng(1)
    for _ in range(4_000):
        decision = agent.ask()
        if rng.random() < 0.99:
            agent.cancel(decision)
        else:
            agent.tell(decision, (0.9, -0.9)[decision.arm])
    epochs = agent._runner.state.epochs
    assert epochs.settled.min() >= 1
    assert epochs.active.all()
