"""Regret over the rounds, and policies of equal scope."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest

import balaclava as bl
from balaclava.papers.harness.figure_policies import trajectory_policies
from balaclava.papers.wang2024 import regret_over_rounds
from tests.papers.wang2024.saved_files import check_files


def test_the_interval_of_the_original() -> None:
    """A refresh after every pull, with the epsilon that this costs."""
    for delta, spent in ((0.01, 21.9), (math.exp(-10), 26.5)):
        policy = regret_over_rounds.original_interval(9, delta)
        assert policy.interval == 1
        assert policy.guarantee.epsilon == pytest.approx(spent, abs=0.05)


def test_counters_that_all_get_an_item_lock_no_run() -> None:
    """dp-ucb leaves the best arm for good after unlucky noise; new noise brings it back."""
    world = bl.environment("bernoulli", means=[0.3, 0.4, 0.5, 0.6, 0.7])
    policies = {
        "dp-ucb": bl.policy("dp-ucb", arms=5, epsilon=1.0),
        "all": regret_over_rounds.AllCounters(arms=5, epsilon=1.0),
    }
    results = bl.simulate(policies, world, horizon=50_000, repetitions=16, seed=1)
    locked = {label: int((results.pulls(label)[:, 4] < 25_000).sum()) for label in policies}
    assert locked["dp-ucb"] >= 5
    assert locked["all"] == 0


@pytest.mark.slow
def test_regret_with_its_companion(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def few(**offered: float) -> dict[str, bl.Policy]:
        return {"dp-se": trajectory_policies(**offered)["dp-se"]}

    monkeypatch.setattr(
        regret_over_rounds, "trajectory_policies", few
    )  # one policy to compile, not twelve
    made = bl.reproduce("wang2024-fig4", scale="tiny", out=tmp_path)
    check_files(made, ["parquet"] * 4 + ["png", "png", "txt"])
    assert (tmp_path / "wang2024-fig4-equal-scope.png") in made.files
    results = made.results["d"]
    assert results.environment.arms == 101
    assert set(results.labels) == {
        *(
            "dp-ftpl-gauss",
            "dp-ftpl-beta",
            "dp-ftpl-new",
            "dp-ucb-int",
            regret_over_rounds.INTERVAL_1,
            "dp-se",
            regret_over_rounds.SPLIT_LABEL,
        )
    }
    assert results.policies["dp-ftpl-new"].guarantee.delta == math.exp(-10)
    # Played in panel (c) and not again, as delta is nothing to it; that changes nothing.
    assert results.runs["dp-se"] is made.results["c"].runs["dp-se"]
    alone = bl.simulate(
        results.policies["dp-se"],
        results.environment,
        horizon=300,
        repetitions=2,
        seed=results.seed,
    )
    assert np.array_equal(alone.regret("dp-se"), results.regret("dp-se"))
    for letter, panel in made.results.items():
        saved = bl.load(tmp_path / f"wang2024-fig4{letter}.parquet")
        for label in panel.labels:
            assert np.array_equal(saved.regret(label), panel.regret(label))
    split = results.policies[regret_over_rounds.SPLIT_LABEL].guarantee.over(
        300, delta=math.exp(-10)
    )
    assert 0.9 < split.epsilon <= 1.0
    text = " ".join(made.text.split())
    assert "for dp-ftpl-gauss, dp-ftpl-beta, dp-ftpl-new ε=1, δ=0.01 per decision is" in text
    assert "77 pulls in (a) and (c)" in text
    assert "dp-ftpl-beta, 7,443 rounds, does not end" in text


@pytest.mark.slow
def test_pure_regret_with_every_companion(tmp_path: Path) -> None:
    made = bl.reproduce("wang2024-fig5", scale="tiny", out=tmp_path)
    check_files(made, ["parquet"] * 4 + ["png", "png", "txt"])
    for results in made.results.values():
        companions = set(results.labels) - {"dp-ftpl-new", regret_over_rounds.SPLIT_LABEL}
        assert {"dp-se", "dp-ucb", "gdp-elim-new"} <= companions
        assert all(results.policies[c].guarantee.scope == "trajectory" for c in companions)
    assert "ε=0.1 per decision is ε=30 per trajectory" in " ".join(made.text.split())
