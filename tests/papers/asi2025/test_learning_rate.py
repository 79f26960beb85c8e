"""The effect of the learning rate."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from balaclava.papers.asi2025 import learning_rate
from tests.papers.asi2025.reproduced import make


@pytest.mark.slow
def test_learning_rate(tmp_path: Path) -> None:
    made, rows = make("learning-rate", tmp_path)
    mine = [r for r in rows if r["panel"] == "b" and r["policy"] == "dp-htinf"]
    means = {
        scale: np.mean([float(r["regret"]) for r in mine if float(r["x"]) == scale])
        for scale in learning_rate.RATE_PLANS["tiny"].scales
    }
    best = min(means, key=lambda scale: means[scale])
    text = " ".join(made.text.split())
    assert f"(b) least regret: dp-htinf {means[best]:,.0f} at {best:g}" in text
    assert "bl.calibrate, on the gaps below 0.5, chooses dp-htinf" in text
    assert ("No, as far as this shows" in text) != ("Yes, as far as this shows" in text)
