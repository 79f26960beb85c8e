"""ldp-ucb-laplace and ldp-ucb-bernoulli: reports, rules and limits."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

import balaclava as bl
from balaclava.auditing.replay.replay_audit import audit_by_replay
from balaclava.auditing.tape import Recorder
from balaclava.errors import DecisionError, ParameterError, RewardError
from balaclava.privacy.randomness import seeded
from balaclava.testing import examples
from balaclava.testing.conformance import interpreted_run
from tests.effort import looks

NAMES = ["ldp-ucb-laplace", "ldp-ucb-bernoulli"]
MEANS = [0.2, 0.5, 0.9]


def make(name: str, **more: Any) -> Any:
    return bl.policy(name, **{"arms": 3, "epsilon": 1.0, **more})


# Reports


def reports(policy: bl.Policy, reward: float, size: int) -> np.ndarray:
    params, rng, kernel = policy.constants(), seeded(9), type(policy).report_kernel
    assert kernel is not None
    return np.array([kernel(params, reward, 1.0, rng) for _ in range(size)])


@pytest.mark.statistical
@pytest.mark.parametrize("x", [0.0, 0.3, 1.0])
@pytest.mark.parametrize("epsilon", [0.4, 2.0])
def test_the_law_of_a_report(x: float, epsilon: float) -> None:
    # Seeds are fixed; fresh ones would be 4 standard errors off once in 16,000 tests.
    coins = reports(make("ldp-ucb-bernoulli", epsilon=epsilon), x, 20_000)
    chance = (x * math.exp(epsilon) + 1 - x) / (1 + math.exp(epsilon))
    assert set(coins) <= {0.0, 1.0}
    assert abs(coins.mean() - chance) < 4 * math.sqrt(chance * (1 - chance) / coins.size)
    noise = reports(make("ldp-ucb-laplace", epsilon=epsilon), x, 20_000) - x
    # |Lap(b)| is exponential of mean and deviation b.
    assert abs(noise.mean()) < 4 * math.sqrt(2 / noise.size) / epsilon
    assert abs(np.abs(noise).mean() - 1 / epsilon) < 4 / epsilon / math.sqrt(noise.size)


@pytest.mark.parametrize("name", NAMES)
def test_a_report_needs_the_policy_alone(name: str) -> None:
    policy = make(name, epsilon=1e100, reward_range=(-2.0, 6.0))
    assert [policy.report(reward) for reward in (-2.0, 6.0)] == [0.0, 1.0]
    assert [policy.report(reward) for reward in (-1e308, 6.7310585)] == [0.0, 1.0]  # not silent
    with pytest.raises(RewardError):
        policy.report(math.nan)


@pytest.mark.parametrize("name", NAMES)
def test_learning_is_counting_reports(name: str) -> None:
    policy = make(name)
    params, (begin, _, learn, _) = policy.constants(), policy.kernels
    state, recorder = begin(params), Recorder(2)
    for reward in (0.0, 0.25, 1.0):
        learn(params, state, 1, 1, reward, 0, recorder)
    assert [entry.terms[1:] for entry in recorder.tape if entry.terms] == [(1.0, 1.0, 0.0)] * 3
    tally = getattr(state, "tally", state)
    assert tally.sums[1] == sum(entry.answer for entry in recorder.tape)
    assert tally.pulls.tolist() == [0, 3, 0]


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("pairs", looks(60, 200))
def test_decisions_see_reports_only(name: str, pairs: int) -> None:
    policy = make(name, epsilon=0.5)
    audit = audit_by_replay(policy, policy.guarantee, rounds=200, pairs=pairs, seed=1)
    assert audit.verdict == "consistent", str(audit)
    assert audit.moved > pairs // 2
    assert audit.epsilon == pytest.approx(0.5)
    assert (policy.guarantee.model, policy.guarantee.scope) == ("local", "report")


# Rules


def test_without_noise_it_is_ucb1() -> None:
    rewards = np.random.default_rng(3).random((300, 3)) < MEANS
    world = bl.environment("table", rewards=rewards * 1.0)
    expected = interpreted_run(bl.policy("ucb1", arms=3), world, 0)[0]
    exact = interpreted_run(make("ldp-ucb-bernoulli", epsilon=1e100), world, 0)[0]
    assert np.array_equal(exact, expected)
    noisy = interpreted_run(make("ldp-ucb-bernoulli"), world, 0)[0]
    assert not np.array_equal(noisy, expected)


def test_laplace_tries_rare_arms_first() -> None:
    world = bl.environment("table", rewards=np.tile([0.0, 0.0, 1.0], (300, 1)))
    arms = interpreted_run(make("ldp-ucb-laplace", epsilon=1e9), world, 0)[0]
    n = np.zeros(3, np.int64)
    forced = 0
    for t, arm in enumerate(arms, start=1):
        if n.min() <= 4 * math.log(t + 1):
            forced += 1
            assert arm == n.argmin()
        n[arm] += 1
    assert forced >= 2 * math.floor(4 * math.log(300))
    assert n[2] == n.max()


def independent_regret(policy: bl.Policy, horizon: int, seed: int) -> float:
    rng = np.random.default_rng([seed, 79])
    epsilon = policy.parameters["epsilon"]
    n, total = np.zeros(3), np.zeros(3)
    for t in range(1, horizon + 1):
        with np.errstate(divide="ignore", invalid="ignore"):
            index = total / n + np.sqrt(2 * math.log(t) / n)
            if policy.name == "ldp-ucb-laplace":
                index += np.sqrt(32 * math.log(t) / (epsilon**2 * n))
                index[n <= 4 * math.log(t + 1)] = math.inf
        index[n == 0] = math.inf
        arm = int(n.argmin() if np.isinf(index).any() else index.argmax())
        x = float(rng.random() < MEANS[arm])
        if policy.name == "ldp-ucb-laplace":
            y = rng.laplace(x, 1 / epsilon)
        else:
            y = float(rng.random() < (x * math.exp(epsilon) + 1 - x) / (1 + math.exp(epsilon)))
        n[arm] += 1
        total[arm] += y
    return float((max(MEANS) - np.array(MEANS)) @ n)


@pytest.mark.oracle
@pytest.mark.parametrize("epsilon", [1.0, 9.7])
@pytest.mark.parametrize("name", NAMES)
def test_agrees_with_an_independent_version(name: str, epsilon: float) -> None:
    # Seeds are fixed; with fresh ones 1 of 16,000 right policies would be 4 errors off.
    policy, horizon = make(name, epsilon=epsilon), 300
    world = bl.environment("bernoulli", means=MEANS)
    ours = bl.simulate(policy, world, horizon=horizon, repetitions=1000, seed=5).final_regret(name)
    theirs = np.array([independent_regret(policy, horizon, seed) for seed in range(100)])
    error = math.sqrt(ours.var(ddof=1) / ours.size + theirs.var(ddof=1) / theirs.size)
    assert abs(ours.mean() - theirs.mean()) < 4 * error
    assert error < 3


@pytest.mark.parametrize("name", NAMES)
def test_small_and_bad_input(name: str) -> None:
    for epsilon in (0.0, -1.0, math.inf, math.nan):
        with pytest.raises(ParameterError, match="epsilon"):
            make(name, epsilon=epsilon)
    agent = make(name, arms=1).agent(seed=1)
    for _ in range(30):
        agent.tell(decision := agent.ask(), reward=1.0)
        assert decision.arm == 0
    quiet = make(name).agent(seed=1)  # no reward ever comes: asking goes on, evenly
    asked = np.bincount([quiet.ask().arm for _ in range(300)])
    assert asked.tolist() == [100, 100, 100]


@pytest.mark.parametrize("name", NAMES)
def test_the_operator_learns_from_reports_alone(name: str) -> None:
    """Owners report, the operator is told reports: no reward is ever handed to the agent."""
    policy = make(name)
    agent = policy.agent()
    pulls = np.zeros(policy.arms, np.int64)
    for _ in range(3_000):
        decision = agent.ask()
        pulls[decision.arm] += 1
        agent.tell_report(decision, policy.report(1.0 if decision.arm == 1 else 0.0))
    assert pulls.argmax() == 1
    decision = agent.ask()
    for bad in (math.nan, math.inf, "1", None):
        with pytest.raises(RewardError, match="report"):
            agent.tell_report(decision, bad)
    agent.tell_report(decision, 1.0)
    with pytest.raises(DecisionError):
        agent.tell_report(decision, 1.0)


def test_only_local_policies_take_reports() -> None:
    agent = bl.policy("dp-se", arms=2, epsilon=1.0, horizon=10).agent()
    with pytest.raises(RewardError, match="use tell"):
        agent.tell_report(agent.ask(), 1.0)
    agent = make("ldp-ucb-bernoulli").agent()
    for forged in (2.0, 0.5, -1e308):
        with pytest.raises(RewardError, match="no device that follows"):
            agent.tell_report(agent.ask(), forged)


LOCAL = [entry.policy for entry in bl.list_policies() if entry.policy.model == "local"]


@pytest.mark.parametrize("policy", LOCAL, ids=lambda policy: str(policy.name))
def test_a_report_that_no_device_sends_is_refused(policy: Any) -> None:
    """Beyond the 1e-12 tail of the noise, for a reward at the end of its range."""
    made = bl.policy(policy.name, **{**examples(policy)[0].parameters, "epsilon": 0.5})
    level = 3.0
    rule = made.report_rule()
    for _ in range(200):
        made.checked_report(made.report(1e9, level), level)
    if rule["kind"] == "bit":
        limits = (0.0, 1.0)
    else:
        low, width = (-level, 2 * level) if rule["range"] is None else (0.0, 1.0)
        tail = math.log(1e12) * width / 0.5
        limits = (low - tail, low + width + tail)
    for limit, side in zip(limits, (-1, 1), strict=True):
        made.checked_report(limit, level)
        for forged in (limit + side * 1e-3 * (1 + abs(limit)), side * 1e308):
            with pytest.raises(RewardError, match="no device that follows"):
                made.checked_report(forged, level)
