"""`compare --features`: features that help are tried with privacy, others are not advised."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

from balaclava.cli import main
from tests.advice.logs_on_disk import draw_log


def write_log(path: Path, rows: int, slope: float) -> Path:
    rng = np.random.default_rng(16)
    arms, rewards, features, chances = draw_log(rng, slope, rows)
    lines = [
        f"{'ab'[arm]},{reward:g},{50 + 20 * x:.3f},{chance:.4f}"
        for arm, reward, x, chance in zip(arms, rewards, features[:, 1], chances, strict=True)
    ]
    path.write_text("\n".join(["text,came,age,p", *lines]) + "\n", encoding="utf-8")
    return path


def invoke(path: Path, *options: str) -> Any:
    arguments = ["compare", str(path), "--arm", "text", "--reward", "came", "--repetitions", "2"]
    return CliRunner().invoke(main, [*arguments, "--horizon", "300", *options])


def test_features_that_do_not_help_are_not_advised(tmp_path: Path) -> None:
    path = write_log(tmp_path / "log.csv", 600, slope=0.0)
    out = tmp_path / "page.html"
    answer = invoke(path, "--features", "age", "--out", str(out))
    assert answer.exit_code == 0, answer.output
    text = " ".join(answer.output.split())
    assert text.index("Features count as public") < text.index("Played for 300 rounds")
    assert "Warning: no propensities were given. They were estimated from the features" in text
    assert "does not show that features help, so no policy with features is advised." in text
    assert "dp-linucb" not in text
    page = out.read_text(encoding="utf-8")
    assert "Deciding by features" in page
    assert "linear, by features" in page


@pytest.mark.slow
def test_features_that_help_are_played_with_privacy(tmp_path: Path) -> None:
    path = write_log(tmp_path / "log.csv", 3_000, slope=0.4)
    options = ("--features", "age", "--propensity", "p", "--epsilon", "5", "--horizon", "20000")
    answer = invoke(path, *options, "--json")
    assert answer.exit_code == 0, answer.output
    context = json.loads(answer.stdout)["context"]
    assert context["clear"]
    assert context["propensities"] == "logged"
    tried = ("dp-kernel-ucb", "dp-linucb", "dp-lin-ts", "ldp-linucb")
    assert context["private"]["policy"] in tried
    assert context["private"]["parameters"]["features"] == ["intercept", "age"]
    assert context["advised"] == next(
        row["label"] for row in context["private"]["standings"] if row["label"].startswith(tried)
    )
    assert context["gain"]["doubly robust"]["low"] > 0.1


@pytest.mark.parametrize(
    ("features", "message"),
    [
        ("agee", "has no column 'agee' (feature 1); did you mean 'age'?"),
        ("age,age", "feature 1 and feature 2 are both 'age'"),
        ("age,", "give names of columns with commas between them"),
        ("came", "reward and feature 1 are both 'came'"),
    ],
)
def test_wrong_features(tmp_path: Path, features: str, message: str) -> None:
    answer = invoke(write_log(tmp_path / "log.csv", 60, slope=0.0), "--features", features)
    assert answer.exit_code == 2
    assert message in answer.output
