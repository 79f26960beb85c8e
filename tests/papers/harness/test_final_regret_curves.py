"""Curves of final regret: slopes, values and panels."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import balaclava as bl
from balaclava.papers import wu2023
from balaclava.papers.harness.claims import compare_means
from balaclava.papers.harness.figure_run import FigureRun, RunSize
from balaclava.papers.harness.final_regret_curves import CurveFamily, FinalRegretCurve, RegretStudy
from tests.papers.figures import invented_results


def test_a_curve_and_its_verdicts() -> None:
    values = np.array([1.0, 2.0, 4.0])
    curve = FinalRegretCurve(
        values, 8 * values**-2, np.ones(3), np.full(3, 10.0), np.zeros(3), "ε=1"
    )
    assert curve.slope() == pytest.approx(-2)
    assert curve.at(-1) == (0.5, 1.0)
    assert wu2023.unlearned_values(curve._replace(means=np.array([9.9, 9.0, 12.0]))) == [1.0, 4.0]
    assert compare_means((1.0, 0.1), (2.0, 0.1)) == "agrees"
    assert compare_means((2.0, 0.1), (1.0, 0.1)) == "differs"
    assert compare_means((1.0, 0.8), (2.0, 0.8)) == "unclear"


def test_panels_of_a_sweep() -> None:
    sweep = RegretStudy(
        "x",
        [0.1, 0.2],
        lambda gap: bl.environment("bernoulli", means=[0.5, 0.5 + gap]),
        lambda _: {"p": bl.policy("ucb1", arms=2)},
        "",
        RunSize(10, 1),
    )
    panels = sweep.panels("a")
    assert list(panels) == ["a1", "a2"]
    assert panels["a2"].environment.gaps.tolist() == pytest.approx([0.2, 0.0])
    run = FigureRun("name", "tiny", Path())
    assert wu2023.regret_against(
        run,
        wu2023.FigurePlan(
            "α", [1.0, 2.0, 3.0], lambda _: wu2023.WuSetting(wu2023.StudentArms(5.0)), (), 1.0, ""
        ),
        RunSize(600, 2),
        {},
    ).values == [1.0, 3.0]


def test_the_steepest_slope() -> None:
    family = CurveFamily("delta", [0.1, 0.01, 0.001], {"epsilon": 0.0}, ("p",))
    labels = [family.label("p", value) for value in family.values]
    results = invented_results(**dict(zip(labels, ([1, 1], [10, 10], [30, 30]), strict=True)))
    assert family.steepest(results, "p") == pytest.approx(1.0)
    assert "regret from p 1 to 30. Steepest growth: p 1/δ^1.0" in family.describe(results)
