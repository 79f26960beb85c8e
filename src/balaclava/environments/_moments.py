"""What several families share: checked orders, quadrature, averages, and checked rewards."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Annotated, Any

import numpy as np

from balaclava._core.declared import Range, check
from balaclava._core.parts import require_part
from balaclava.errors import ParameterError

Order = Annotated[float, Range(0, meaning="order of a moment", open_low=True)]


def checked_order(order: float) -> float:
    """A positive order, or the error that says so."""
    number: float = check("order", order, Order)
    return number


def integral(function: Callable[[float], float], edges: Sequence[float]) -> float:
    """The integral of a function that is smooth between consecutive edges, kinks at the edges."""
    require_part("scipy", "a moment")
    from scipy.integrate import quad

    # full_output keeps quad from warning when it stops at rounding error instead of at 1e-12.
    return sum(
        float(quad(function, low, high, epsabs=0.0, epsrel=1e-12, limit=200, full_output=1)[0])
        for low, high in pairwise(sorted(set(edges)))
    )


def average_moment(rewards: np.ndarray, order: float, *, central: bool) -> float:
    """The moment of the law that picks each of these rewards with equal chance."""
    centre = rewards.mean() if central else 0.0
    return float((np.abs(rewards - centre) ** order).mean())


def checked_rewards(label: str, values: Any, dimensions: int) -> np.ndarray:
    """A read-only copy as finite numbers; the error names a place, never a reward."""
    place = "row" if dimensions == 1 else "row and column"
    shape = "a list of numbers" if dimensions == 1 else "one row a round, one column an arm"
    try:
        rewards = np.array(values, dtype=np.float64, order="C")
    except (TypeError, ValueError):
        at = first_not_a_number(values)
        why = f"is not a number at {place} {at} (from 0)" if at else f"is not {shape}"
        raise ParameterError(f"{label} {why}") from None
    if rewards.ndim != dimensions or rewards.size == 0:
        raise ParameterError(f"{label} has shape {rewards.shape}; give {shape}, at least one")
    wrong = np.argwhere(~np.isfinite(rewards))
    if len(wrong):
        at = ", ".join(str(i) for i in wrong[0])
        raise ParameterError(
            f"{label} is not finite at {place} {at} (from 0); remove or fill what is missing"
        )
    rewards.flags.writeable = False
    return rewards


def first_not_a_number(values: Any) -> str:
    """The indices of the first entry that is not a number; empty if the shape is what is wrong."""
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
