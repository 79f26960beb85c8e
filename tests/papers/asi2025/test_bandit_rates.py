"""Regret without experts."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from balaclava.papers.asi2025 import bandit_rates
from tests.papers.asi2025.reproduced import make


def test_table_1(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    few = ("dp-htinf", "ldp-exp3, tuned")
    monkeypatch.setattr(bandit_rates, "SHORT_LIST", few)  # three policies to compile, not seven
    monkeypatch.setattr(bandit_rates, "FULL_LIST", few)
    monkeypatch.setattr(bandit_rates, "BASELINES", ("htinf",))
    made, rows = make("table1", tmp_path)
    plan = bandit_rates.TABLE_PLANS["tiny"]
    assert {row["panel"] for row in rows} == set("abcd")
    promises = {row["policy"]: row["guarantee"].split(" per ")[-1] for row in rows}
    assert promises["dp-htinf"] == "trajectory"
    assert promises["ldp-exp3, tuned"] == "report"
    assert promises["htinf"] == "not private"
    # What the text says of epsilon = T^(-1/2) is what the rows say.
    mine = [r for r in rows if r["panel"] == "d" and r["policy"] == "dp-htinf"]
    shares = []
    for horizon in plan.long_horizons:
        regrets: dict[str, list[float]] = {}
        for row in mine:
            if int(row["horizon"]) == horizon:
                regrets.setdefault(row["largest_gap"], []).append(float(row["regret"]))
        assert all(len(found) == plan.repetitions for found in regrets.values())
        shares.append(max(np.mean(found) for found in regrets.values()) / (horizon / 4))
    said = ", ".join(f"{share:.0%}" for share in shares)
    assert f"as a share of even play, T from 100 to 400: {said}" in " ".join(made.text.split())


@pytest.mark.slow
def test_table_1_with_every_policy(tmp_path: Path) -> None:
    _, rows = make("table1", tmp_path)
    played = {row["policy"] for row in rows if row["panel"] == "a"}
    assert played == {*bandit_rates.FULL_LIST, *bandit_rates.BASELINES}
