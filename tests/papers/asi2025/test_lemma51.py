"""Regret on losses that turn, and the bound and the conditions of Lemma 5.1."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest

import balaclava as bl
from balaclava.environments.hard_losses import fast_commit
from balaclava.papers.asi2025 import lemma51
from balaclava.papers.asi2025.lemma51 import lemma_line, strongest_condition
from balaclava.simulation.results import Run
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


def test_the_bound_of_the_lemma() -> None:
    # P = e^(-1/2) / 2 = 0.3033 for epsilon p = 1/2; (p / gamma - p) / 2 = 49.5; tau / 2 = 10.
    late = 0.5 * math.exp(-0.5) * 49.5 - 10
    assert late > 5 > 0.01 * 100 / 4
    found = bl.bounds.early_commitment(horizon=120, epsilon=0.5, share=0.01, changed=1.0, switch=20)
    assert found == pytest.approx(late - 0.0)
    assert (
        bl.bounds.early_commitment(horizon=10**6, epsilon=0.5, share=0.01, changed=1.0, switch=20)
        == 2500.0
    )


def test_the_line_is_of_order_the_root_of_rounds() -> None:
    at = {(T, e): lemma_line(T, e) for T in (10**6, 10**8) for e in (0.1, 0.001)}
    assert at[10**8, 0.1] / at[10**6, 0.1] == pytest.approx(10, rel=0.05)
    assert at[10**6, 0.001] / at[10**6, 0.1] == pytest.approx(10, rel=0.05)


def base_results(paths: list[list[float]], rounds: list[int]) -> bl.Results:
    """Regret on losses that do not turn: half the pulls of the second arm."""
    world = fast_commit(rounds[-1], 0.1, switched=False)
    policies = {"dp-htinf": bl.policy("dp-htinf", arms=2, horizon=rounds[-1], epsilon=0.1)}
    results = bl.Results.empty(
        policies, world, horizon=rounds[-1], seed=0, checkpoints=np.array(rounds)
    )
    for i, path in enumerate(paths):
        results.add(Run("dp-htinf", i, np.array(path), np.zeros(2, np.int64)))
    return results


def test_of_whom_the_lemma_speaks() -> None:
    # Settled at once: 10 pulls up to round 20, then 90 in the other 9,980.
    early = base_results([[5.0, 50.0]] * 3, [20, 10_000])
    found = strongest_condition(early, "dp-htinf", 0.1, [20])
    assert found is not None
    assert found.switch == 20
    assert 2 * found.share * 20 <= found.changed <= found.share * (10_000 - 20)
    assert found.bound == pytest.approx(
        bl.bounds.early_commitment(
            horizon=10_000, epsilon=0.1, share=found.share, changed=found.changed, switch=20
        )
    )
    # Never settles: all pulls of the second arm come right after the turn.
    late = base_results([[0.0, 50.0, 50.0]] * 3, [20, 200, 10_000])
    assert strongest_condition(late, "dp-htinf", 0.1, [20]) is None
