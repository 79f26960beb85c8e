"""What saved numbers must keep to: the common part of a state's own invariants."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

MOST = 2**62  # decisions that a plan may speak of


def outside(low: float, high: float, **arrays: np.ndarray) -> Iterator[str]:
    """Names the arrays that hold something below `low`, above `high`, or not a number."""
    for name, array in arrays.items():
        if not ((array >= low) & (array <= high)).all():
            yield f"{name} holds a number out of its range"
