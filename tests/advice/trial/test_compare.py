"""Policies ranked on worlds drawn from a log."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner, Result

import balaclava as bl
from balaclava.advice.log.log_reading import summarise_log
from balaclava.advice.trial.compare import ONE_AHEAD, compare
from balaclava.cli import main
from balaclava.cli.terminal import finite_json
from balaclava.errors import ParameterError
from tests.advice.logs_on_disk import write_log


def invoke(*arguments: Any) -> Result:
    return CliRunner().invoke(main, ["compare", *map(str, arguments)])


def a_log(path: Path, law: Any, rows: int = 400) -> Any:
    rng = np.random.default_rng(5)
    write_log(path, {arm: law(rng, i, rows) for i, arm in enumerate(("old", "new"))})
    return summarise_log(path, arm="page", reward="paid")


@pytest.mark.slow
def test_rewards_outside_the_range_can_be_clipped(tmp_path: Path) -> None:
    rng = np.random.default_rng(5)
    path = write_log(tmp_path / "log.csv", {arm: 1 + rng.pareto(1.2, 100) for arm in "ab"})
    log = summarise_log(path, arm="page", reward="paid", reward_range=(0.0, 3.0), outside="clip")
    assert 0.1 < log.clipped < 0.5
    assert any("outside it are clipped" in sentence for sentence in log.findings())
    done = compare(log, repetitions=2, horizon=500)
    for candidate in done.candidates.values():
        assert candidate.policy.clips
        promise = candidate.policy.guarantee.explain()
        assert "rewards outside [0, 3] are clipped to it" in promise
    with pytest.raises(ParameterError, match="needs a range"):
        summarise_log(path, arm="page", reward="paid", outside="clip")
    answer = invoke(path, *["--arm", "page", "--reward", "paid", "--range", "0", "3"])
    assert "clip the others to it with --outside clip" in answer.output


GOOD = [0, 1] * 20


@pytest.mark.slow
def test_a_log_that_decides_nothing(tmp_path: Path) -> None:
    log = a_log(tmp_path / "log.csv", lambda rng, i, n: [3] * n)
    assert not log.best_arm_test.conclusive
    done = compare(log, repetitions=2, horizon=100)
    assert done.fitting == {}
    assert done.prices == ()
    json.dumps(finite_json(done.to_dict()), allow_nan=False)
    wide = a_log(tmp_path / "log.csv", lambda rng, i, n: 1000 + i + rng.standard_normal(n))
    assert wide.kind == "bounded"
    assert any("a small part of that range" in sentence for sentence in wide.findings())
    fine = a_log(tmp_path / "log.csv", lambda rng, i, n: rng.uniform(i, 4, n))
    assert len(fine.findings()) == 3


def test_the_horizon_is_that_of_the_log(tmp_path: Path) -> None:
    log = summarise_log(
        write_log(tmp_path / "log.csv", {"a": GOOD * 40, "b": GOOD * 10}), arm="page", reward="paid"
    )
    done = compare(log, repetitions=2, epsilon=2.0)
    assert done.results.horizon == log.rows == 2_000
    assert {str(each.policy.guarantee) for each in done.candidates.values()} == {
        *("ε=2 per trajectory", "ε=2 per decision", "ε=2 per report")
    }
    assert isinstance(done.results.policies["imed"], bl.Policy)


def clicks(path: Path, means: list[float], rows: int, seed: int) -> Any:
    rng = np.random.default_rng(seed)
    arms = {f"arm{i}": (rng.random(rows) < mean).astype(int) for i, mean in enumerate(means)}
    return summarise_log(write_log(path, arms), arm="page", reward="paid")


@pytest.mark.statistical
def test_equal_arms_are_not_said_to_differ(tmp_path: Path) -> None:
    """Eight logs of three equal arms: no policy fits any, and a share of 1 is in the interval.

    By chance a log of equal arms excludes a tie in at most one of 40.
    """
    path = tmp_path / "log.csv"
    for seed in range(8):
        done = compare(clicks(path, [0.03] * 3, 2_000, seed), repetitions=10, horizon=2_000)
        assert done.fitting == {}, seed
        rows = {row.label: row for row in done.standings}
        assert rows["dp-imed"].share_low < 1 <= rows["dp-imed"].share_high
        if done.equal > 0.05:
            assert done.findings()[0].startswith("This log does not show that any arm is better")
            assert f"with probability {done.equal:.2g}." in done.findings()[0]


def test_arms_that_differ_clearly_have_policies_that_fit(tmp_path: Path) -> None:
    log = clicks(tmp_path / "log.csv", [0.1, 0.2, 0.4], 2_000, 1)
    done = compare(log, repetitions=10, horizon=2_000)
    assert done.best == "dp-imed"
    assert done.rows_needed is not None
    assert done.findings() == done.rows_needed.sentences()
    assert "dp-even" in done.findings()[-1]
    assert not done.one_ahead
    assert replace(done, one_ahead=True).findings() == [ONE_AHEAD, *done.findings()]
    assert done.equal < 1e-9
    share = next(row for row in done.standings if row.label == "dp-imed")
    assert 0 < share.share_low < share.share < share.share_high < 0.5
