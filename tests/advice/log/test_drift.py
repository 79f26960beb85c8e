"""Drift over time: seen if there is one, rarely otherwise."""

from __future__ import annotations

import numpy as np

from balaclava.advice.log.drift import drift_findings


def test_drift_is_seen_and_its_absence_too() -> None:
    rng = np.random.default_rng(7)
    times, arms = np.arange(2_000.0), rng.integers(0, 2, 2_000)
    steady = rng.standard_normal(2_000)
    assert "No drift" in drift_findings(["a", "b"], arms, steady, times)[0]
    sentences = drift_findings(["a", "b"], arms, steady + (arms == 1) * times / 2_000, times)
    assert sentences[0].startswith("Arm 'b' changes over time")
    assert "tolerate drift" in sentences[-1]
    later = (rng.random(2_000) < times / 2_000).astype(int)
    moved, causes = drift_findings(["a", "b"], later, steady, times)
    assert moved.startswith("Which arm was played changes over time: '")
    assert "Perhaps the logging policy was learning" in moved
    assert "doubled rows, can look like this" in causes


def test_a_split_that_is_broken_for_two_days_is_dated() -> None:
    """30 days of a third each; on two days 75 % of one arm, in rows of any order."""
    rng = np.random.default_rng(3)
    days = np.repeat(np.arange(30), 500)
    weights = np.where((days == 11) | (days == 12), 0.75, 1 / 3)
    arms = np.where(rng.random(days.size) < weights, 0, rng.integers(1, 3, days.size))
    times = 1_767_225_600 + 86_400.0 * days + rng.random(days.size) * 86_399  # from 2026-01-01
    mixed = rng.permutation(days.size)
    rows = arms[mixed], np.ones(days.size), times[mixed]
    moved = drift_findings(["liste", "karte", "neu"], *rows, dated=True)[0]
    assert "'liste' has 7" in moved
    assert "1,000 rows from 2026-01-12 00:" in moved
    assert "to 2026-01-13 23:" in moved
    assert "and 33% of the others. Perhaps the split was broken in that period" in moved


def test_drift_is_rarely_seen_where_there_is_none() -> None:
    """400 steady logs of five arms: at most 8.5 % show a drift of any kind, where 5 % should.

    More than that by chance has a probability below 2e-3.
    """
    rng = np.random.default_rng(17)
    times, names = np.arange(500.0), list("abcde")
    seen = 0
    for _ in range(400):
        rewards = (rng.random(500) < 0.2).astype(float)
        sentences = drift_findings(names, rng.integers(0, 5, 500), rewards, times)
        seen += "No drift" not in sentences[0]
    assert seen <= 34
