"""Warnings if an environment exceeds a bound that a policy was given."""

import warnings
from contextlib import suppress

import numpy as np

from balaclava.environments.base import Environment
from balaclava.errors import IncompatibleError, MomentWarning
from balaclava.policies.base import Policy


def warn_of_moments(label: str, policy: Policy, environment: Environment) -> None:
    """Warn if moments, means or outliers exceed a policy's parameters.

    The parameters are `moment_bound`, `mean_range` and `contamination`. The moments are raw, or
    central if the policy's `central_moments` is true. The warning withholds values computed from
    data. If a moment is unknown there is no warning.
    """
    for parameter, bound, law, reached, advice in _compared(policy, environment):
        if reached <= bound * (1 + 1e-9):
            continue
        size = "above it (withheld: computed from rewards)"
        if not environment.holds_data:
            size = f"of {reached:.6g}"
        warnings.warn(
            f"{label}: {parameter} = {bound:.6g}, but {law} {size}; the proved regret bound does "
            f"not hold here, privacy does. {advice}",
            MomentWarning,
            stacklevel=3,
        )


def _compared(policy: Policy, environment: Environment) -> list[tuple[str, float, str, float, str]]:
    """For each parameter: name, value, what it bounds, the true value, and what to do."""
    rows = []
    order, bound = policy.moment_order, policy.moment_bound
    if order is not None and bound is not None:
        central = policy.central_moments
        law = f"an arm of {environment.name} has E|X{' - mean' if central else ''}|^{order:g}"
        advice = "Raise moment_bound, or lower moment_order"
        with suppress(IncompatibleError):
            moment = environment.moment(order, central=central)
            rows.append(("moment_bound", bound, law, moment, advice))
    if policy.mean_range is not None:
        law = f"an arm of {environment.name} has a mean, up to its sign,"
        advice = "Raise mean_range, or subtract a constant from the rewards"
        with suppress(IncompatibleError):
            largest = float(np.abs(environment.means).max())
            rows.append(("mean_range", policy.mean_range, law, largest, advice))
    contamination = policy.contamination
    if contamination is not None:
        law = f"{environment.name} has a share of outliers"
        share = environment.share_of_outliers
        rows.append(("contamination", contamination, law, share, "Raise contamination"))
    return rows
