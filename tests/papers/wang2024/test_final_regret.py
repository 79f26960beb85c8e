"""Final regret against delta and epsilon."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import balaclava as bl
from balaclava.papers.harness.final_regret_curves import CurveFamily
from tests.papers.wang2024.saved_files import check_files


def test_curves_against_delta(tmp_path: Path) -> None:
    told: list[tuple[int, int]] = []
    made = bl.reproduce(
        "wang2024-fig6",
        scale="tiny",
        out=tmp_path,
        progress=lambda played, total: told.append((played, total)),
    )
    check_files(made, ["parquet", "parquet", "png", "txt"])
    assert sorted(made.results) == ["a", "b"]
    assert bl.load(tmp_path / "wang2024-fig6a.parquet").labels == made.results["a"].labels
    assert made.results["a"].labels[0] == "dp-ftpl-gauss δ=0.9"
    # One count for both panels: 2 policies, 3 values, 2 repetitions of 300 rounds each.
    assert told[-1] == (7200, 7200)
    assert [played for played, _ in told] == sorted(played for played, _ in told)
    assert "smaller than the paper's: 2 repetitions of 300 rounds" in " ".join(made.text.split())
    again = bl.reproduce("wang2024-fig6", scale="tiny", out=tmp_path / "again", workers=1)
    assert again.text == made.text


def made_up(**finals: list[float]) -> bl.Results:
    """Results with these final regrets, of two arms a gap of 1 apart."""
    from balaclava.simulation.results import Run

    world = bl.environment("bernoulli", means=[0.0, 1.0])
    policies = {label: bl.policy("ucb1", arms=2) for label in finals}
    results = bl.Results.empty(
        policies, world, horizon=100, seed=0, checkpoints=np.array([100], np.int64)
    )
    for label, values in finals.items():
        for i, value in enumerate(values):
            pulls = np.array([value, 100 - value], np.int64)
            results.add(Run(label, i, np.array([value]), pulls))
    return results


def test_the_steepest_slope() -> None:
    family = CurveFamily("delta", [0.1, 0.01, 0.001], {"epsilon": 0.0}, ("p",))
    labels = [family.label("p", value) for value in family.values]
    results = made_up(**dict(zip(labels, ([1, 1], [10, 10], [30, 30]), strict=True)))
    assert family.steepest(results, "p") == pytest.approx(1.0)
    assert "regret from p 1 to 30. Steepest growth: p 1/δ^1.0" in family.describe(results)
