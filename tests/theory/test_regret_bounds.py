"""What holds of every policy's bound on its regret."""

from __future__ import annotations

import math

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
