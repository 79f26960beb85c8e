"""Means that follow random walks."""

from __future__ import annotations

import math

import numpy as np
import pytest

import balaclava as bl
from balaclava.environments.drifting import reflected
from balaclava.privacy.randomness import seeded


def walk_of(world, rounds, seed=0):
    """means[round, arm] of a game."""
    rng, scene = seeded(seed), world.scene.open(world.constants())
    means = []
    for t in range(1, rounds + 1):
        world.scene.renew(scene, t, rng)
        means.append(scene.means.copy())
    return np.array(means)


def test_a_walk_starts_at_the_means_and_stays_within_the_limits():
    world = bl.environment("drifting", means=[0.3, 0.5], step=0.2, low=0.25, high=0.55)
    means = walk_of(world, 2000)
    assert means[0].tolist() == [0.3, 0.5]
    assert means.min() >= 0.25
    assert means.max() <= 0.55
    assert np.ptp(means, axis=0).min() > 0.25


@pytest.mark.statistical
def test_steps_have_the_declared_deviation():
    """20,000 steps, away from the limits: 5 standard errors, wrong once in a million."""
    world = bl.environment("drifting", means=[0.5], step=1e-4)
    steps = np.diff(walk_of(world, 20_001)[:, 0])
    assert abs(steps.std() / 1e-4 - 1.0) < 5.0 / math.sqrt(2 * steps.size)
    assert abs(steps.mean()) < 5e-4 / math.sqrt(steps.size)


@pytest.mark.parametrize(
    ("x", "point"), [(0.3, 0.3), (0.1, 0.3), (0.9, 0.7), (-5.0, 0.8), (9.0, 0.2)]
)
def test_limits_are_mirrors(x, point):
    assert reflected(x, 0.2, 0.8) == pytest.approx(point)


def test_policies_see_the_same_walk_and_another_one_in_each_repetition():
    world = bl.environment("drifting", means=[0.5, 0.5, 0.5], step=0.02)
    policies = {"one": bl.policy("random", arms=3), "other": bl.policy("random", arms=3)}
    results = bl.simulate(policies, world, horizon=500, repetitions=2, seed=4)
    assert (results.regret("one") == results.regret("other")).all()
    assert len(set(results.final_regret("one"))) == 2


def test_bad_parameters_are_refused():
    for parameters, why in (
        ({"low": 0.5, "high": 0.5}, "low = 0.5 is not below high = 0.5"),
        ({"high": 0.3}, r"must lie in \[0, 0.3\]"),
        ({"step": -0.1}, "step"),
    ):
        with pytest.raises(bl.errors.ParameterError, match=why):
            bl.environment("drifting", **{"means": [0.4], "step": 0.1, **parameters})
