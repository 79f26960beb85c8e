"""Advice of experts: in each round, each expert's distribution over the arms."""

from __future__ import annotations

from typing import Any

import numpy as np

_SUM_TOLERANCE = 1e-9


def fault_of_advice(advice: np.ndarray, experts: int | None, arms: int) -> str:
    """What is wrong with advice[..., expert, arm], or "": rows must be distributions."""
    if advice.ndim < 2 or advice.size == 0:
        return f"has shape {advice.shape}; give one row an expert, one column an arm"
    if experts is not None and advice.shape[-2] != experts:
        return f"is of {advice.shape[-2]} experts, not of {experts}"
    if advice.shape[-1] != arms:
        return f"is about {advice.shape[-1]} arms, not about {arms}"
    wrong = ~(np.isfinite(advice) & (advice >= 0)).all(axis=-1)
    if wrong.any():
        return f"of {_row(wrong)} holds what is not a probability"
    wrong = np.abs(advice.sum(axis=-1) - 1.0) > _SUM_TOLERANCE
    if wrong.any():
        return f"of {_row(wrong)} does not sum to 1; divide the row by its sum"
    return ""


def as_advice(rows: Any) -> np.ndarray | None:
    """A read-only copy as numbers, or None where that cannot be."""
    try:
        advice = np.array(rows, dtype=np.float64, order="C")
    except (TypeError, ValueError):
        return None
    advice.flags.writeable = False
    return advice


def _row(wrong: np.ndarray) -> str:
    *earlier, expert = (int(i) for i in np.argwhere(wrong)[0])
    return f"expert {expert}" + (f" in round {earlier[0] + 1}" if earlier else "")
