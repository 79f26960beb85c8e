"""What the policies of Tao, Wu, Zhao, Wang (2022) share: a known moment, and what it gives."""

from __future__ import annotations

from typing import Annotated, Any

import numpy as np

from balaclava._declared import Range
from balaclava.errors import IncompatibleError

TailOrder = Annotated[
    float, Range(1, 2, "order 1 + v of the known moment, E|X|^(1+v)", open_low=True)
]

_SMALLEST, _LARGEST = 1e-200, 1e200  # levels whose grids and noise 64-bit floats hold


def require_levels(policy: Any, *levels: float) -> None:
    """Refuse parameters whose truncation levels leave the range of 64-bit floats."""
    if not all(_SMALLEST < level < _LARGEST for level in levels):
        raise policy.refuse(
            "moment_bound",
            "with this moment_order gives truncation levels that 64-bit floats cannot hold; "
            "rescale the rewards",
        )


def meets_moment_bound(policy: Any, environment: Any, rounding: float = 1e-12) -> bool:
    """Whether every arm's moment, raw or central as the policy says, is at most `moment_bound`."""
    central = bool(getattr(policy, "central_moments", False))
    try:
        moment = environment.moment(policy.moment_order, central=central)
    except IncompatibleError:
        return False
    return bool(moment <= policy.moment_bound * (1.0 + rounding))


def most_regret(gaps: np.ndarray, pulls: np.ndarray, horizon: int) -> float:
    """The regret of `horizon` rounds if each arm is pulled at most so often, the worst first.

    Example:
        >>> most_regret(np.array([0.0, 0.5, 1.0]), np.array([np.inf, 10.0, 10.0]), 15)
        12.5
    """
    total, left = 0.0, float(horizon)
    for arm in np.argsort(-gaps):
        share = min(float(pulls[arm]), left)
        total += float(gaps[arm]) * share
        left -= share
    return total


def removal_epochs(gaps: np.ndarray) -> np.ndarray:
    """The first epoch tau = 1, 2, ... with 2^-tau <= gap, for gaps above 0."""
    epochs: np.ndarray = np.maximum(np.ceil(np.log2(1.0 / gaps)), 1.0).astype(np.int64)
    return epochs
