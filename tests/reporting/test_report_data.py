"""Data of a report: sweeps, intervals, and the experiment file that gives the results again."""

from __future__ import annotations

import math
import shutil
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

import balaclava as bl
from balaclava.cli import main
from balaclava.errors import ResultsFileError
from balaclava.experiments.experiment_file import ExperimentPlan, SimulationSetting, read_plan
from balaclava.experiments.sweep_runner import run_sweep
from balaclava.reporting.report_data import confidence_interval, experiment_toml, read_page_data
from tests.reporting.invented_results import invent, outline


def test_the_recipe_gives_the_same_experiment(tmp_path: Path) -> None:
    inner = bl.environment("gaussian", means=[0.0, 1.0])
    world = bl.environment(
        "contaminated", inner=inner, fraction=0.1, outliers={"kind": "point", "value": 9.0}
    )
    policies = {
        'odd "label"\n\\ é': bl.policy("ucb1", arms=2, radius_scale=0.5),
        "gauss": bl.policy("thompson-gauss", arms=2),
    }
    results = invent(policies, environment=world)
    file = tmp_path / "again.toml"
    file.write_text(experiment_toml(results), encoding="utf-8")
    (experiment,) = read_plan(file).settings
    assert experiment.policies == policies
    assert experiment.environment == world
    assert (experiment.horizon, experiment.repetitions, experiment.seed) == (1000, 4, 7)


def test_sweep(tmp_path: Path) -> None:
    def experiment(arms: int, horizon: int) -> SimulationSetting:
        world = bl.environment("bernoulli", means=np.linspace(0.3, 0.7, arms))
        policies: dict[str, bl.Policy] = {"ucb1": bl.policy("ucb1", arms=arms)}
        return SimulationSetting(
            policies, world, horizon, 3, seed=1, environment_label=f"{arms} arms"
        )

    plan = ExperimentPlan("both", (experiment(2, 100), experiment(2, 300), experiment(3, 100)))
    run_sweep(plan, tmp_path / "sweep")
    story = read_page_data(tmp_path / "sweep")
    assert [panel.heading for panel in story.panels] == [
        "2 arms, 100 rounds",
        "2 arms, 300 rounds",
        "3 arms, 100 rounds",
    ]
    answer = CliRunner().invoke(main, ["report", str(tmp_path / "sweep")])
    assert answer.exit_code == 0, answer.output
    parsed = outline(tmp_path / "sweep" / "report.html")
    assert parsed.text.count("2 arms, 300 rounds") >= 2  # a heading and a link to it
    assert "not finished" not in parsed.text
    next((tmp_path / "sweep" / "cells").iterdir()).unlink()
    story = read_page_data(tmp_path / "sweep")
    assert len(story.panels) == 2
    assert "2 of 3 cells are" in story.remarks[0]
    shutil.rmtree(tmp_path / "sweep" / "cells")
    with pytest.raises(ResultsFileError, match="no repetition of the sweep is finished"):
        read_page_data(tmp_path / "sweep")


def test_confidence_interval() -> None:
    """Student's quantile for three degrees of freedom is 3.1824."""
    values = np.array([1.0, 2.0, 3.0, 4.0])
    reach = 3.182446 * math.sqrt(5 / 3) / 2
    assert confidence_interval(values) == pytest.approx((2.5 - reach, 2.5 + reach), rel=1e-6)
    assert math.isnan(confidence_interval(values[:1])[0])
