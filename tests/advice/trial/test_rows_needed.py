"""Rows of a log, and participants of a private trial, until the best arm is named."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest

from balaclava.advice.log.log_reading import summarise_log
from balaclava.advice.log.log_summary import LogSummary
from balaclava.advice.plan.fixed_size_test import FixedSizeTest
from balaclava.advice.trial.rows_needed import RowsNeeded, rows_needed, smallest_factor
from balaclava.advice.trial.worlds import LogWorlds


def log_of(folder: Path, successes: list[int], rows: int) -> LogSummary:
    """A log with so many successes of each arm."""
    file = folder / "log.csv"
    lines = [f"{arm},{int(i < count)}" for arm, count in enumerate(successes) for i in range(rows)]
    file.write_text("\n".join(["arm,reward", *lines]))
    return summarise_log(file, arm="arm", reward="reward")


def needed(log: LogSummary, epsilon: float = 1.0) -> RowsNeeded:
    return rows_needed(log, LogWorlds(log), 1_000, 1, epsilon)


@pytest.mark.parametrize("epsilon", [1.0, 0.1])
def test_a_certain_log_needs_what_the_test_of_fixed_size_takes(tmp_path: Path, epsilon: float):
    """20,000 rows an arm leave no doubt about the means: the size is right within 15 %."""
    found = needed(log_of(tmp_path, [6_000, 6_000, 12_000], 20_000), epsilon)
    exact = 3 * (FixedSizeTest(np.array([0.3, 0.3, 0.6]), epsilon, 0.95, 1).size(0.9, 1e6) or 0)
    assert found.participants is not None
    assert found.participants.middle == pytest.approx(exact, rel=0.15)
    assert found.conclusive
    assert found.rows.high == 0.0
    assert not any("more rows" in sentence for sentence in found.sentences())


def test_the_lead_is_shrunk_and_uncertain(tmp_path: Path):
    """45 and 55 of 100: the lead is probably smaller than 0.1, or there is none."""
    found = needed(log_of(tmp_path, [45, 55], 100))
    assert found.lead.middle < 0.1
    assert found.lead.low == 0.0
    assert math.isinf(found.rows.high)
    assert 100 < found.rows.middle < 10_000
    text = " ".join(found.sentences())
    assert "no limit, as arms may be equal" in text
    assert "more rows like these" in text


def test_equal_arms_have_no_answer(tmp_path: Path):
    found = needed(log_of(tmp_path, [50, 50, 51], 100))
    assert found.sentences() == [
        "How many more rows would tell which arm is best is unknown: arms may be equal."
    ]
    assert found.to_dict()["rows"]["middle"] == math.inf


def test_more_rows_are_needed_for_less(tmp_path: Path):
    close = needed(log_of(tmp_path, [450, 480], 1_000)).rows.middle
    clear = needed(log_of(tmp_path, [450, 490], 1_000)).rows.middle
    assert close > clear > 0


def test_rewards_without_a_spread_divide_nothing_by_zero() -> None:
    gaps = np.array([[np.inf, 0.0], [np.inf, 0.5]])
    with np.errstate(all="raise"):
        factors = smallest_factor(gaps, 2.0, lambda size: 0.0 * (gaps > 9) / size)
    assert factors[0] == np.inf
    assert factors[1] < 1e-6
