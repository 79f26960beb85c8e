"""dp-squarecb: its fit, its weights, its claim, and what it displays."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

import balaclava as bl
from balaclava.authoring import seeded
from balaclava.errors import EstimateError, ParameterError


def make(**parameters: Any) -> bl.Policy:
    given = {"arms": 3, "features": 2, "epsilon": 1.0, "delta": 1e-3, "first_batch": 12}
    return bl.policy("dp-squarecb", **{**given, "outstanding": 64, **parameters})


def play(policy: bl.Policy, rounds: int) -> tuple[Any, list[tuple[np.ndarray, int, float]]]:
    """A state after so many rounds; and the participant's row, arm and reward of each."""
    params, rng, people = policy.constants(), seeded(3), np.random.default_rng(4)
    begin, choose, learn, _ = policy.kernels
    state, told = begin(params), []
    for t in range(1, rounds + 1):
        x = people.normal(size=(1, params.features))
        x *= policy.feature_bound / np.linalg.norm(x)
        arm, phase = choose(params, state, t, x, rng)
        assert state.chances.sum() == pytest.approx(1.0)
        reward = float(people.random() < 0.5)
        learn(params, state, t, arm, reward, phase, rng)
        told.append((x[0], arm, reward))
    return state, told


@pytest.mark.oracle
@pytest.mark.parametrize("bound", [1.0, 10.0])
def test_without_noise_it_is_a_ridge_regression(bound: float) -> None:
    policy = make(disjoint=True, epsilon=650.0, delta=0.5, feature_bound=bound)
    params = policy.constants()
    state, told = play(policy, 27)  # batches end after 12, 18 and 27 decisions
    assert state.moments.draws[0] == 3
    shift = max(0.7 * params.deviation * math.sqrt(2.0 * 2 * 3), 1.0)
    for arm in range(3):
        X = np.array([x / bound for x, chosen, _ in told if chosen == arm])
        r = np.array([reward for _, chosen, reward in told if chosen == arm])
        fitted = np.linalg.solve(X.T @ X + shift * np.eye(2), X.T @ (r - 0.5))
        assert state.theta[arm] == pytest.approx(fitted, abs=0.05)


def test_weights_follow_the_gaps() -> None:
    policy = make(greed=2.0, disjoint=True)
    params = policy.constants()
    state = policy.kernels.begin(params)
    state.theta[:] = [[0.1, 0.0], [0.4, 0.0], [0.3, 0.0]]
    state.moments.rewards[0] = 150
    arms = [
        policy.kernels.choose(params, state, t, np.array([[1.0, 0.0]]), seeded(t))[0]
        for t in range(1, 60)
    ]
    gamma = 2.0 * math.sqrt(150 * 3 / 2)
    low = [1 / (3 + gamma * gap) for gap in (0.3, 0.1)]
    assert policy.chances(state) == pytest.approx([low[0], 1 - sum(low), low[1]])
    assert policy.propensity(state, 2) == pytest.approx(low[1])
    assert set(arms) == {0, 1, 2}


def test_a_matrix_full_of_noise_still_gives_finite_coefficients() -> None:
    """A small epsilon: the noise has larger eigenvalues than the features."""
    state, _ = play(make(features=6, disjoint=True, epsilon=0.01), 100)
    assert state.moments.draws[0] > 3
    assert np.isfinite(state.theta).all()
    assert np.abs(state.theta).max() < 100.0


def test_its_guarantee_is_joint() -> None:
    guarantee = make().guarantee
    assert (guarantee.scope, guarantee.model) == ("joint", "central")
    assert "features and reward" in guarantee.neighbours
    assert "a longer one is refused" in " ".join(guarantee.assumptions)
    clipped = make(long_features="clip", outside="clip").guarantee
    assert "a longer one is refused" not in " ".join(clipped.assumptions)
    window = make().agent(patience=10, settle="window", missing=0.0).guarantee
    assert "whether it arrived at all" in window.neighbours
    assert "features and reward" in window.neighbours


def test_nothing_that_it_displays_counts_decisions_by_arm() -> None:
    """The same number of decisions, of other arms, displays the same."""
    shown = set()
    for seed in range(5):
        agent = make(disjoint=True).agent(seed=seed)
        for _ in range(30):
            agent.tell(agent.ask([0.5, 0.5]), 1.0)
        shown.add(str(agent.status()))
    assert len(shown) == 1
    with pytest.raises(EstimateError, match="not protected"):
        agent.estimates()


def test_what_it_cannot_keep_is_refused() -> None:
    with pytest.raises(ParameterError, match=r"delta = 0\.0 has no joint privacy"):
        make(delta=0.0)
    with pytest.raises(ParameterError, match="too small for exact Gaussian noise on"):
        make(features=200, epsilon=0.01)


@pytest.mark.statistical
def test_it_learns_from_features() -> None:
    """Always the same arm would lose 5,000 here; 10,000 rounds at epsilon 1, 4 runs."""
    people = np.random.default_rng(1).normal(size=(200, 3))
    world = bl.environment("labelled", features=people, labels=(people[:, 0] > 0).astype(int))
    policy = make(arms=2, features=4, disjoint=True, delta=1e-5, first_batch=None)
    results = bl.simulate(policy, world, horizon=10_000, repetitions=4, seed=1, checkpoints=1)
    assert results.final_regret("dp-squarecb").mean() < 1_500


@pytest.mark.statistical
def test_it_learns_while_rewards_are_late() -> None:
    """Without deadlines of batches it loses 1,000 here, and random play 2,812."""
    world = bl.environment("linear", arms=5, theta=[0.7, 0.3, -0.4])
    policy = make(arms=5, features=3, delta=1e-5, first_batch=None, outstanding=4096)
    results = bl.simulate(
        policy, world, horizon=10_000, repetitions=6, seed=1, checkpoints=1,
        delay=bl.Delay(mean=1_000),
    )  # fmt: skip
    assert results.final_regret("dp-squarecb").mean() < 650
