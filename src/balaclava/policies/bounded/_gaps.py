"""Gaps on the scale of [0, 1], on which regret bounds for bounded rewards are stated."""

from __future__ import annotations

from typing import Any

import numpy as np

from balaclava.policies.base import BoundedPolicy
from balaclava.policies.theorem_conditions import draws_its_means


def unit_gaps(policy: BoundedPolicy, environment: Any) -> tuple[np.ndarray, float] | None:
    """The gaps divided by the width of `reward_range`, and that width: regret is scaled back by it.

    None where nothing is proved: for rewards outside the range, and for those that are not
    independent draws of the means that the gaps are between.
    """
    low, high = policy.reward_range
    least, most = environment.reward_range
    if least < low or most > high or not draws_its_means(policy, environment):
        return None
    return environment.gaps / (high - low), high - low
