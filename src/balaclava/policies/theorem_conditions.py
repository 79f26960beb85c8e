"""Conditions of the theorems: known moments, and laws of the rewards."""

from typing import Annotated, Any

import numpy as np

from balaclava._core.declared import Range
from balaclava.errors import IncompatibleError
from balaclava.theory.truncation_radius import raw_moment_bound

TailOrder = Annotated[
    float, Range(1, 2, "order 1 + v of the known moment, E|X|^(1+v)", open_low=True)
]

# Truncation levels between these leave room for their grids and noise in 64-bit floats.
SMALLEST_TRUNCATION, LARGEST_TRUNCATION = 1e-200, 1e200


def require_levels(policy: Any, *levels: float) -> None:
    """Refuse parameters whose truncation levels leave the range of 64-bit floats."""
    if not all(SMALLEST_TRUNCATION < level < LARGEST_TRUNCATION for level in levels):
        raise policy.refuse(
            "moment_bound",
            "with this moment_order gives truncation levels that 64-bit floats cannot hold; "
            "rescale the rewards",
        )


def draws_its_means(policy: Any, environment: Any) -> bool:
    """Whether each arm gives independent draws whose mean defines the regret.

    Outliers are allowed up to the policy's `contamination`.
    """
    outliers = environment.share_of_outliers * (1.0 - 1e-9)  # tolerates rounding
    return bool(environment.independent and outliers <= (policy.contamination or 0.0))


def unit_gaps(policy: Any, environment: Any) -> tuple[np.ndarray, float] | None:
    """The gaps divided by the width of `reward_range`, and that width, which scales regret back.

    None if rewards may leave the range or are not independent draws of the environment's means.
    """
    low, high = policy.reward_range
    least, most = environment.reward_range
    if least < low or most > high or not draws_its_means(policy, environment):
        return None
    return environment.gaps / (high - low), high - low


def moments_hold(policy: Any, environment: Any, rounding: float = 1e-12) -> bool:
    """Whether the arms satisfy the policy's `moment_bound`, `mean_range` and `contamination`."""
    if not draws_its_means(policy, environment):
        return False
    central = policy.central_moments
    try:
        moment = environment.moment(policy.moment_order, central=central)
    except IncompatibleError:
        return False
    reach = policy.mean_range
    if central and reach is not None and np.abs(environment.means).max() > reach:
        return False
    return bool(moment <= policy.moment_bound * (1.0 + rounding))


def raw_bound(policy: Any) -> float:
    """u: `moment_bound`, or the raw moment that follows from it and `mean_range`."""
    if policy.mean_range is None:
        return float(policy.moment_bound)
    return raw_moment_bound(
        policy.moment_bound, mean_range=policy.mean_range, order=policy.moment_order
    )
