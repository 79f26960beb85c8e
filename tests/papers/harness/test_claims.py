"""Verdicts on claims of a paper."""

from __future__ import annotations

import numpy as np

import balaclava as bl
from balaclava.papers.harness.claims import compare_regret, misled_runs, subset


def made_up(**finals: list[float]) -> bl.Results:
    """Results with these final regrets, of two arms a gap of 1 apart."""
    from balaclava.simulation.results import Run

    world = bl.environment("bernoulli", means=[0.0, 1.0])
    policies = {label: bl.policy("ucb1", arms=2) for label in finals}
    results = bl.Results.empty(
        policies, world, horizon=100, seed=0, checkpoints=np.array([100], np.int64)
    )
    for label, values in finals.items():
        for i, value in enumerate(values):
            pulls = np.array([value, 100 - value], np.int64)
            results.add(Run(label, i, np.array([value]), pulls))
    return results


def test_verdicts_on_claims() -> None:
    results = made_up(low=[10, 11, 12], high=[50, 51, 52], wild=[1, 5, 90])
    assert compare_regret(results, "low", ["high"]) == "agrees"
    assert compare_regret(results, "high", ["low"]) == "differs"
    assert compare_regret(results, "low", ["wild"]) == "unclear"
    assert compare_regret(results, "low", ["wild", "high"]) == "unclear"
    assert compare_regret(results, "high", ["wild", "low"]) == "differs"
    assert "wild 1 of 3; low 0 of 3" in misled_runs(results, ["wild", "low"])
    assert subset(results, ["wild"]).labels == ["wild"]
