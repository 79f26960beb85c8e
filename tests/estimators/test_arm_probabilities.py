"""Probabilities of arms: Newton against bisection, and draws."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import balaclava as bl
from balaclava.authoring import compiled
from balaclava.estimators.arm_probabilities import draw_arm, tsallis_chances
from balaclava.privacy.randomness import seeded


class Forced:
    """Randomness that makes exp3 draw the last arm or the first."""

    def __init__(self) -> None:
        self.last = True

    def random(self) -> float:
        return 1.0 - 1e-12 if self.last else 0.0


def test_an_arm_without_a_chance_is_never_drawn() -> None:
    class Last:
        def random(self) -> float:
            return 1.0 - 2.0**-53

    assert draw_arm(np.array([0.3, 0.7 - 1e-15, 0.0]), Last()) == 1
    assert draw_arm(np.array([0.0, 1.0]), Forced()) == 1


def by_bisection(losses: np.ndarray, eta: float, power: float) -> np.ndarray:
    gaps = eta * (losses - losses.min())
    low, high = 1.0, losses.size ** (1.0 / power)
    for _ in range(200):
        middle = (low + high) / 2
        if ((gaps + middle) ** -power).sum() > 1.0:
            low = middle
        else:
            high = middle
    return (gaps + (low + high) / 2) ** -power


@given(
    losses=st.lists(st.floats(-1e3, 1e3), min_size=1, max_size=12),
    eta=st.floats(1e-4, 10.0),
    alpha=st.sampled_from([1.1, 1.5, 2.0]),
    start=st.floats(1.0, 50.0),
)
def test_newton_agrees_with_bisection(losses, eta, alpha, start) -> None:
    """From any start: the first step may overshoot to the left, all others climb."""
    given, power = np.array(losses), alpha / (alpha - 1.0)
    chances = np.zeros(given.size)
    root = np.array([min(start, given.size ** (1.0 / power))])
    steps = tsallis_chances(given, eta, power, root, chances)
    assert steps < 50
    np.testing.assert_allclose(chances, by_bisection(given, eta, power), rtol=1e-8, atol=1e-14)


@pytest.mark.parametrize("power", [2.0, 3.0, 11.0])
@pytest.mark.parametrize(
    "losses",
    [
        [1e300, -1e300, 0.0],
        [1e300] * 9,
        [-1e300] * 4,
        [0.0],
        [5.0, 5.0],
        [-1e-300, 1e-300, 0.0],
        [1e17, 1e17 + 16, 1e17],
    ],
)
def test_chances_sum_to_one_for_any_losses(losses, power) -> None:
    chances, root = np.zeros(len(losses)), np.ones(1)
    for eta in (1e-6, 1.0, 1e6):
        tsallis_chances(np.array(losses), eta, power, root, chances)
        assert (chances >= 0).all()
        assert abs(math.fsum(chances) - 1.0) < 1e-12


def test_newton_takes_few_steps() -> None:
    """On a run of nine arms, from the root of the round before."""

    def make(choose, learn, begin, solve):
        def run(params, means, rounds, rng):
            state, steps = begin(params), 0
            chances, root = np.zeros(params.arms), np.ones(1)
            for t in range(1, rounds + 1):
                eta = 1.0 / (params.sigma * math.sqrt(t))
                steps += solve(state.losses, eta, 2.0, root, chances)
                arm, phase = choose(params, state, t, None, rng)
                loss = 1.0 if rng.random() < means[arm] else 0.0
                learn(params, state, t, arm, loss, phase, rng)
            return steps / rounds

        return run

    policy = bl.policy("htinf", arms=9)
    begin, choose, learn, _ = policy.kernels
    run = compiled(make, choose, learn, begin, tsallis_chances)
    assert run(policy.constants(), np.linspace(0.3, 0.7, 9), 20_000, seeded(1)) < 4.0
