"""Regret on losses that turn."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from balaclava.papers.asi2025 import lemma51
from balaclava.papers.asi2025.lemma51_conditions import lemma_line
from tests.papers.asi2025.reproduced import make


def test_lemma_51(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lemma51, "TURN_LIST", ("dp-htinf",))
    monkeypatch.setattr(lemma51, "BASELINES", ("htinf",))
    made, rows = make("lemma51", tmp_path)
    first = [r for r in rows if r["panel"] == "a" and r["policy"] == "htinf" and r["x"] == "1.0"]
    mean = np.mean([float(row["regret"]) for row in first])
    assert f"htinf, regret without the turn and with it: ε = 1: {mean:,.0f} and" in made.text
    assert f"{lemma_line(400, 1.0):,.0f} at ε = 1;" in made.text
