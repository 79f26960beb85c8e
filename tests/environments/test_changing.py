"""Means that change at given rounds."""

from __future__ import annotations

import numpy as np
import pytest

import balaclava as bl
from balaclava.environments.changing import segment_of

SCHEDULE = [(1, [0.2, 0.9]), (4, [0.7, 0.1]), (9, [0.5, 0.6])]


def changing(**parameters):
    return bl.environment("changing", **parameters)


def test_each_round_has_the_segment_of_the_last_start():
    world = changing(schedule=SCHEDULE).constants()
    assert [segment_of(world, t) for t in range(1, 12)] == [0] * 3 + [1] * 5 + [2] * 3
    assert segment_of(world, 10**15) == 2


def test_a_period_repeats_the_schedule():
    world = changing(schedule=SCHEDULE, period=10).constants()
    first = [segment_of(world, t) for t in range(1, 11)]
    assert [segment_of(world, t) for t in range(11, 41)] == 3 * first


def test_regret_is_against_the_best_arm_of_each_round():
    """Arms in turn: the gap of an arm counts in the segment in which it is played."""
    policy = bl.policy("random", arms=2)
    world = changing(schedule=SCHEDULE)
    results = bl.simulate(policy, world, horizon=12, repetitions=5, seed=3, checkpoints=12)
    for repetition in range(5):
        gains = np.diff(results.regret("random")[repetition], prepend=0.0)
        gaps = {0: {0.0, 0.7}, 1: {0.0, 0.6}, 2: {0.0, 0.1}}
        for t, gain in enumerate(gains, 1):
            allowed = gaps[segment_of(world.constants(), t)]
            assert min(abs(gain - gap) for gap in allowed) < 1e-9


def test_regret_follows_from_the_pulls_before_and_after_a_swap():
    """The weak arm costs before the change, the other one after it."""
    world = changing(schedule=[(1, [1.0, 0.0]), (101, [0.0, 1.0])])
    results = bl.simulate(
        bl.policy("successive-elimination", arms=2, horizon=200),
        world, horizon=200, repetitions=1, seed=1, checkpoints=[100, 200],
    )  # fmt: skip
    early, late = results.regret("successive-elimination")[0]
    pulls = results.pulls("successive-elimination")[0]
    assert late == pytest.approx(early + 100 - (pulls[1] - early))


def test_means_are_averages_over_a_period():
    weekly = changing(schedule=[(1, [0.2, 0.4]), (6, [0.9, 0.4])], period=7)
    assert weekly.means == pytest.approx([(5 * 0.2 + 2 * 0.9) / 7, 0.4])
    assert not weekly.independent
    assert weekly.rounds is None
    assert bl.policy("dp-imed", arms=2, epsilon=1.0).regret_bound(weekly, 1000) is None


@pytest.mark.parametrize(
    ("schedule", "why"),
    [
        ([], "is not a list"),
        ("soon", "is not a list"),
        ([(2, [0.5])], "does not start at round 1"),
        ([(1, [0.5, 0.2]), (1, [0.3, 0.4])], "rounds that do not ascend"),
        ([(True, [0.5, 0.2])], "rounds that do not ascend"),
        ([(1, [0.5, 0.2]), (4, [0.3])], "several numbers of arms"),
        ([(1, [2.0])], r"means in \[0, 1\]"),
        ([(1, [float("nan")])], r"means in \[0, 1\]"),
        ([(1, "ab")], r"means in \[0, 1\]"),
        ([1, 2], "not a pair"),
    ],
)
def test_bad_schedules_are_refused(schedule, why):
    with pytest.raises(bl.errors.ParameterError, match=why):
        changing(schedule=schedule)


def test_a_period_must_reach_the_last_change():
    with pytest.raises(bl.errors.ParameterError, match="ends before the last change, at round 9"):
        changing(schedule=SCHEDULE, period=8)
