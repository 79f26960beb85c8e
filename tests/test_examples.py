"""The examples run, on the real data that they are about."""

from __future__ import annotations

import runpy
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[1] / "examples"


@pytest.mark.parametrize(
    ("script", "shown"),
    [
        pytest.param("assets.py", "AAPL, GE, JPM, KO, MSFT", marks=pytest.mark.slow),
        pytest.param("health_plans.py", "25 % coinsurance", marks=pytest.mark.slow),
    ],
)
@pytest.mark.xdist_group("heavy_tailed")  # in this process: its policies are compiled already
def test_an_example_runs(
    script: str,
    shown: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    options = ["--out", str(tmp_path), "--horizon", "20000", "--repetitions", "2"]
    monkeypatch.syspath_prepend(str(EXAMPLES))
    monkeypatch.setattr(sys, "argv", [script, *options])
    runpy.run_path(str(EXAMPLES / script), run_name="__main__")
    output = capsys.readouterr().out
    assert shown in output
    assert "ε=1 per trajectory" in output
    assert (tmp_path / script.replace(".py", ".png")).stat().st_size > 10_000


def test_the_data_is_what_the_examples_say(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(EXAMPLES))
    from packaged import daily_returns, doctor_visits

    returns = daily_returns("AAPL", "KO")
    assert returns["AAPL"].size == returns["KO"].size == 8312
    assert -60 < returns["AAPL"].min() < -50  # the worst day lost half the value
    visits = doctor_visits()
    assert sum(plan.size for plan in visits.values()) == 20190
    assert max(visits, key=lambda plan: float(visits[plan].mean())) == "0 % coinsurance"
    assert max(float(plan.max()) for plan in visits.values()) == 77


@pytest.mark.slow
def test_decisions_by_features_run_on_real_patients(tmp_path: Path) -> None:
    done = subprocess.run(
        [
            *(sys.executable, EXAMPLES / "screening.py", "--out", tmp_path),
            *("--horizon", "5000", "--repetitions", "2"),
        ],
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    assert "malignant, benign" in done.stdout
    assert "ε=1, δ=1e-05 per trajectory" in done.stdout
    assert "contexts count as public" in done.stdout
    assert (tmp_path / "screening.png").stat().st_size > 10_000
