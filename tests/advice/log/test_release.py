"""Noisy sums of a log."""

from __future__ import annotations

import warnings

import numpy as np
import pytest

import balaclava as bl


def write(path, rows):
    path.write_text("arm,reward\n" + "".join(f"{arm},{reward}\n" for arm, reward in rows))
    return path


def mixed(rng, n):
    """Rows of two arms, drawn evenly, with means 0.3 and 0.7."""
    arms = rng.integers(0, 2, n)
    return [(("a", "b")[arm], int(rng.random() < (0.3, 0.7)[arm])) for arm in arms]


def test_means_have_the_noise_of_one_release_an_arm(tmp_path):
    """Statistical: 60 absolute noises have a Gamma law; a false alarm has chance below 10^-6."""
    log = write(tmp_path / "log.csv", mixed(np.random.default_rng(1), 400))
    noises = []
    for _ in range(30):
        exact = bl.release_log(log, "arm", "reward", 1e9)
        noisy = bl.release_log(log, "arm", "reward", 0.5)
        noises += [
            (one.mean - other.mean) * one.rewards for one, other in zip(noisy, exact, strict=True)
        ]
    assert 0.45 < np.abs(noises).mean() / 2.0 < 1.9
    assert all(one.error > 0.5 / np.sqrt(one.rewards) for one in noisy)


def test_the_guarantee_says_who_pays_and_what_it_assumes(tmp_path):
    log = write(tmp_path / "log.csv", mixed(np.random.default_rng(1), 100))
    released = bl.release_log(log, "arm", "reward", 0.5)
    assert (released.guarantee.epsilon, released.guarantee.scope) == (0.5, "trajectory")
    said = " ".join(released.guarantee.assumptions)
    assert "did not look at rewards" in said
    assert "those who are in both" in said
    assert [row.label for row in released] == ["a", "b"]
    assert "ε=0.5 per trajectory" in str(released)


def test_a_released_log_is_a_prior(tmp_path):
    log = write(tmp_path / "log.csv", mixed(np.random.default_rng(1), 2_000))
    released = bl.release_log(log, "arm", "reward", 5.0)
    agent = bl.policy("dp-imed", arms=["a", "b"], epsilon=1.0).agent(seed=1, prior=released)
    assert {agent.ask().label for _ in range(20)} == {"b"}


def test_a_log_whose_arms_followed_rewards_is_warned_of(tmp_path):
    rng = np.random.default_rng(1)
    learned = mixed(rng, 500) + [("b", 1)] * 500
    with pytest.warns(bl.errors.AdaptiveLogWarning, match="shares of the arms change"):
        bl.release_log(write(tmp_path / "one.csv", learned), "arm", "reward", 1.0)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        bl.release_log(write(tmp_path / "other.csv", mixed(rng, 1_000)), "arm", "reward", 1.0)


def test_rewards_outside_the_range_are_refused_or_clipped(tmp_path):
    log = write(tmp_path / "log.csv", [("a", 0.5), ("b", 7.25)])
    with pytest.raises(bl.errors.RewardError) as refusal:
        bl.release_log(log, "arm", "reward", 1e9)
    assert "7.25" not in str(refusal.value)
    assert "outside reward_range = (0.0, 1.0)" in str(refusal.value)
    assert "dp-imed" not in str(refusal.value)  # the caller chose no policy
    clipped = bl.release_log(log, "arm", "reward", 1e9, outside="clip")
    assert clipped[1].mean == pytest.approx(1.0, abs=1e-5)
    wide = bl.release_log(log, "arm", "reward", 1e9, reward_range=(0.0, 10.0))
    assert wide[1].mean == pytest.approx(7.25, abs=1e-4)
    with pytest.raises(bl.errors.ParameterError, match="epsilon"):
        bl.release_log(log, "arm", "reward", 0.0)
