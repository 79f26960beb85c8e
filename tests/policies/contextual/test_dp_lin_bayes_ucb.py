"""dp-lin-bayes-ucb: its posterior, what one reward moves, and which rewards are reported."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

import balaclava as bl
from balaclava.authoring import seeded
from balaclava.policies.contextual.dp_lin_bayes_ucb import learn, note_decision
from balaclava.simulation.engine import repetition_player
from balaclava.simulation.feedback import Feedback


def make(**parameters: Any) -> bl.Policy:
    given = {"arms": 3, "features": 3, "epsilon": 1.0, "delta": 1e-3, "batch": 20}
    return bl.policy("dp-lin-bayes-ucb", **{**given, "outstanding": 64, **parameters})


def play(policy: bl.Policy, rounds: int) -> tuple[Any, list[Any]]:
    """A state after so many rounds, and (row, reward, sum of releases after it) of each."""
    params, rng, contexts = policy.constants(), seeded(3), np.random.default_rng(4)
    begin, choose, _ = policy.kernels[:3]
    state, told = begin(params), []
    for t in range(1, rounds + 1):
        scale = 0.05 if t <= 20 else 0.4  # later rows are long by the shape of the first
        context = contexts.normal(size=(3, 3)) * [scale, 0.2, 0.1]
        context /= np.maximum(np.linalg.norm(context, axis=1, keepdims=True), 1.0)
        arm, phase = choose(params, state, t, context, rng)
        reward = float(contexts.random() < 0.5)
        learn(params, state, t, arm, reward, phase, rng)
        told.append((context[arm], reward, state.episodes.released[0].copy(), state.sums[0].copy()))
    return state, told


@pytest.mark.oracle
def test_the_posterior_is_that_of_bayes_rule() -> None:
    """Reports add x x' over their variance; a sum is N(G L' theta, v^2 G + s^2 I).

    After the first 20 decisions, every other is in a batch of 20: they end with number 59 and 99.
    """
    policy = make(ridge=0.5)
    params = policy.constants()
    state, told = play(policy, 100)
    X = np.array([row for row, *_ in told])
    variance = 0.25 / math.tanh(0.5) ** 2
    L = np.linalg.cholesky((0.5 * np.eye(3) + X[:20].T @ X[:20]) / 20)
    reported = np.r_[0:20, 21:100:2]
    precision = 0.5 * np.eye(3) + X[reported].T @ X[reported] / variance
    released, c, clipped, gains = np.zeros(3), math.sqrt(4.5), 0, np.zeros(3)
    for first in (20, 60):
        W = np.linalg.solve(L, X[first : first + 40 : 2].T).T
        weights = np.minimum(1.0, c / np.linalg.norm(W, axis=1))
        clipped += int((weights < 1.0).sum())
        G = (W * weights[:, None]).T @ W
        b = told[first + 38][2] - released
        released = told[first + 38][2]
        gain = L @ G @ np.linalg.inv(0.25 * G + params.deviation**2 * np.eye(3))
        precision, gains = precision + gain @ G @ L.T, gains + gain @ b
    sums = (
        told[19][3]
        + gains
        + sum(
            told[t][3] - told[t - 1][3]
            for t in range(21, 100, 2)  # what each report adds
        )
    )
    assert clipped > 5
    assert state.episodes.draws[0] == 2
    assert np.allclose(state.factor[0] @ state.factor[0].T, precision)
    assert np.allclose(state.theta[0], np.linalg.solve(precision, sums))


@pytest.mark.oracle
def test_without_noise_it_is_weighted_least_squares() -> None:
    """A report of a reward 0 or 1 is then the reward, and a sum is exact."""
    policy = make(epsilon=1e6, delta=0.0)
    state, told = play(policy, 100)
    X, r = np.array([row for row, *_ in told]), np.array([reward for _, reward, *_ in told])
    L = np.linalg.cholesky((np.eye(3) + X[:20].T @ X[:20]) / 20)
    lengths = np.linalg.norm(np.linalg.solve(L, X.T), axis=0)
    numbers = np.arange(1, 101)
    reported = (numbers <= 20) | (numbers % 2 == 0)
    weights = np.where(reported, 1.0, np.minimum(1.0, math.sqrt(4.5) / lengths)) / 0.25
    precision = np.eye(3) + (X * weights[:, None]).T @ X
    assert np.allclose(state.factor[0] @ state.factor[0].T, precision, rtol=1e-4)
    assert np.allclose(state.theta[0], np.linalg.solve(precision, X.T @ (weights * r)), atol=1e-4)


def test_no_reward_moves_a_sum_by_more_than_its_sensitivity() -> None:
    """For rows of any length in the shape, also where the shape is almost flat."""
    policy = make(batch=1, ridge=1e-9)
    params, rng = policy.constants(), np.random.default_rng(5)
    for _ in range(100):
        state = policy.kernels.begin(params)
        rows = [rng.normal(size=(3, 3)) * 10.0 ** rng.uniform(-6, 0, size=3) for _ in range(3)]
        for row in rows[:2]:  # both are reported
            note_decision(params, state, 0, row)
        phase = note_decision(params, state, 1, rows[2])
        state.episodes.number[0] = 1  # the batch stays open
        sums = []
        for reward in rng.permutation([0.0, 1.0]):
            twin = type(state)(*(_copied(part) for part in state))
            learn(params, twin, 3, 1, reward, phase, None)
            sums.append(twin.episodes.sums[0].sum(axis=0))
        assert 0.0 < np.linalg.norm(sums[0] - sums[1]) <= params.influence * (1 + 1e-12)


def _copied(part: Any) -> Any:
    if isinstance(part, np.ndarray):
        return part.copy()
    return type(part)(*(_copied(each) for each in part))


def test_the_order_of_decisions_says_which_rewards_are_reported() -> None:
    """Also if none has come: reports are released one by one, a batch once."""
    agent = make(batch=4, arms=2).agent(seed=1)
    rng = np.random.default_rng(6)
    decisions = [agent.ask(rng.uniform(-0.5, 0.5, size=(2, 3))) for _ in range(11)]
    releases = []
    for decision in decisions[::-1]:
        agent.tell(decision, 1.0)
        releases.append(agent.status().releases)
    # 11, 9, 7 and 5 are the batch; 10, 8, 6 and the first 4 are reported.
    assert releases == [0, 1, 1, 2, 2, 3, 4, 5, 6, 7, 8]


def test_a_default_batch_has_a_quarter_of_the_noise_of_reports() -> None:
    params = make(batch=None, features=10, delta=1e-5).constants()
    assert params.batch == 908
    reports = params.batch * (params.report_variance - 0.25)
    assert params.deviation**2 / params.batch == pytest.approx(
        0.25 * reports / params.batch, rel=2e-3
    )
    assert make(batch=None, epsilon=500.0, delta=0.0).constants().batch == 2**53


@pytest.mark.statistical
def test_it_learns_while_rewards_are_late() -> None:
    """Interpreted, in short runs: dp-linucb, which waits for its first episode, has 250 here."""
    world = bl.environment("linear", arms=5, theta=[0.7, 0.3, -0.4])
    policy = make(arms=5, delta=1e-5, batch=None, outstanding=4096)
    late = Feedback.create(bl.Delay(mean=150))
    play = repetition_player("", policy, world, np.array([1_500]), 1, late, interpreted=True)
    assert np.mean([play(run, np.zeros(2, np.int64)).regret[0] for run in range(4)]) < 100


@pytest.mark.slow
@pytest.mark.statistical
def test_it_learns_in_long_runs_while_rewards_are_late() -> None:
    """Reports count as they come; dp-linucb, which waits for its first episode, has 713 here."""
    world = bl.environment("linear", arms=5, theta=[0.7, 0.3, -0.4])
    policy = make(arms=5, delta=1e-5, batch=None, outstanding=4096)
    results = bl.simulate(
        policy, world, horizon=10_000, repetitions=10, seed=1, checkpoints=1,
        delay=bl.Delay(mean=1_000),
    )  # fmt: skip
    assert results.final_regret("dp-lin-bayes-ucb").mean() < 400
