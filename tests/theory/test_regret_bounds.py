"""What holds of every policy's bound on its regret."""

from __future__ import annotations

import math
from typing import Any

import pytest

import balaclava as bl
from balaclava.testing import examples, matching_environment

EXAMPLES = [policy for entry in bl.list_policies() for policy in examples(entry.policy)]


@pytest.mark.parametrize("policy", EXAMPLES, ids=lambda policy: policy.name)
def test_a_bound_is_never_more_than_all_rounds_at_the_largest_gap(policy: bl.Policy) -> None:
    world = matching_environment(policy)
    for horizon in (1, 2, 7, 100, getattr(policy, "horizon", None) or 600):
        bound = policy.regret_bound(world, horizon)
        proved = policy.proved_bound(world, horizon)
        assert (bound is None) == (proved is None)
        if bound is not None:
            assert 0.0 <= bound <= horizon * world.largest_gap
            assert bound == min(proved, horizon * world.largest_gap)  # type: ignore[type-var]


def test_some_bounds_would_be_more() -> None:
    """The theorem of dp-ftpl-new at T = 10^6 says more than ten rounds can cost."""
    policy = bl.policy("dp-ftpl-new", arms=2, epsilon=1.0, delta=0.01, horizon=10**6)
    world = bl.environment("bernoulli", means=[0.5, 0.4])
    assert policy.proved_bound(world, 10) > 100  # type: ignore[operator]
    assert policy.regret_bound(world, 10) == pytest.approx(1.0)
    assert math.isfinite(policy.regret_bound(world, 10**6))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("name", "known", "rate", "short", "long"),
    [
        ("dpr-se", {"moment_order": 2.0, "moment_bound": 1.0}, 1 / 2, 10**6, 10**8),
        ("ldpr-se", {"moment_order": 2.0, "moment_bound": 1.0}, 3 / 4, 10**10, 10**14),
        ("prae-raw", {"moment_order": 2.0}, 1 / 2, 10**6, 10**8),
        ("prae-central", {"moment_order": 2.0, "mean_range": 20.0}, 1 / 2, 10**6, 10**8),
    ],
)
def test_worst_case_bounds(
    name: str, known: dict[str, float], rate: float, short: int, long: int
) -> None:
    """Above the bound at every gap, and of the order of the theorem in T, but for logarithms."""

    def make(horizon: int) -> Any:
        return bl.policy(name, arms=3, epsilon=1.0, horizon=horizon, **known)

    low, high = (make(T).worst_case_bound(T) for T in (short, long))
    assert rate < math.log(high / low) / math.log(long / short) < rate + 0.05
    for gap in (0.5, 0.1, 0.02, 1e-3, 1e-5):
        world = bl.environment("two-point", values=[gap, 0.0, 0.0], probabilities=[1.0, 1.0, 1.0])
        bound = make(long).regret_bound(world, long)
        assert bound is not None
        assert bound <= high


def test_worst_case_bounds_need_the_constants_of_the_proof() -> None:
    common = {"arms": 2, "epsilon": 1.0, "horizon": 10**6, "moment_order": 2.0}
    for name in ("dpr-se", "prae-raw"):
        policy = bl.policy(name, moment_bound=1.0, radius_scale=0.1, **common)
        assert policy.worst_case_bound(10**6) is None  # type: ignore[attr-defined]
