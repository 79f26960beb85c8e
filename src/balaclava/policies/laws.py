"""What theorems for random rewards ask of an environment."""

from __future__ import annotations

from typing import Any


def draws_its_means(policy: Any, environment: Any) -> bool:
    """Whether each arm gives independent draws of the mean that its regret is counted by.

    Outliers may be among them up to the `contamination` that the policy was told, if any.
    """
    outliers = environment.share_of_outliers * (1.0 - 1e-9)  # which rounding may have raised
    return bool(environment.independent and outliers <= (policy.contamination or 0.0))
