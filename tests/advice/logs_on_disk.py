"""Logs that the tests of advice read."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from balaclava.advice.log.feature_columns import FeatureColumns, fit_scaling

ROWS = 1_000


def write_log(path: Path, arms: dict[str, Any], header: str = "page,paid") -> Path:
    rows = [f"{arm},{reward}" for arm, rewards in arms.items() for reward in rewards]
    path.write_text("\n".join([header, *rows]) + "\n", encoding="utf-8")
    return path


def draw_log(rng: Any, slope: float, rows: int = ROWS) -> tuple[np.ndarray, ...]:
    """Arm 1 suits those with a large x, and was given to them more often."""
    x = rng.uniform(-1, 1, rows)
    chance = 1 / (1 + np.exp(-2 * x))  # of arm 1
    arms = (rng.random(rows) < chance).astype(np.int64)
    means = 0.5 + slope * x * (2 * arms - 1)
    rewards = (rng.random(rows) < means).astype(float)
    scaling = fit_scaling(FeatureColumns(("x",), x[:, None]))
    return arms, rewards, scaling.rows(x[:, None]), np.where(arms == 1, chance, 1 - chance)
