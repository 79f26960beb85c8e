"""The summary of a log: the kind of its rewards, and what it tells policies."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from balaclava.advice.log.log_reading import summarise_log
from tests.advice.logs_on_disk import write_log


def a_log(path: Path, law: Any, rows: int = 400) -> Any:
    rng = np.random.default_rng(5)
    write_log(path, {arm: law(rng, i, rows) for i, arm in enumerate(("old", "new"))})
    return summarise_log(path, arm="page", reward="paid")


@pytest.mark.parametrize(
    ("law", "kind"),
    [
        (lambda rng, i, n: rng.integers(1, 6, n), "bounded"),  # grades
        (lambda rng, i, n: 10 + i + rng.standard_normal(n), "bounded"),
        (lambda rng, i, n: rng.uniform(-4, 3, n), "bounded"),
        (lambda rng, i, n: 1 + rng.pareto(1.5, n), "heavy-tailed"),
        (lambda rng, i, n: rng.standard_t(2.0, n), "heavy-tailed"),
        (lambda rng, i, n: np.exp(1.5 * rng.standard_normal(n)), "heavy-tailed"),
    ],
)
def test_what_rewards_look_like(tmp_path: Path, law: Any, kind: str) -> None:
    log = a_log(tmp_path / "log.csv", law)
    assert log.kind == kind
    low, high = log.observed_range
    assert log.reward_range[0] <= low
    assert high <= log.reward_range[1] <= 2.5 * max(high, 1e-9)
    if kind == "heavy-tailed":
        assert 1 < log.moment_order <= 2
        assert log.moment(log.moment_order) <= log.moment_bound * (1 + 1e-9)
