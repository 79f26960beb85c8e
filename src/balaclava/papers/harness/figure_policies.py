"""Policies for a given promise, so that like is compared with like."""

from __future__ import annotations

import functools
import math
from dataclasses import fields
from typing import Any

from balaclava._core.declared import is_required
from balaclava.policies.base import POLICIES, Policy
from balaclava.privacy.guarantee import Guarantee

# dp-imed's rule, as its paper has it.
_AS_PUBLISHED = {"index": "paper", "batches": "ratio"}


def make_policy(name: str, **parameters: Any) -> Any:
    """The policy of that name, with as much of what is offered as it takes."""
    cls = POLICIES.get(name)
    return cls.create({key: value for key, value in parameters.items() if key in cls.annotations})


def trajectory_policies(**parameters: Any) -> dict[str, Policy]:
    """The package's policies for bounded rewards that protect all decisions of a run together.

    Those that decide by features are left out: papers' arms have none.
    """
    policies = {}
    for name, cls in POLICIES.classes().items():
        plain = "features" not in cls.annotations
        fits = plain and cls.rewards == "bounded" and cls.scope == "trajectory"
        if not fits or not cls.__module__.startswith("balaclava."):
            continue
        needs_delta = any(f.name == "delta" and is_required(f) for f in fields(cls))
        if parameters["delta"] > 0 or not needs_delta:
            policies[name] = make_policy(name, **_AS_PUBLISHED, **parameters)
    return policies


@functools.cache
def decision_budget(epsilon: float, delta: float, decisions: int) -> tuple[float, float]:
    """What one decision may leak if so many together are to leak (epsilon, delta).

    For delta = 0 an equal part. Otherwise half of delta is split equally and the other half is
    spent on composing: the largest epsilon, to about 1 %, that the accountants allow.
    """
    if delta == 0.0:
        return epsilon / decisions, 0.0
    each = delta / (2 * decisions)
    low, high = epsilon / decisions, epsilon
    while high > 1.01 * low:
        middle = math.sqrt(low * high)
        one = Guarantee(epsilon=middle, delta=each, scope="decision")
        if one.over(decisions, delta=delta).epsilon <= epsilon:
            low = middle
        else:
            high = middle
    return _down(low), each


def _down(value: float) -> float:
    """Rounded down to three digits, for a label that can be read."""
    step = 10.0 ** (math.floor(math.log10(value)) - 2)
    return float(f"{math.floor(value / step) * step:.3g}")
