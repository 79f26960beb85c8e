"""`balaclava simulate`: files, tables, JSON, and Ctrl-C."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

import balaclava as bl
from tests.cli.running import EXPERIMENT, invoke


def test_simulate(experiment: Path, tmp_path: Path) -> None:
    answer = invoke("simulate", experiment)
    assert answer.exit_code == 0, answer.output
    assert answer.stderr == ""  # no progress where nobody looks
    out = tmp_path / "small-results"
    assert {path.name for path in out.iterdir()} == {
        "cells",
        "manifest.json",
        "results.parquet",
        "regret.png",
        "summary.txt",
    }
    results = bl.load(out / "results.parquet")
    assert results.regret("bolder").shape[0] == 3
    table = str(results.summary())
    assert (out / "summary.txt").read_text(encoding="utf-8") == table + "\n"
    assert answer.stdout.startswith(table)
    before = (out / "results.parquet").read_bytes()
    invoke("simulate", experiment, "--workers", 2, "--out", tmp_path / "again")
    assert (tmp_path / "again" / "results.parquet").read_bytes() == before


@pytest.mark.crash
@pytest.mark.skipif(sys.platform == "win32", reason="needs a pseudo-terminal")
def test_ctrl_c_keeps_what_was_finished(experiment: Path, tmp_path: Path) -> None:
    """A real process with a real terminal for its progress, and a real SIGINT."""
    import pty

    bl.simulate(  # leaves the compiled loop on disk
        bl.policy("ucb1", arms=2),
        bl.environment("bernoulli", means=[0.4, 0.6]),
        horizon=1,
        repetitions=1,
        seed=0,
    )
    text = EXPERIMENT.replace("horizon = 500", "horizon = 200000")
    experiment.write_text(text.replace("repetitions = 3", "repetitions = 20000"))
    terminal, child_side = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-m", "balaclava", "simulate", str(experiment), "--workers", "1"],
        stdout=subprocess.PIPE,
        stderr=child_side,
        cwd=tmp_path,
        # A test run in the background hands down an ignored SIGINT.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    os.close(child_side)
    try:
        seen = b""
        while b"playing" not in seen:
            seen += os.read(terminal, 4096)
        deadline = time.monotonic() + 2
        while time.monotonic() < deadline:
            seen += os.read(terminal, 4096)
        process.send_signal(signal.SIGINT)
        try:
            while more := os.read(terminal, 4096):
                seen += more
        except OSError:
            pass  # how Linux says that the other side has closed
        stdout, _ = process.communicate(timeout=20)
    finally:
        process.kill()
        os.close(terminal)
    assert process.returncode == 130
    results = bl.load(tmp_path / "small-results" / "results.parquet")
    finished = sum(results.final_regret(label).size for label in results.labels)
    assert 0 < finished < 40000
    assert f"interrupted after {finished} of 40000 repetitions; they are kept in" in seen.decode()
    assert "rounds/s" in seen.decode()
    assert str(results.summary()) in stdout.decode()
    assert (tmp_path / "small-results" / "regret.png").exists()


@pytest.mark.crash
def test_ctrl_c_before_anything_is_finished(
    experiment: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from balaclava.simulation.engine import Pool

    def interrupted(self: Pool, *_: Any) -> Any:
        raise KeyboardInterrupt

    monkeypatch.setattr(Pool, "finished", interrupted)
    answer = invoke("simulate", experiment)
    assert answer.exit_code == 130
    assert "after 0 of 6 repetitions; nothing was finished; run the same" in answer.stderr
    out = tmp_path / "small-results"
    assert sorted(path.name for path in out.iterdir()) == ["cells", "manifest.json"]
    assert not list((out / "cells").iterdir())


def test_json_for_scripts(experiment: Path) -> None:
    answer = invoke("simulate", experiment, "--json")
    assert answer.exit_code == 0, answer.output
    (setting,) = json.loads(answer.stdout)
    assert (setting["horizon"], setting["environment"]) == (500, "bernoulli")
    assert [row["label"] for row in setting["policies"]] == ["ucb1", "bolder"]
    assert json.loads(invoke("simulate", experiment, "--json").stdout) == [setting]  # finished
    (again,) = json.loads(invoke("summary", "small-results", "--json").stdout)
    assert again["policies"] == setting["policies"]
    assert "mean regret" in invoke("summary", "small-results").output
    names = {entry["name"] for entry in json.loads(invoke("policies", "--json").output)}
    assert names == {entry.name for entry in bl.list_policies()}
    one = json.loads(invoke("policies", "dp-imed", "--json").output)
    assert "epsilon" in {parameter["name"] for parameter in one["parameters"]}
    assert json.loads(invoke("environments", "--json").output)[0]["name"]
