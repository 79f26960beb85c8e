"""robust-ucb: each estimator and each decision against a plain implementation of the paper."""

from __future__ import annotations

import math
from types import SimpleNamespace

import numpy as np
import pytest
from scipy.optimize import brentq

import balaclava as bl
from balaclava.authoring import compiled
from balaclava.errors import ParameterError
from balaclava.estimators.catoni import begin_catoni, catoni_mean, is_due, learn_catoni
from balaclava.estimators.median_of_means import (
    begin_median_of_means,
    has_new_blocks,
    median_of_means,
)
from balaclava.estimators.sample_pool import CHUNK, append, begin_pool
from balaclava.estimators.truncated_mean import (
    begin_truncation,
    learn_truncation,
    truncated_sum,
    truncation_level,
)
from balaclava.policies.classic.robust_ucb import (
    catoni_width,
    median_of_means_width,
    truncated_mean_width,
)
from balaclava.testing.conformance import round_of

ESTIMATORS = ["truncated-mean", "median-of-means", "catoni"]


def heavy(seed, *shape):
    """Samples of mean about 1 with a tail of index 2.1, on both sides."""
    random = np.random.default_rng(seed)
    return 1.0 + random.pareto(2.1, shape) * random.choice([-1.0, 1.0], shape)


# The paper, read plainly.


def plain_truncated_mean(x, t, order, bound):
    s = np.arange(1, len(x) + 1)
    threshold = (bound * s / math.log(t**2)) ** (1 / order)
    return np.where(np.abs(x) <= threshold, x, 0.0).mean()


def plain_median_of_means(x, t):
    k = max(math.floor(min(1 + 16 * math.log(t), len(x) / 2)), 1)
    size = len(x) // k
    return np.median(np.asarray(x)[: k * size].reshape(k, size).mean(axis=1))


def plain_catoni(x, t, variance):
    x, n, log_t = np.asarray(x), len(x), math.log(t)
    a = math.sqrt(4 * log_t / (n * (variance + 4 * variance * log_t / (n - 4 * log_t))))

    def total(m):
        y = a * (x - m)
        return (np.sign(y) * np.log1p(np.abs(y) + y**2 / 2)).sum()

    return brentq(total, x.min(), x.max(), xtol=1e-13, rtol=1e-14) if np.ptp(x) else x[0]


def plain_index(policy, x, t):
    n, p, u, log_t = len(x), policy.moment_order, policy.moment_bound, math.log(t)
    rate = (p - 1) / p
    if policy.estimator == "truncated-mean":
        estimate = plain_truncated_mean(x, t, p, u)
        bonus = 4 * u ** (1 / p) * (math.log(t**2) / n) ** rate
    elif policy.estimator == "median-of-means":
        estimate = plain_median_of_means(x, t)
        bonus = (12 * u) ** (1 / p) * ((32 * log_t + 2) / n) ** rate
    else:
        estimate = plain_catoni(x, t, u)
        bonus = math.sqrt(8 * u * log_t / n)
    return estimate + policy.radius_scale * bonus


def plain_play(policy, rewards):
    first = {
        "truncated-mean": 1,
        "median-of-means": 2,
        "catoni": math.ceil(8 * math.log(policy.horizon)),
    }[policy.estimator]
    seen = [[] for _ in range(policy.arms)]
    arms = []
    for t in range(1, len(rewards) + 1):
        if t <= first * policy.arms:
            arm = (t - 1) % policy.arms
        else:
            arm = int(np.argmax([plain_index(policy, np.array(x), t) for x in seen]))
        seen[arm].append(rewards[t - 1, arm])
        arms.append(arm)
    return arms


def make(estimator, **changes):
    order = 2.0 if estimator == "catoni" else 1.5
    parameters = {"arms": 3, "horizon": 400, "moment_order": order, "moment_bound": 4.0}
    return bl.policy("robust-ucb", estimator=estimator, **{**parameters, **changes})


@pytest.mark.parametrize("order", [1.2, 2.0])
def test_truncated_mean(order):
    horizon, bound, gap = 4000, 3.0, 7
    x = heavy(1, 500)
    state = begin_truncation(2, horizon)
    final = truncation_level(math.log(horizon), order)
    most = left = 0
    for s, value in enumerate(x):
        t = gap * s + 1
        level = truncation_level(math.log(t + 1), order)
        before = state.leaving[1]
        truncated_sum(state, 1, level)
        left += before - state.leaving[1]
        learn_truncation(state, 1, s, value, bound, order, level, final)
        most = max(most, state.leaving[1])
        estimate = truncated_sum(state, 1, level) / (s + 1)
        assert estimate == pytest.approx(
            plain_truncated_mean(x[: s + 1], t + 1, order, bound), abs=1e-9
        )
    assert most >= 3  # some waited
    assert left >= 3  # and left when their time came
    for t in (3600, 3900, horizon):
        estimate = truncated_sum(state, 1, truncation_level(math.log(t), order)) / 500
        assert estimate == pytest.approx(plain_truncated_mean(x, t, order, bound), abs=1e-9)
    assert state.leaving[1] == 0
    assert truncated_sum(state, 0, final) == 0.0


def test_a_full_heap_lets_the_first_go():
    horizon, order = 10_000, 2.0
    state = begin_truncation(1, horizon)
    room = state.levels.shape[1]
    assert room == 64 + int(8 * math.log(horizon) ** 2)
    level, final = (truncation_level(math.log(t), order) for t in (2, horizon))
    last = np.random.default_rng(3).uniform(level, final, 2 * room)
    x = np.sqrt(np.arange(1, 2 * room + 1)) / last  # each counts up to its own last level
    for s, value in enumerate(x):
        learn_truncation(state, 0, s, value, 1.0, order, level, final)
    stay = np.sort(last)[room:]
    assert state.leaving[0] == room
    assert np.sort(state.levels[0]) == pytest.approx(stay, rel=1e-12)
    assert truncated_sum(state, 0, level) == pytest.approx(x[last >= stay[0] - 1e-12].sum())
    half = (level + final) / 2
    assert truncated_sum(state, 0, half) == pytest.approx(
        x[(last >= half) & (last >= stay[0])].sum()
    )


def test_median_of_means():
    x = heavy(4, 3000)
    state = begin_median_of_means(2, 6000, 1 + int(16 * math.log(6000)))
    estimate, made = 0.0, 0
    for s, value in enumerate(x):
        append(state.samples, 0, s, -value)
        append(state.samples, 1, s, value)
        t = 2 * s + 2
        most = int(1 + 16 * math.log(t))
        if has_new_blocks(state, 1, s + 1, most):
            estimate = median_of_means(state, 1, s + 1, most)
            made += 1
        if s < 40 or s % 37 == 0:
            assert estimate == pytest.approx(plain_median_of_means(x[: s + 1], t), abs=1e-9)
    assert made < 500  # the work is done only when the blocks change


def test_catoni():
    x, variance = heavy(5, 900), 3.0
    state = begin_catoni(2, 2000)
    estimate = 0.0
    for s, value in enumerate(x):
        learn_catoni(state, 1, s, value)
        t = s + 2
        if s + 1 > 4 * math.log(t) and s % 23 == 0:
            estimate = catoni_mean(state, 1, s + 1, math.log(t), variance, estimate)
            assert estimate == pytest.approx(plain_catoni(x[: s + 1], t, variance), abs=1e-9)
    far = catoni_mean(state, 1, 900, math.log(901), variance, 1e9)  # whatever it starts from
    assert far == pytest.approx(plain_catoni(x, 901, variance), abs=1e-9)


def test_catoni_of_equal_samples_is_the_sample():
    state = begin_catoni(1, 50)
    for s in range(50):
        learn_catoni(state, 0, s, 7.25)
    assert catoni_mean(state, 0, 50, math.log(50), 1.0, 0.0) == 7.25


def test_one_wild_reward_moves_no_estimate_far():
    x = heavy(6, 640)
    wild = x.copy()
    wild[5] = 1e15
    estimates = []
    for samples in (x, wild):
        medians, catoni = begin_median_of_means(1, 640, 101), begin_catoni(1, 640)
        cut = begin_truncation(1, 640)
        level = truncation_level(math.log(640), 2.0)
        for s, value in enumerate(samples):
            append(medians.samples, 0, s, value)
            learn_catoni(catoni, 0, s, value)
            learn_truncation(cut, 0, s, value, 4.0, 2.0, level, level)
        estimates.append(
            (
                median_of_means(medians, 0, 640, 101),
                catoni_mean(catoni, 0, 640, math.log(640), 3.0, 0.0),
                truncated_sum(cut, 0, level) / 640,
            )
        )
    assert estimates[1] == pytest.approx(estimates[0], abs=1.0)  # the mean moves by 1e12
    assert estimates[1][0] == pytest.approx(np.median(wild[:606].reshape(101, 6).mean(axis=1)))


def test_the_pool_keeps_order_and_fits_the_horizon():
    horizon, arms = 1000, 7
    pool = begin_pool(arms, horizon)
    random = np.random.default_rng(7)
    told = np.zeros(arms, np.int64)
    seen = [[] for _ in range(arms)]
    for value in range(horizon):
        # The worst case for space: as many arms as can have opened a chunk for one sample.
        arm = value % arms if value < arms or random.random() < 0.3 else 0
        append(pool, arm, told[arm], float(value))
        told[arm] += 1
        seen[arm].append(value)
    for arm in range(arms):
        chunk, read = pool.first[arm], []
        for start in range(0, told[arm], CHUNK):
            part = pool.values[chunk, : min(CHUNK, told[arm] - start)]
            assert pool.totals[chunk] == part.sum()
            read.extend(part)
            chunk = pool.following[chunk]
        assert read == seen[arm]
    assert pool.values.size <= horizon + arms * CHUNK


def test_bonuses():
    def params(order, bound):
        return SimpleNamespace(moment_order=order, moment_bound=bound)

    # log t = 2, u = 4: 4 sqrt(4) sqrt(4); u = 8, order 1.5, log t = 4: 4 * 8^(2/3) * 8^(1/3)
    assert truncated_mean_width(params(2.0, 4.0), 2.0) == pytest.approx(16.0)
    assert truncated_mean_width(params(1.5, 8.0), 4.0) == pytest.approx(32.0)
    # sqrt(12 * 3) sqrt(32 * 7/16 + 2)
    assert median_of_means_width(params(2.0, 3.0), 7 / 16) == pytest.approx(24.0)
    assert median_of_means_width(params(1.5, 18.0), 3 / 16) == pytest.approx(36.0 * 2.0)
    assert catoni_width(params(2.0, 2.0), 4.0) == pytest.approx(8.0)
    state = make("truncated-mean", horizon=8)
    agent_state = state.kernels.begin(state.constants())
    for t in range(1, 9):
        state.kernels.learn(state.constants(), agent_state, t, 0, 0.0, 0, None)
    assert agent_state.shrinkage[0] == pytest.approx(0.5)  # 8^(-1/3)


def make_replay(begin, choose, learn):
    def replay(params, rewards):
        state = begin(params)
        arms = np.zeros(rewards.shape[0], np.int64)
        for t in range(1, rewards.shape[0] + 1):
            arm, phase = choose(params, state, t, None, None)
            learn(params, state, t, arm, rewards[t - 1, arm], phase, None)
            arms[t - 1] = arm
        return arms

    return replay


@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_every_decision(estimator):
    rewards = heavy(8, 400, 3) + np.array([0.0, 0.4, 0.8])
    policy = make(estimator, radius_scale=0.3)
    expected = plain_play(policy, rewards)
    agent = policy.agent(seed=0)
    arms = []
    for t in range(400):
        decision = agent.ask()
        agent.tell(decision, rewards[t, decision.arm])
        arms.append(decision.arm)
    assert arms == expected
    assert (np.diff(arms[100:]) != 0).sum() >= 15  # it is a close call to the end
    replay = compiled(make_replay, *policy.kernels[:3])
    assert replay(policy.constants(), rewards).tolist() == expected


@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_late_and_lost_rewards(estimator):
    policy = make(estimator, radius_scale=0.1)
    rewards = heavy(9, 300, 3)
    agent = policy.agent(seed=0)
    random = np.random.default_rng(10)
    seen = [[] for _ in range(3)]
    first = [agent.ask() for _ in range(30)]
    assert np.bincount([d.arm for d in first]).tolist() == [10, 10, 10]
    for decision in first:
        agent.cancel(decision)
    for _ in range(27):
        batch = [agent.ask() for _ in range(10)]
        for i in random.permutation(10):
            if random.random() < 0.8:
                value = rewards[round_of(batch[i]) - 1, batch[i].arm]
                agent.tell(batch[i], value)
                seen[batch[i].arm].append(value)
    assert agent._runner.state.pulls.tolist() == [len(x) for x in seen]
    expected = int(np.argmax([plain_index(policy, np.array(x), 301) for x in seen]))
    assert agent.ask().arm == expected


@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_rewards_after_the_horizon_are_dropped(estimator):
    policy = make(estimator, horizon=200)
    agent = policy.agent(seed=0)
    for _ in range(200):
        agent.tell(agent.ask(), 1.0)
    late = [agent.ask() for _ in range(3)]
    told = agent._runner.state.pulls.copy()
    for decision in late:
        agent.tell(decision, -1e6)
    assert np.array_equal(agent._runner.state.pulls, told)
    assert {agent.ask().arm for _ in range(5)} == {late[0].arm}


@pytest.mark.parametrize("estimator", ESTIMATORS)
@pytest.mark.parametrize("horizon", [1, 2, 3])
def test_short_horizons(estimator, horizon):
    agent = make(estimator, arms=1, horizon=horizon).agent(seed=0)
    for _ in range(6):
        decision = agent.ask()
        agent.tell(decision, 1.0)
        assert decision.arm == 0


def test_refresh_saves_work():
    state = begin_catoni(1, 1000)
    for s in range(1000):
        learn_catoni(state, 0, s, float(s % 3))
    catoni_mean(state, 0, 400, 5.0, 1.0, 0.0)
    assert is_due(state, 0, 400, 5.001, 0.0)
    assert not is_due(state, 0, 400, 5.0, 0.0)
    assert not is_due(state, 0, 404, 5.04, 0.01)
    assert is_due(state, 0, 405, 5.0, 0.01)
    assert is_due(state, 0, 400, 5.06, 0.01)


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"estimator": "mean"}, "estimator"),
        ({"moment_order": 1.0}, "moment_order"),
        ({"moment_order": 2.1}, "moment_order"),
        ({"estimator": "catoni"}, "moment_order"),
        ({"moment_bound": 0.0}, "moment_bound"),
        ({"horizon": 0}, "horizon"),
        ({"radius_scale": 0.0}, "radius_scale"),
        ({"estimator": "catoni", "moment_order": 2.0, "refresh": -0.1}, "refresh"),
        ({"refresh": 0.1}, "refresh"),
    ],
)
def test_bad_parameters(changes, named):
    good = {"arms": 2, "horizon": 10, "moment_order": 1.5, "moment_bound": 1.0}
    with pytest.raises(ParameterError, match=named):
        bl.policy("robust-ucb", **{**good, **changes})


def test_regret_bounds():
    world = bl.environment("bernoulli", means=[0.75, 0.25, 0.75])
    parameters = {"horizon": 100, "moment_order": 2.0}

    def bound(estimator, u, **changes):
        policy = make(estimator, moment_bound=u, **{**parameters, **changes})
        return policy.proved_bound(world, 100)

    log_t = math.log(100)
    # The gap is 1/2. Pulls until twice the bonus is below it, times the gap, plus 1 + 2 log T gaps.
    late = 0.5 + log_t
    assert bound("truncated-mean", 1.0) == pytest.approx(4 * 64 * log_t + late)
    assert bound("truncated-mean", 0.75, moment_order=1.5) == pytest.approx(8 * 288 * log_t + late)
    assert bound("catoni", 0.25) == pytest.approx(4 * 4 * log_t + 4 * log_t + 0.5 + late)
    later = bound("catoni", 0.25, horizon=10_000)  # which sets how often arms are pulled first
    assert later == pytest.approx(4 * 4 * log_t + 4 * math.log(10_000) + 0.5 + late)
    assert bound("median-of-means", 0.25) is None  # of few rewards its estimate proves nothing
    assert bound("truncated-mean", 0.7) is None  # E X^2 = 0.75
    assert bound("catoni", 0.18) is None  # the variance is 3/16
    assert bound("truncated-mean", 1.0, radius_scale=0.5) is None
    assert bound("truncated-mean", 1.0, horizon=99) is None
