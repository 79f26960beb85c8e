"""Noisy sums of a log."""

from __future__ import annotations

import importlib
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


@pytest.mark.parametrize("even_rows", [300, 5_000])
def test_a_log_that_learned_early_is_warned_of(tmp_path, even_rows):
    """Of 10,000 rows the first are even: halves of the log differ by two per cent at 300."""
    rng = np.random.default_rng(2)
    later = [("b" if rng.random() < 0.95 else "a", 1) for _ in range(10_000 - even_rows)]
    log = write(tmp_path / "log.csv", mixed(rng, even_rows) + later)
    with pytest.warns(bl.errors.AdaptiveLogWarning):
        bl.release_log(log, "arm", "reward", 1.0)


def test_no_log_with_fixed_shares_is_warned_of(tmp_path):
    """Statistical: 60 logs, with rare arms and short ones; a false alarm has chance below 10^-4."""
    rng = np.random.default_rng(3)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for rows in (1, 2, 5, 20, 300, 2_000) * 10:
            arms = rng.choice(["a", "b", "c", "d"], rows, p=[0.9, 0.09, 0.009, 0.001])
            log = write(tmp_path / "log.csv", [(arm, 0) for arm in arms])
            assert sum(row.rewards for row in bl.release_log(log, "arm", "reward", 1.0)) == rows


def test_a_release_is_charged_before_it_is_made(tmp_path, monkeypatch):
    log, events = write(tmp_path / "log.csv", [("a", 0.5), ("b", 0.25)]), []
    module = importlib.import_module("balaclava.advice.log.release")
    draw = module.laplace_release
    noted = lambda *terms: events.append("noise") or draw(*terms)  # noqa: E731
    monkeypatch.setattr(module, "laplace_release", noted)

    def refuse(epsilon):
        raise bl.errors.PrivacyError("too much")

    with pytest.raises(bl.errors.PrivacyError, match="too much"):
        bl.release_log(log, "arm", "reward", 0.5, charge=refuse)
    with pytest.raises(bl.errors.RewardError):  # which releases nothing, and costs nothing
        bl.release_log(log, "arm", "reward", 0.5, reward_range=(0, 0.3), charge=events.append)
    assert events == []
    bl.release_log(log, "arm", "reward", 0.5, charge=events.append)
    assert events == [0.5, "noise", "noise"]
