"""Checks of rewards and losses that the caller gives; errors name a place, never a value."""

from typing import Any

import numpy as np

from balaclava.errors import ParameterError


def checked_rewards(label: str, values: Any, dimensions: int) -> np.ndarray:
    """Copy rewards as finite, read-only numbers; errors name a place, never a reward."""
    place = "row" if dimensions == 1 else "row and column"
    shape = "a list of numbers" if dimensions == 1 else "one row per round, one column per arm"
    try:
        rewards = np.array(values, dtype=np.float64, order="C")
    except (TypeError, ValueError):
        at = first_not_a_number(values)
        why = f"is not a number at {place} {at} (from 0)" if at else "is not an array of numbers"
        raise ParameterError(f"{label} {why}; give {shape}") from None
    if rewards.ndim != dimensions or rewards.size == 0:
        raise ParameterError(f"{label} has shape {rewards.shape}; give {shape}, not empty")
    what, advice = "is not finite", "remove or fill missing values"
    _refuse_where(~np.isfinite(rewards), f"{label} {what} at {place}", advice)
    rewards.flags.writeable = False
    return rewards


def checked_losses(label: str, values: Any) -> np.ndarray:
    """Check a table of losses in [0, 1]; errors name a place, never a loss."""
    losses = checked_rewards(label, values, 2)
    outside = f"{label} is outside [0, 1] at row and column"
    _refuse_where((losses < 0) | (losses > 1), outside, "rescale the losses")
    return losses


def _refuse_where(wrong: np.ndarray, what: str, advice: str) -> None:
    if wrong.any():
        at = ", ".join(str(i) for i in np.argwhere(wrong)[0])
        raise ParameterError(f"{what} {at} (from 0); {advice}")


def first_not_a_number(values: Any) -> str:
    """The indices of the first entry that is not a number; empty if the shape is wrong instead."""
    if isinstance(values, str | bytes) or not hasattr(values, "__iter__"):
        return ""
    for i, item in enumerate(values):
        if not isinstance(item, str | bytes) and hasattr(item, "__iter__"):
            deeper = first_not_a_number(item)
            if deeper:
                return f"{i}, {deeper}"
            continue
        try:
            float(item)
        except (TypeError, ValueError):
            return str(i)
    return ""
