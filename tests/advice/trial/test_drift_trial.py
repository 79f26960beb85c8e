"""A log whose averages drift: the recommendation follows from playing with that drift."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

import balaclava as bl
from balaclava.advice.trial.drift_trial import DriftingRewards
from balaclava.cli import main

ROWS = 1_500


def write_log(path: Path, scale: float = 1.0) -> Path:
    """Arm a is best at first, arm c later and in all."""
    rng = np.random.default_rng(1)
    arms, times = rng.integers(0, 3, ROWS), np.arange(ROWS)
    means = np.where((times < 0.4 * ROWS)[:, None], [0.6, 0.3, 0.3], [0.1, 0.3, 0.7])
    rewards = scale * (rng.random(ROWS) < means[times, arms])
    rows = [f"{'abc'[a]},{x:g},{t}" for a, x, t in zip(arms, rewards, times, strict=True)]
    path.write_text("\n".join(["page,paid,time", *rows]) + "\n", encoding="utf-8")
    return path


def invoke(path: Path, *options: str) -> Any:
    arguments = ["compare", str(path), "--arm", "page", "--reward", "paid", "--repetitions", "8"]
    return CliRunner().invoke(main, [*arguments, "--out", str(path.with_suffix(".html")), *options])


def test_drift_changes_the_recommendation(tmp_path: Path) -> None:
    path = write_log(tmp_path / "log.csv")
    answer = invoke(path, "--time", "time")
    assert answer.exit_code == 0, answer.output
    text = " ".join(answer.output.split())
    assert "The policies that fit if averages do not change: - dp-imed" in text
    assert "On average a memory would have paid: dp-imed loses " in text
    assert "With this drift that is dp-imed with memory." in text
    code = "bl.policy('dp-imed', arms=['a', 'b', 'c'], epsilon=1.0, memory='detect')"
    assert f"\nuse:      {code}\n" in answer.output
    assert eval(code, {"bl": bl}).arms == 3
    assert "With drift" in path.with_suffix(".html").read_text(encoding="utf-8")
    assert "\nuse:      bl.policy('dp-imed'" in invoke(path).output  # times not given


@pytest.mark.slow
def test_where_only_the_level_falls_no_memory_is_recommended(tmp_path: Path) -> None:
    """The best arm stays the best: to start again is a loss, and what is said agrees."""
    rng, rows = np.random.default_rng(1), 6_000
    arms, times = rng.integers(0, 3, rows), np.arange(rows)
    means = np.where((times < rows // 2)[:, None], [0.55, 0.65, 0.9], [0.15, 0.25, 0.5])
    paid = rng.random(rows) < means[times, arms]
    lines = [f"{'abc'[a]},{int(x)},{t}" for a, x, t in zip(arms, paid, times, strict=True)]
    path = tmp_path / "log.csv"
    path.write_text("\n".join(["page,paid,time", *lines]) + "\n", encoding="utf-8")
    answer = invoke(path, "--time", "time")
    text = " ".join(answer.output.split())
    assert "On average a memory would not have paid: dp-imed loses " in text
    assert "With this drift that is dp-imed." in text
    assert "\nuse:      bl.policy('dp-imed', arms=['a', 'b', 'c'], epsilon=1.0)\n" in answer.output


def test_what_a_memory_saves_is_said_only_beyond_its_error(tmp_path: Path) -> None:
    """A weak arm rises, which "detect" does not see: both lose as much in the same worlds."""
    rng, rows = np.random.default_rng(1), 3_000
    arms, times = rng.integers(0, 2, rows), np.arange(rows)
    means = np.where((times < rows // 2)[:, None], [0.2, 0.8], [0.7, 0.8])
    paid = rng.random(rows) < means[times, arms]
    lines = [f"{'ab'[a]},{int(x)},{t}" for a, x, t in zip(arms, paid, times, strict=True)]
    path = tmp_path / "log.csv"
    path.write_text("\n".join(["page,paid,time", *lines]) + "\n", encoding="utf-8")
    text = " ".join(invoke(path, "--time", "time").output.split())
    assert "On average a memory would have made no clear difference: dp-imed loses " in text


def test_drift_and_the_board(tmp_path: Path) -> None:
    """The page for a board has no drift; without a range no policy is recommended."""
    path = write_log(tmp_path / "log.csv", scale=5.0)
    options = ("--time", "time", "--range", "0", "5", "--horizon", "1500")
    answer = invoke(path, *options, "--assessment", str(tmp_path / "board.toml"))
    assert answer.exit_code == 2
    assert "averages drift" in answer.output
    answer = invoke(path, *options, "--json")
    told = json.loads(answer.stdout)
    assert told["use"].startswith("bl.policy('dp-htinf'")
    assert told["drift"]["horizon"] == 1_500
    lost = {row["label"]: row["mean"] for row in told["drift"]["policies"]}
    assert 0.05 * 5 * ROWS < lost["at random"] < 0.25 * 5 * ROWS  # in rewards


def test_regret_counts_when_an_arm_was_played() -> None:
    world = DriftingRewards(rewards=[[1, 0], [1, 0], [0, 1], [0, 1], [0, 1]])
    rounds, pulls = np.array([2, 5]), np.zeros((2, 2))
    assert world.regret(rounds, pulls, np.array([2.0, 2.0])).tolist() == [0.0, 1.0]
    how: Any = {"horizon": 5, "repetitions": 2, "seed": 1}
    results = bl.simulate(bl.policy("random", arms=2), world, **how)
    assert results.final_regret("random").max() <= 3.0


@pytest.mark.slow
def test_heavy_tails_with_drift_have_no_recommendation(tmp_path: Path) -> None:
    rng = np.random.default_rng(2)
    sizes = np.where(np.arange(600) < 300, 1.0, 9.0) + rng.pareto(1.5, 600)
    rows = [f"{'ab'[i % 2]},{size},{i}" for i, size in enumerate(sizes)]
    path = tmp_path / "log.csv"
    path.write_text("\n".join(["page,paid,time", *rows]) + "\n", encoding="utf-8")
    answer = invoke(path, "--time", "time", "--horizon", "500")
    assert "\nuse:" not in answer.output
    assert "no policy is recommended; give --range or --clip" in " ".join(answer.output.split())
