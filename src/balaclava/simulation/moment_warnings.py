"""A word of warning where a policy counts on a bound that the environment does not keep."""

from __future__ import annotations

import warnings

import numpy as np

from balaclava.environments.base import Environment
from balaclava.errors import IncompatibleError, MomentWarning
from balaclava.policies.base import Policy


def warn_of_moments(label: str, policy: Policy, environment: Environment) -> None:
    """Warn if moments, means or outliers are beyond what the policy was told of them.

    These are `moment_bound`, `mean_range` and `contamination`, for policies that take them. Raw
    moments are compared, central ones for a policy whose `central_moments` is true. What is worked
    out from somebody's rewards is not repeated. Nothing is known of it, nothing is said.
    """
    for parameter, bound, law, reached, advice in _compared(policy, environment):
        if reached <= bound * (1 + 1e-9):
            continue
        size = "above it (withheld: it is worked out from rewards)"
        if not environment.holds_data:
            size = f"of {reached:.6g}"
        warnings.warn(
            f"{label}: {parameter} = {bound:.6g}, but {law} {size}; what is proved of its regret "
            f"does not hold here. Privacy does. {advice}",
            MomentWarning,
            stacklevel=3,
        )


def _compared(policy: Policy, environment: Environment) -> list[tuple[str, float, str, float, str]]:
    """What the policy was told, its bound, what it is about, how large that is, what to do."""
    rows = []
    order, bound = policy.moment_order, policy.moment_bound
    if order is not None and bound is not None:
        central = policy.central_moments
        law = f"an arm of {environment.name} has E|X{' - mean' if central else ''}|^{order:g}"
        advice = "Raise moment_bound, or lower moment_order"
        try:
            moment = environment.moment(order, central=central)
            rows.append(("moment_bound", bound, law, moment, advice))
        except IncompatibleError:
            pass
    mean_range, means = policy.mean_range, environment.means
    if mean_range is not None and means is not None:
        law = f"an arm of {environment.name} has a mean, up to its sign,"
        advice = "Raise mean_range, or subtract a constant from the rewards"
        rows.append(("mean_range", mean_range, law, float(np.abs(means).max()), advice))
    contamination = policy.contamination
    if contamination is not None:
        law = f"{environment.name} has a share of outliers"
        share = environment.share_of_outliers
        rows.append(("contamination", contamination, law, share, "Raise contamination"))
    return rows
