"""One environment of each family, and draws from them."""

from __future__ import annotations

import numpy as np
import pytest

import balaclava as bl
from balaclava.privacy.randomness import seeded

MEANS = (0.9, 0.7, 0.5, 0.3, 0.1)


POINT = {"kind": "point", "value": 50.0}


GAUSSIAN = {"kind": "gaussian", "mean": 3.0, "scale": 2.0}


CAUCHY = {"kind": "cauchy", "location": -1.0, "scale": 0.5}


def contaminate(inner, fraction=0.2, outliers=POINT):
    return bl.environment("contaminated", inner=inner, fraction=fraction, outliers=outliers)


def worlds():
    """One of each family, with arms that differ."""
    rewards = np.random.default_rng(5).normal(size=(40, 3))
    clean = [
        bl.environment("bernoulli", means=[0.2, 0.9]),
        bl.environment("gaussian", means=[-1.0, 2.0], scales=[0.5, 3.0]),
        bl.environment("pareto", means=[0.5, 3.0], shape=2.5),
        bl.environment("student-t", means=[-1.0, 4.0], degrees=2.5, scale=0.7),
        bl.environment("lognormal", means=[0.5, 3.0], sigma=0.8),
        bl.environment("two-point", values=[10.0, -2.0], probabilities=[0.1, 0.6]),
        bl.environment("table", rewards=rewards),
        bl.environment("empirical", samples=[rewards[:7, 0], rewards[:31, 1]]),
    ]
    return [
        *clean,
        contaminate(clean[0]),
        contaminate(clean[2], outliers=CAUCHY),
        contaminate(contaminate(clean[1], outliers=GAUSSIAN), fraction=0.1),
    ]


WORLDS = worlds()


each_world = pytest.mark.parametrize("world", WORLDS, ids=lambda world: repr(world)[:60])


def draws(world, arm, count, seed=0):
    draw, constants, rng = world.draw, world.constants(), seeded(seed)
    return np.array([draw(constants, t, arm, rng) for t in range(1, count + 1)])


def make_sample(draw):
    def sample(world, arm, count, rng):
        rewards = np.empty(count)
        for i in range(count):
            rewards[i] = draw(world, i + 1, arm, rng)
        return rewards

    return sample
