"""Gaps on the scale of [0, 1], on which regret bounds for bounded rewards are stated."""

from __future__ import annotations

from typing import Any

import numpy as np

from balaclava.policies.base import BoundedPolicy


def unit_gaps(policy: BoundedPolicy, environment: Any) -> tuple[np.ndarray, float] | None:
    """The gaps divided by the width of `reward_range`, and that width: regret is scaled back by it.

    None if the environment draws rewards outside the range, of which nothing is proved.
    """
    low, high = policy.reward_range
    least, most = environment.reward_range
    if least < low or most > high:
        return None
    return environment.gaps / (high - low), high - low
