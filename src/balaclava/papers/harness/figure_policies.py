"""Policies for the figures, and budgets at which policies of different scope compare."""

import functools
import math
from dataclasses import fields
from typing import Any

from balaclava._core.declared import is_required
from balaclava.policies.base import POLICIES, Policy
from balaclava.privacy.guarantee import Guarantee

# They play to name the best arm, at any cost in regret.
FOR_AN_ANSWER = ("dp-even", "dp-sequential-halving", "dp-top-two")


def make_policy(name: str, **parameters: Any) -> Any:
    """The policy of that name, with those of the parameters that it has."""
    cls = POLICIES.get(name)
    return cls.create({key: value for key, value in parameters.items() if key in cls.annotations})


def trajectory_policies(**parameters: Any) -> dict[str, Policy]:
    """The package's policies for low regret, bounded rewards and the scope of a trajectory.

    Policies that decide by features are omitted: the arms of the papers have none.
    """
    policies = {}
    for name, cls in POLICIES.classes().items():
        plain = cls.annotations.keys().isdisjoint(("features", "base"))
        plain = plain and name not in FOR_AN_ANSWER
        fits = plain and cls.rewards == "bounded" and cls.scope == "trajectory"
        if not fits or not cls.__module__.startswith("balaclava."):
            continue
        needs_delta = any(f.name == "delta" and is_required(f) for f in fields(cls))
        if parameters["delta"] > 0 or not needs_delta:
            # Laplace noise, the default of those with a choice, takes no delta.
            own = {**parameters, "delta": 0.0} if "noise" in cls.annotations else parameters
            policies[name] = make_policy(name, **own)
    published = {"index": "paper", "batches": "ratio", "delta": 0.0}  # dp-imed's default differs
    return policies | {"dp-imed, as published": make_policy("dp-imed", **(parameters | published))}


@functools.cache
def decision_budget(epsilon: float, delta: float, decisions: int) -> tuple[float, float]:
    """Epsilon and delta of one decision such that all decisions together keep the budget given.

    For delta = 0 each decision gets an equal share. Otherwise half of delta is split equally, and
    composition spends the other half. Epsilon is the largest, to about 1 %, that the accountants
    allow.
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
    """Round down to three digits, for a short label."""
    step = 10.0 ** (math.floor(math.log10(value)) - 2)
    return float(f"{math.floor(value / step) * step:.3g}")
