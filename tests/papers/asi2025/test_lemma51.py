"""Regret on losses that turn."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import balaclava as bl
from balaclava.papers.asi2025 import lemma51
from balaclava.papers.asi2025.lemma51_conditions import lemma_line, strongest_condition
from tests.papers.asi2025.reproduced import make


def test_rewards_that_turn() -> None:
    """The same regret as on losses: here the first arm loses 1/2, the second 1 and then 0."""
    losses = lemma51.turning(100, 30)
    rewards = lemma51.TurningRewards(**losses.parameters)
    pulls = np.array([[20, 10], [80, 20]])  # of the second arm 10 in time and 10 after the turn
    totals = np.array([20.0, 50.0])  # losses
    expected = losses.regret(np.array([30, 100]), pulls, totals)
    gained = rewards.regret(np.array([30, 100]), pulls, pulls.sum(axis=1) - totals)
    assert gained.tolist() == expected.tolist() == [5.0, 20.0]


def test_the_conditions_hold_for_policies_that_settle() -> None:
    T, epsilon = 100_000, lemma51.TURN_EPSILON
    (setting,) = [
        each
        for each in lemma51.turn_settings("d", T, epsilon, lemma51.turning(T, T))
        if "dp-imed" in each.policies
    ]
    rounds = np.unique(np.geomspace(1, T, 300).round().astype(np.int64))
    results = bl.simulate(
        setting.policies, setting.worlds[0], horizon=T, repetitions=8, seed=1, checkpoints=rounds
    )
    for label in lemma51.SETTLING_LIST:
        case = strongest_condition(results, label, epsilon, [1_000])
        assert case is not None
        assert case.bound > 300


def test_lemma_51(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lemma51, "TURN_LIST", ("dp-htinf",))
    monkeypatch.setattr(lemma51, "BASELINES", ("htinf",))
    monkeypatch.setattr(lemma51, "SETTLING_LIST", ("dp-klucb",))
    made, rows = make("lemma51", tmp_path)
    first = [r for r in rows if r["panel"] == "a" and r["policy"] == "htinf" and r["x"] == "1.0"]
    mean = np.mean([float(row["regret"]) for row in first])
    assert f"htinf, regret without the turn and with it: ε = 1: {mean:,.0f} and" in made.text
    assert f"{lemma_line(400, 1.0):,.0f} at ε = 1;" in made.text
