"""Verdicts on claims of a paper."""

from __future__ import annotations

from balaclava.papers.harness.claims import compare_regret, misled_runs, subset
from tests.papers.figures import invented_results


def test_verdicts_on_claims() -> None:
    results = invented_results(low=[10, 11, 12], high=[50, 51, 52], wild=[1, 5, 90])
    assert compare_regret(results, "low", ["high"]) == "agrees"
    assert compare_regret(results, "high", ["low"]) == "differs"
    assert compare_regret(results, "low", ["wild"]) == "unclear"
    assert compare_regret(results, "low", ["wild", "high"]) == "unclear"
    assert compare_regret(results, "high", ["wild", "low"]) == "differs"
    assert "wild 1 of 3; low 0 of 3" in misled_runs(results, ["wild", "low"])
    assert subset(results, ["wild"]).labels == ["wild"]
