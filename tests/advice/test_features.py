"""What features are worth: off-policy estimates, and what `compare --features` makes of them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from click.testing import CliRunner

from balaclava.advice.log.feature_columns import FeatureColumns, fit_scaling, read_features
from balaclava.advice.log.log_reading import summarise_log
from balaclava.advice.log.off_policy import (
    coefficient_posterior,
    evaluate_off_policy,
    fit_propensities,
)
from balaclava.advice.log.worlds import draw_linear_worlds
from balaclava.cli import main
from balaclava.errors import ParameterError

ROWS = 1_000


def draw_log(rng: Any, slope: float, rows: int = ROWS) -> tuple[np.ndarray, ...]:
    """Arm 1 suits those with a large x, and was given to them more often."""
    x = rng.uniform(-1, 1, rows)
    chance = 1 / (1 + np.exp(-2 * x))  # of arm 1
    arms = (rng.random(rows) < chance).astype(np.int64)
    means = 0.5 + slope * x * (2 * arms - 1)
    rewards = (rng.random(rows) < means).astype(float)
    scaling = fit_scaling(FeatureColumns(("x",), x[:, None]))
    return arms, rewards, scaling.rows(x[:, None]), np.where(arms == 1, chance, 1 - chance)


@pytest.mark.parametrize("logged", [True, pytest.param(False, marks=pytest.mark.slow)])
def test_no_gain_is_seen_where_there_is_none(logged: bool) -> None:
    """300 logs whose features say nothing: at most 6 % show a gain, where 2.5 % or fewer should.

    More than that by chance has a probability below 1e-3.
    """
    rng = np.random.default_rng(11)
    seen = 0
    for _ in range(300):
        arms, rewards, rows, chances = draw_log(rng, slope=0.0)
        gain = evaluate_off_policy(arms, rewards, rows, chances if logged else None).gain
        seen += gain["doubly robust"].low > 0
    assert seen <= 18


@pytest.mark.parametrize("logged", [True, pytest.param(False, marks=pytest.mark.slow)])
def test_intervals_hold_the_value_of_a_confounded_log(logged: bool) -> None:
    """200 logs: 95 % intervals hold the gain of 0.15 in at least 88 % of them.

    Fewer by chance has a probability below 1e-4. The best single arm earns 0.5, and the arm that
    suits x earns 0.5 + 0.3 E|x| = 0.65; plain averages of the log say 0.6 for both arms.
    """
    rng = np.random.default_rng(12)
    held = {"doubly robust": 0, "SNIPS": 0, "IPS": 0}
    for _ in range(200):
        arms, rewards, rows, chances = draw_log(rng, slope=0.3)
        gain = evaluate_off_policy(arms, rewards, rows, chances if logged else None).gain
        for method, each in gain.items():
            held[method] += each.low <= 0.15 <= each.high
    assert min(held.values()) >= 176


def test_rows_of_a_person_count_as_one() -> None:
    """Each row three times: the interval is that of the rows once, and as wide."""
    rng = np.random.default_rng(13)
    arms, rewards, rows, chances = draw_log(rng, slope=0.3)
    people = np.repeat(np.arange(ROWS), 3)
    once = evaluate_off_policy(arms, rewards, rows, chances)
    thrice = evaluate_off_policy(
        *(np.repeat(each, 3, axis=0) for each in (arms, rewards, rows, chances)),
        participants=people,
    )
    width = {each: g.high - g.low for each, g in once.gain.items()}
    for method, gain in thrice.gain.items():
        assert gain.high - gain.low == pytest.approx(width[method], rel=0.05)


def test_propensities_are_estimated() -> None:
    rng = np.random.default_rng(14)
    arms, _, rows, chances = draw_log(rng, slope=0.0, rows=20_000)
    model = fit_propensities(rows, arms, 2)
    np.testing.assert_allclose(model.chances(rows, arms), chances, atol=0.03)
    np.testing.assert_allclose(model(rows[:50]).sum(axis=1), 1.0)


def test_worlds_are_about_what_was_fitted() -> None:
    """200 worlds: the drawn means of a person are about those of the fit, spread as its errors."""
    rng = np.random.default_rng(15)
    arms, rewards, rows, _ = draw_log(rng, slope=0.3)
    theta, roots = coefficient_posterior(rows, arms, rewards, 2)
    worlds = draw_linear_worlds(rows, theta, roots, seed=1)
    drawn = np.empty((200, 2, 2))
    for i in range(200):
        world: Any
        world, order, loss = next(worlds)
        drawn[i, order] = world.theta.reshape(2, 2)
        assert 0 < loss < 0.5
    np.testing.assert_allclose(drawn.mean(axis=0), theta, atol=0.03)
    errors = np.sqrt(np.einsum("aij,aij->ai", roots, roots))
    np.testing.assert_allclose(drawn.std(axis=0), errors, rtol=0.2)


def test_features_as_they_come() -> None:
    columns = {"age": pa.array(["40", "50", "60"]), "device": pa.array(["phone", "pc", "phone"])}
    features = read_features("log.csv", columns, commas_between_cells=True, decimal=None)
    assert features.names == ("age", "device=pc")
    assert features.table.tolist() == [[40, 0], [50, 1], [60, 0]]
    lengths = np.linalg.norm(fit_scaling(features).rows(1e6 * features.table), axis=1)
    assert (lengths <= 1 + 1e-12).all()
    names = {"name": pa.array([f"person {i}" for i in range(20)])}
    with pytest.raises(ParameterError, match="or give a column of 2 to 12 different words"):
        read_features("log.csv", names, commas_between_cells=True, decimal=None)


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
    assert "does not show that features help: no policy that decides by them is advised." in text
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
    assert context["private"]["policy"] in ("dp-linucb", "dp-lin-ts")
    assert context["private"]["parameters"]["features"] == ["intercept", "age"]
    assert context["advised"] == next(
        row["label"] for row in context["private"]["standings"] if row["label"].startswith("dp-lin")
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


def test_rows_left_out_are_left_out_of_features(tmp_path: Path) -> None:
    path = tmp_path / "log.csv"
    rows = [f"{arm},{i % 2},{i}" for arm in "ab" for i in range(30)] + ["c,1,7", "a,1,NA"]
    path.write_text("\n".join(["text,came,age", *rows]) + "\n")
    from balaclava.logs.cells import ReadOptions

    log = summarise_log(
        path, arm="text", reward="came", features=["age"], min_rows=20,
        read_options=ReadOptions(drop_missing=True),
    )  # fmt: skip
    assert log.features is not None
    assert log.features.table[:, 0].tolist() == [*range(30), *range(30)]
