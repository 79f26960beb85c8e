"""Regret with experts."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import balaclava as bl
from balaclava.errors import ParameterError
from balaclava.papers.asi2025 import expert_rates
from tests.papers.asi2025.reproduced import make


def test_experts_of_whom_one_is_good() -> None:
    world = expert_rates.one_good_expert(5, 100, 0.25)
    losses = world.expert_losses(np.array([100]))[0]
    assert losses.tolist() == [50.0] * 4 + [25.0]
    refusals = expert_rates.Refusals({})
    one = expert_rates.expert_setting("a", 0.5, 5, 400, 0.5, refusals)
    assert "dp-exp4" not in one.policies
    assert str(refusals) == "Refused, since the horizon is too short: dp-exp4 at (a) 0.5."
    with pytest.raises(ParameterError):
        bl.policy("dp-exp4", arms=2, experts=5, horizon=400, epsilon=0.5, delta=1e-5)


@pytest.mark.slow
def test_table_2(tmp_path: Path) -> None:
    made, rows = make("table2", tmp_path)
    assert {row["panel"] for row in rows} == set("abc")
    assert {"dp-htinf-experts", "ldp-exp4", "exp4"} <= {row["policy"] for row in rows}
    assert "dp-exp4 at (a) 1; 0.3; 0.1, (b)" in " ".join(made.text.split())
    printed = bl.recommend_experts(2, 4, 400, 0.3, delta=1e-5).policy
    assert f"ε = 0.3: {printed}" in " ".join(made.text.split())
