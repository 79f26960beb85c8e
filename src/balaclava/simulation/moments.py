"""A word of warning where a policy counts on a moment that the environment does not have."""

from __future__ import annotations

import warnings

from balaclava.environments.base import Environment
from balaclava.errors import IncompatibleError, MomentWarning
from balaclava.policies.base import Policy


def warn_of_moments(label: str, policy: Policy, environment: Environment) -> None:
    """Warn if an arm's moment is above `moment_bound`; nothing is known of it, nothing is said.

    Raw moments are compared, central ones for a policy whose `central_moments` is true. The moment
    of an environment that holds somebody's rewards is not repeated.
    """
    order, bound = getattr(policy, "moment_order", None), getattr(policy, "moment_bound", None)
    if order is None or bound is None:
        return
    central = bool(getattr(policy, "central_moments", False))
    try:
        moment = environment.moment(order, central=central)
    except IncompatibleError:
        return
    if moment <= bound * (1 + 1e-9):
        return
    law = f"E|X - mean|^{order:g}" if central else f"E|X|^{order:g}"
    reached = "above it (withheld: it is worked out from rewards)"
    if not environment.holds_data:
        reached = f"of {moment:.6g}"
    warnings.warn(
        f"{label}: moment_bound = {bound:.6g}, but an arm of {environment.name} has {law} "
        f"{reached}; "
        "what is proved of its regret does not hold here. Privacy does. Raise moment_bound, or "
        "lower moment_order",
        MomentWarning,
        stacklevel=3,
    )
