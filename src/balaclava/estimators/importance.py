"""Arms drawn at random, and estimates of their losses from the loss of the one that was drawn."""

from __future__ import annotations

from typing import Any

import numpy as np

from balaclava._core.kernels import kernel

LARGEST = 1e300  # where sums stop, so that differences stay finite


@kernel(borrows=True)
def draw_arm(chances: np.ndarray, rng: Any) -> int:
    """An arm by its chance; never one whose chance is 0, however the chances are rounded."""
    remainder = rng.random()
    pick = 0
    for arm in range(chances.size):
        if chances[arm] > 0.0:
            pick = arm
            remainder -= chances[arm]
            if remainder < 0.0:
                break
    return pick


@kernel(borrows=True)
def add_loss(losses: np.ndarray, arm: int, estimate: float) -> None:
    """Add to the estimated losses of an arm."""
    losses[arm] = min(max(losses[arm] + estimate, -LARGEST), LARGEST)


@kernel(borrows=True)
def least_loss(losses: np.ndarray) -> float:
    """The least of the estimated losses."""
    least = losses[0]
    for arm in range(1, losses.size):
        least = min(least, losses[arm])
    return least
