"""`balaclava compare`: what it prints and writes."""

from __future__ import annotations

import html
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner, Result

import balaclava as bl
from balaclava.advice.trial.compare import LOG_NOT_PRIVATE
from balaclava.cli import main
from balaclava.reporting.assessment_input import read_assessment
from tests.advice.logs_on_disk import write_log


def invoke(*arguments: Any) -> Result:
    return CliRunner().invoke(main, ["compare", *map(str, arguments)])


def test_a_log_of_clicks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    write_log(tmp_path / "clicks.csv", {"old": [0, 1] * 30, "<new>": [1, 1, 0] * 20})
    answer = invoke("clicks.csv", "--arm", "page", "--reward", "paid", "--repetitions", 5)
    assert answer.exit_code == 0, answer.output
    assert answer.output.startswith("This log does not tell which arm is best: '<new>' has ")
    assert " ".join(LOG_NOT_PRIVATE.split()) in " ".join(answer.output.split())
    assert "120 rows, 2 arms, 60 to 60 rows an arm." in answer.output
    assert "all lie in [0, 1]" in answer.output
    for label in ("at random", "imed", "dp-imed", "dp-ftpl-new", "ldp-ucb-bernoulli"):
        assert f"\n{label}  " in answer.output  # a line of the table
    assert "\nold    60    0.5     0.3773 to 0.6227\n" in answer.output  # Wilson's interval
    text = (tmp_path / "clicks-report.html").read_text(encoding="utf-8")
    assert "Looking at a log is not private." in text
    assert "What the log says" in text
    assert "Which policies fit, and why" in text
    assert "&lt;new&gt;" in text
    assert "<new>" not in text
    assert "outside epsilon" in text


def test_from_a_log_to_the_file_for_a_board(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    write_log(tmp_path / "clicks.csv", {"old": [0, 0, 0, 1] * 30, 'the "new"': [1, 1, 0] * 40})
    how = ("clicks.csv", "--arm", "page", "--reward", "paid", "--repetitions", 5)
    answer = invoke(*how, "--assessment", "board.toml")
    assert answer.exit_code == 0, answer.output
    code = "bl.policy('dp-imed', arms=['old', 'the \"new\"'], epsilon=1.0, horizon=1000)"
    assert f"\nuse:      {code}\n" in answer.output
    assert "\nrisk:     it loses " in answer.output
    assert code in html.unescape((tmp_path / "clicks-report.html").read_text(encoding="utf-8"))
    dossier = read_assessment("board.toml")
    assert repr(dossier.policy) == repr(eval(code, {"bl": bl}))
    assert dossier.environment is not None
    assert dossier.environment.means.tolist() == pytest.approx([1 / 4, 2 / 3])
    assert (dossier.horizon, dossier.title) == (1000, "Policies for clicks.csv")
    answer = invoke(*how, "--assessment", "board.toml", "--min-rows", 3)
    assert "remove arms from it" in answer.output


@pytest.mark.slow
def test_heavy_tails_get_policies_that_truncate(tmp_path: Path) -> None:
    rng = np.random.default_rng(5)
    path = tmp_path / "orders.csv"
    write_log(path, {"old": 1 + rng.pareto(1.5, 200), "new": 2 + rng.pareto(1.5, 200)})
    out = tmp_path / "page.html"
    answer = invoke(
        *(path, "--arm", "page", "--reward", "paid", "--out", out),
        *("--repetitions", 2, "--horizon", 500, "--clip", 0, 20),
    )
    assert answer.exit_code == 0, answer.output
    assert "Rewards look heavy-tailed: tail index" in answer.output
    private = ("dpr-batch-ucb", "dpr-adaptive-ucb", "ldpr-batch-ucb")
    for name in (*private, "dp-imed(clipped)", "at random"):
        assert f"\n{name} " in answer.output  # a line of the table
    assert "Clipping to [0, 20] touches" in answer.output
    moves = "the averages of 'old' by -"  # most first
    assert moves in " ".join(answer.output.split())
    # A baseline beside a private policy is tuned as it is.
    assert "\nrobust-ucb(radius_scale=" in answer.output
    largest = max(float(line.split(",")[1]) for line in path.read_text().splitlines()[1:])
    for told in (answer.output, out.read_text(encoding="utf-8")):
        assert f"{largest:.4g}" not in told


GOOD = [0, 1] * 20


def test_a_page_that_cannot_be_written_costs_no_work(tmp_path: Path) -> None:
    path = write_log(tmp_path / "log.csv", {"a": GOOD, "b": GOOD})
    for out, said in (
        (tmp_path / "none" / "page.html", "cannot be written: No such file or directory"),
        (tmp_path, "is a folder; give the path of a file"),
    ):
        answer = invoke(path, "--arm", "page", "--reward", "paid", "--out", out)
        assert answer.exit_code == 2
        assert answer.output.count("\n") == 1  # nothing was played
        assert said in answer.output


def test_everything_at_once_through_a_pipe(tmp_path: Path) -> None:
    """Further columns, odd notation, missing values, rare arms, and JSON."""
    rng = np.random.default_rng(8)
    lines = ["wer;wann;Arm;Lohn;Chance"]
    for i in range(300):
        arm = "ab"[i % 2]
        lines.append(f"p{i % 70};2026-01-{1 + i // 12:02};{arm};{rng.integers(0, 2)};0,5")
    lines += ["p1;2026-01-30;a;NA;0,5", "p1;2026-01-30;;1;0,5", *["p2;2026-01-31;c;1;0,5"] * 3]
    data = "\n".join(lines).encode("utf-16")
    answer = CliRunner().invoke(
        main,
        [
            *("compare", "-", "--arm", "Arm", "--reward", "Lohn", "--person", "wer", "--json"),
            *("--time", "wann", "--propensity", "Chance", "--drop-missing", "--min-rows", "20"),
            *("--repetitions", "2", "--horizon", "100"),
        ],
        input=data,
    )
    assert answer.exit_code == 0, answer.output
    told = json.loads(answer.stdout)
    assert told["log"]["rows"] == 300
    assert [row["label"] for row in told["log"]["arms"]] == ["a", "b"]
    assert told["log"]["detected"] == ["text in utf-16", "semicolons between cells"]
    assert told["log"]["left_out"][0].startswith("2 of 305 rows (0.7%) lack a value")
    assert told["log"]["left_out"][1].startswith("1 of 3 arms have fewer than 20 rows")
    assert told["people"]["most"] == 5
    assert told["log"]["weighted"][0]["snips"] == pytest.approx(told["log"]["arms"][0]["mean"])
    assert {row["label"] for row in told["policies"]} > {"at random", "imed", "dp-imed"}


def test_the_default_horizon_is_said() -> None:
    text = " ".join(CliRunner().invoke(main, ["compare", "--help"]).output.split())
    assert "by default the rows of the log, at least 1,000 and at most 50,000" in text
