"""Intervals of arms hold their means; equal arms are not told apart."""

from __future__ import annotations

import numpy as np

from balaclava.advice.log.arm_estimates import (
    compare_best_arm,
    estimate_arm,
    estimate_weighted_arms,
    wilson_interval,
)


def test_identical_coins_are_not_told_apart() -> None:
    """1,000 logs of three equal coins: at most 8 % name a best arm, where 5 % or fewer should.

    More than that by chance has a probability below 1e-4.
    """
    rng = np.random.default_rng(4)
    named = 0
    for _ in range(1_000):
        rows = [
            estimate_arm(name, (rng.random(100) < 0.3).astype(float), None, None) for name in "abc"
        ]
        named += compare_best_arm(rows, binary=True).conclusive
    assert named <= 80


def test_intervals_hold_the_mean() -> None:
    """500 logs of each kind: a 95 % interval holds the mean in at least 90 % of them.

    That fewer do by chance has a probability below 1e-5, if 95 % is right.
    """
    rng = np.random.default_rng(6)
    held = np.zeros(3)
    people = np.repeat(np.arange(100), 3)
    for _ in range(500):
        clicks = estimate_arm("a", (rng.random(80) < 0.04).astype(float), None, None)
        held[0] += clicks.low <= 0.04 <= clicks.high
        each = np.repeat(rng.standard_normal(100), 3) + 0.1 * rng.standard_normal(300)
        clustered = estimate_arm("a", each, None, people)
        held[1] += clustered.low <= 0 <= clustered.high
        # Arm a is played on those who like it: 0.8 of the time, on others 0.2.
        likes = rng.random(1_000) < 0.5
        chance = np.where(likes, 0.8, 0.2)
        played = rng.random(1_000) < chance
        rewards = (rng.random(1_000) < np.where(likes, 0.9, 0.1)).astype(float)
        logged = np.where(played, chance, 1 - chance)
        row, _ = estimate_weighted_arms(["a", "b"], np.where(played, 0, 1), rewards, logged)
        assert rewards[played].mean() > 0.6  # what the log shows, where the truth is 0.5
        held[2] += row.snips_low <= 0.5 <= row.snips_high and row.ips_low <= 0.5 <= row.ips_high
    assert (held[:2] >= 450).all()
    assert held[2] >= 430  # both at once


def test_weighted_intervals_of_rare_clicks() -> None:
    """500 logs, 250 rows an arm, a click in 100: 95 % intervals hold the mean in 91 % or more.

    Fewer by chance has a probability below 1e-4. No limit is below 0, and none is 0 to 0.
    """
    rng = np.random.default_rng(18)
    held = np.zeros(2)
    for _ in range(500):
        arms = rng.integers(0, 4, 1_000)
        rewards = (rng.random(1_000) < 0.01).astype(float)
        row, *_ = estimate_weighted_arms(list("abcd"), arms, rewards, np.full(1_000, 0.25))
        assert 0 <= row.ips_low < row.ips_high
        assert 0 <= row.snips_low < row.snips_high
        held += [row.ips_low <= 0.01 <= row.ips_high, row.snips_low <= 0.01 <= row.snips_high]
    assert (held >= 455).all()


def test_the_hardest_to_tell_apart_is_not_called_the_next() -> None:
    """An arm with few rows is hard to tell from the best, though another has a higher average."""
    rows = [
        estimate_arm(name, np.repeat([1.0, 0.0], [ones, count - ones]), None, None)
        for name, ones, count in (("best", 900, 1_000), ("second", 700, 1_000), ("few", 12, 20))
    ]
    test = compare_best_arm(rows, binary=True)
    assert test.next == "few"
    assert "'few' is the hardest to tell from it" in test.sentence
    assert "next comes" not in test.sentence


def test_the_interval_of_no_success_starts_at_zero() -> None:
    for rows in range(1, 3_000):
        assert wilson_interval(0.0, rows + 0.3)[0] == 0.0
        assert wilson_interval(1.0, rows + 0.3)[1] == 1.0
