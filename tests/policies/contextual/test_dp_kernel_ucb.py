"""dp-kernel-ucb: its posteriors, which model decides, and what a reward moves."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

import balaclava as bl
from balaclava.estimators.kernel_rows import add_landmark, expand
from balaclava.policies.contextual.dp_kernel_ucb import (
    KERNEL_MODEL,
    LINEAR_MODEL,
    PRIOR_ODDS,
    learn_report,
)


def make(**parameters: Any) -> bl.Policy:
    given = {"arms": 3, "features": 3, "epsilon": 1.0, "landmarks": 6, "outstanding": 64}
    return bl.policy("dp-kernel-ucb", **{**given, **parameters})


def unit_rows(rng: np.random.Generator, rows: int) -> np.ndarray:
    drawn = rng.normal(size=(rows, 3))
    return drawn / np.linalg.norm(drawn, axis=1, keepdims=True)


def play(policy: bl.Policy, rounds: int) -> tuple[Any, list[Any]]:
    """A state after so many rounds, its landmarks found before, and (arm, row, report) of each."""
    params, rng = policy.constants(), np.random.default_rng(4)
    state, told = policy.kernels.begin(params), []
    while state.landmarks.count[0] < params.landmarks:
        expand(state.landmarks, unit_rows(rng, 1)[0], 1.0)
        add_landmark(state.landmarks)
    for t in range(1, rounds + 1):
        context = unit_rows(rng, 1 if params.disjoint else 3)
        arm, phase = policy.kernels.choose(params, state, t, context, None)
        bit = float(rng.random() < 0.5)
        learn_report(params, state, t, arm, bit, phase, None)
        row = context[0 if params.disjoint else arm]
        told.append((arm, row, 0.5 + (bit - 0.5) / math.tanh(0.5 * params.epsilon)))
    return state, told


@pytest.mark.oracle
@pytest.mark.parametrize("disjoint", [False, True])
@pytest.mark.parametrize("epsilon", [1.0, 1e3])
def test_the_posterior_is_that_of_bayes_rule(disjoint: bool, epsilon: float) -> None:
    """For both models; the evidence is the density of all reports together.

    At epsilon 1,000 a report is the reward, and the policy is the one without privacy.
    """
    policy = make(disjoint=disjoint, epsilon=epsilon)
    state, told = play(policy, 60)
    variance, Z = 0.25 / math.tanh(0.5 * epsilon) ** 2, state.landmarks.points
    for model, size in ((LINEAR_MODEL, 3), (KERNEL_MODEL, 9)):
        evidence = PRIOR_ODDS if model == KERNEL_MODEL else 0.0
        for block in range(policy.blocks):
            mine = [each for each in told if each[0] == block or not disjoint]
            X, reports = np.array([row for _, row, _ in mine]), np.array([r for *_, r in mine])
            known, among = (
                0.25 / (1.0 + 4.0 * ((rows[:, None] - Z) ** 2).sum(axis=2)) for rows in (X, Z)
            )
            white = np.linalg.solve(np.linalg.cholesky(among), known.T).T
            phi = np.hstack([X, white])[:, :size]
            covariance = np.linalg.inv(np.eye(size) + phi.T @ phi / variance)
            assert np.allclose(state.inverse[model, block, :size, :size], covariance)
            mean = covariance @ phi.T @ reports / variance
            assert np.allclose(state.theta[model, block, :size], mean)
            prior = variance * np.eye(len(mine)) + phi @ phi.T  # of all reports
            evidence -= 0.5 * reports @ np.linalg.solve(prior, reports)
            evidence -= 0.5 * np.linalg.slogdet(prior)[1]
        assert state.evidence[model] == pytest.approx(evidence)


@pytest.mark.oracle
def test_it_plays_the_highest_quantile_of_the_likelier_model() -> None:
    policy = make(disjoint=True, radius_scale=0.5)
    params, rng = policy.constants(), np.random.default_rng(5)
    state, _ = play(policy, 60)
    for model, size in ((LINEAR_MODEL, 3), (KERNEL_MODEL, 9)):
        state.evidence[:] = 0.0
        state.evidence[model] = 1.0
        for t in range(61, 71):
            context = unit_rows(rng, 1)
            arm, _ = policy.kernels.choose(params, state, t, context, None)
            expand(state.landmarks, context[0], 1.0)
            phi = state.landmarks.row[:size]
            indices = [
                theta[:size] @ phi
                + 0.5 * math.sqrt(2 * math.log(3)) * math.sqrt(phi @ P[:size, :size] @ phi)
                for theta, P in zip(state.theta[model], state.inverse[model], strict=True)
            ]
            assert arm == int(np.argmax(indices))


def test_a_reward_counts_once_and_not_when_it_was_given_up() -> None:
    policy = make()
    params = policy.constants()
    state, _ = play(policy, 5)
    contexts = unit_rows(np.random.default_rng(6), 6)
    arm, phase = policy.kernels.choose(params, state, 6, contexts[:3], None)
    lost, late = policy.kernels.choose(params, state, 7, contexts[3:], None)
    policy.kernels.forget(params, state, 8, lost, late, None)
    for number, counted in ((phase, 6), (phase, 6), (late, 6)):
        before = state.theta.copy()
        learn_report(params, state, 8, arm, 1.0, number, None)
        assert state.reports.sum() == counted
    assert np.array_equal(state.theta, before)


def ring() -> bl.Environment:
    """Two arms; the better one depends on the sign of a product, which no line tells."""
    turns = 2 * math.pi * (np.arange(400) + 0.5) / 400
    table = np.column_stack([np.ones(400), np.cos(turns), np.sin(turns)]) / math.sqrt(2.0)
    labels = (np.cos(turns) * np.sin(turns) > 0).astype(int)
    return bl.environment("labelled", features=table, labels=labels, scaling="none")


@pytest.mark.statistical
def test_it_learns_what_is_not_linear_and_drops_the_kernel_where_all_is() -> None:
    """Means of 100 runs: 284 and 1,387 on the ring, where random play has 2,000, and 82.

    Deviations are at most 253, 158 and 29: the limits are 3, 3.5 and 8 standard errors away.
    """
    policy = make(arms=2, disjoint=True, landmarks=64)
    assert regret(policy, ring()) < 700
    assert regret(make(arms=2, disjoint=True, landmarks=0), ring()) > 1_100
    straight = bl.environment("linear", arms=5, theta=[0.7, 0.3, -0.4])
    assert regret(make(arms=5, landmarks=64), straight) < 200


def regret(policy: bl.Policy, world: bl.Environment) -> float:
    results = bl.simulate(policy, world, horizon=4_000, repetitions=4, seed=1, checkpoints=1)
    return float(results.final_regret("dp-kernel-ucb").mean())


@pytest.mark.statistical
def test_it_learns_while_rewards_are_late() -> None:
    """Reports count as they come; dp-linucb, which waits for its first episode, has 713 here."""
    world = bl.environment("linear", arms=5, theta=[0.7, 0.3, -0.4])
    policy = make(arms=5, landmarks=64, outstanding=4096)
    results = bl.simulate(
        policy, world, horizon=10_000, repetitions=4, seed=1, checkpoints=1,
        delay=bl.Delay(mean=1_000),
    )  # fmt: skip
    assert results.final_regret("dp-kernel-ucb").mean() < 400
