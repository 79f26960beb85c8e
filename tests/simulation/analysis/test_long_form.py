"""Results as tables for other tools, and things as notebooks show them."""

from __future__ import annotations

import numpy as np
import pytest

import balaclava as bl
from balaclava.auditing.audit_report import AuditReport

WORLD = bl.environment("bernoulli", means=[0.3, 0.5, 0.7])
POLICIES = {"<one>": bl.policy("ucb1", arms=3), "two": bl.policy("ucb1", arms=3, radius_scale=0.5)}


def test_one_row_a_run_and_checkpoint() -> None:
    results = bl.simulate(POLICIES, WORLD, horizon=100, repetitions=3, seed=1, checkpoints=5)
    table = results.to_arrow()
    assert table.column_names == ["policy", "privacy", "repetition", "round", "regret"]
    assert table.num_rows == 2 * 3 * 5
    rows = table.to_pylist()
    assert rows[0]["round"] == results.checkpoints[0]
    last = [row["regret"] for row in rows if row["policy"] == "two" and row["round"] == 100]
    np.testing.assert_array_equal(last, results.final_regret("two"))
    pytest.importorskip("pandas")
    frame = results.to_pandas()
    assert frame.groupby("policy", observed=True)["regret"].count().to_dict() == {
        "<one>": 15,
        "two": 15,
    }
    pytest.importorskip("polars")
    assert results.to_polars().height == 30
    results.runs = {"<one>": {}, "two": {}}
    assert results.to_arrow().num_rows == 0


def test_what_a_notebook_shows() -> None:
    results = bl.simulate(POLICIES, WORLD, horizon=100, repetitions=3, seed=1)
    private = bl.policy("dp-imed", arms=3, epsilon=0.5)
    report = AuditReport("<one>", {}, private.guarantee, 0.95, None, None, None)
    for thing, words in (
        (results, "&lt;one&gt;"),
        (report, "<th>claims</th><td>      ε=0.5 per trajectory</td>"),
        (private, "<th>epsilon</th><td>0.5</td>"),
        (private.guarantee, "ε=0.5 per trajectory"),
        (private.agent().estimates(), "<table"),
    ):
        text = thing._repr_html_()
        assert words in text
        assert "<one>" not in text
