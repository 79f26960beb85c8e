"""Slopes of worst-case regret: fits, and which points they use."""

from __future__ import annotations

import csv
import math
from pathlib import Path

import numpy as np
import pytest

import balaclava as bl
from balaclava.papers.asi2025 import bandit_rates, loss_families
from balaclava.papers.harness.figure_run import FigureRun
from balaclava.papers.harness.worst_case_slopes import (
    LossSetting,
    WorstPoint,
    WorstRegrets,
    fit_slope,
    guarantee_kind,
    measure_settings,
    worst_point,
)
from balaclava.simulation.results import Run


def read(path: Path) -> list[dict[str, str]]:
    with open(path, newline="") as file:
        return list(csv.DictReader(file))


def test_a_power_is_found_again() -> None:
    points = [WorstPoint(x, 3.0 * x**-0.5, 0.0, 1e9, 40.0 / x) for x in (1.0, 0.1, 0.01)]
    slope = fit_slope(points)
    assert [slope.power, slope.error, slope.bound] == pytest.approx([-0.5, 0.0, -1.0])
    # With means of relative error r at x = 1, 10, 100 the error is r / (sqrt(2) log 10).
    noisy = [WorstPoint(x, x, 0.1 * x, 1e9, None) for x in (1.0, 10.0, 100.0)]
    assert fit_slope(noisy).error == pytest.approx(0.1 / (math.sqrt(2) * math.log(10)))
    assert fit_slope(noisy).bound is None


def made_up(*values: list[float]) -> WorstRegrets:
    """One policy at the horizons 10, 100, 1000 and so on, with these final regrets."""
    settings, found = [], []
    world = bl.environment("stochastic-losses", means=[0.5, 0.0])
    for i, finals in enumerate(values):
        horizon = 10 ** (i + 1)
        policies = {"exp3": bl.policy("exp3", arms=2, horizon=horizon)}
        results = bl.Results.empty(
            policies, world, horizon=horizon, seed=0, checkpoints=np.array([horizon])
        )
        for repetition, final in enumerate(finals):
            results.add(Run("exp3", repetition, np.array([final]), np.zeros(2, np.int64)))
        settings.append(LossSetting("c", float(horizon), horizon, policies, (world,), horizon / 4))
        found.append([results])
    return WorstRegrets(settings, found)


def test_only_what_is_learned_is_fitted() -> None:
    regrets = made_up([2.0, 2.0], [10.0, 10.0], [31.6, 31.6], [100.0, 100.0])
    slope = regrets.slope("c", "exp3")
    assert slope is not None
    assert slope.power == pytest.approx(0.5, abs=1e-3)  # without the first, 80 % of even play
    assert made_up([2.0, 2.0], [24.0, 25.0], [31.6, 31.6]).slope("c", "exp3") is None
    text = " ".join(loss_families.describe_slopes(regrets, "c"))
    assert "exp3 +0.50 ± 0.00 (its bound +0.49), proved +0.50" in text
    text = " ".join(loss_families.describe_slopes(made_up([2.0, 2.0], [25.0, 25.0]), "c"))
    assert "not fitted" in text
    assert "exp3 (proved +0.50), at least 80% of even play" in text


def test_the_worst_world_counts() -> None:
    regrets = made_up([1.0, 3.0], [5.0, 7.0])
    (one, _), (few, more) = regrets.settings, regrets.results
    point = worst_point(one, [few[0], more[0]], "exp3")
    assert [point.mean, point.error] == pytest.approx([6.0, 12.7062], rel=1e-5)
    assert guarantee_kind(regrets.policy("exp3")) == "not private"


def test_progress_is_one_count(tmp_path: Path) -> None:
    told: list[tuple[int, int]] = []
    run = FigureRun("x", "tiny", tmp_path, 1, lambda played, total: told.append((played, total)))
    settings = [bandit_rates.bandit_setting("c", T, ("dp-htinf",), 2, T, 0.5) for T in (100, 200)]
    measure_settings(run, settings, repetitions=2, seed=1)
    rounds = sum(2 * s.horizon * len(s.worlds) for s in settings)
    assert told[-1] == (rounds, rounds)
    assert [played for played, _ in told] == sorted(played for played, _ in told)
    rows = read(tmp_path / "x.csv")
    assert len(rows) == sum(2 * len(s.worlds) for s in settings)
    assert {row["guarantee"] for row in rows} == {"ε=0.5 per trajectory"}
