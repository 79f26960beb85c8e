"""Exact moments: checked orders, quadrature, and moments of samples."""

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Annotated

import numpy as np

from balaclava._core.declared import Range, check
from balaclava._core.extras import import_extra

Order = Annotated[float, Range(0, meaning="order of a moment", open_low=True)]


def checked_order(order: float) -> float:
    return check("order", order, Order)


def integral(function: Callable[[float], float], edges: Sequence[float]) -> float:
    """The integral of a function that is smooth between consecutive edges."""
    quad = import_extra("scipy.integrate", "a moment").quad
    # full_output keeps quad from warning when rounding error stops it before 1e-12.
    return sum(
        float(quad(function, low, high, epsabs=0.0, epsrel=1e-12, limit=200, full_output=1)[0])
        for low, high in pairwise(sorted(set(edges)))
    )


def average_moment(rewards: np.ndarray, order: float, *, central: bool) -> float:
    """The moment of the uniform distribution on these rewards."""
    centre = rewards.mean() if central else 0.0
    return float((np.abs(rewards - centre) ** order).mean())
