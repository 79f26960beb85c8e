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


@pytest.mark.parametrize("share", ["explore", "holdout"])
def test_no_worst_case_is_proved_with_even_draws(share: str) -> None:
    common = {"arms": 2, "epsilon": 1.0, "horizon": 10**6, "moment_order": 2.0, "moment_bound": 1.0}
    for name in ("dpr-se", "prae-raw"):
        assert bl.policy(name, **common).worst_case_bound(10**6) is not None  # type: ignore[attr-defined]
        drawn = bl.policy(name, **common, **{share: 0.1})
        assert drawn.worst_case_bound(10**6) is None  # type: ignore[attr-defined]


@pytest.mark.statistical
@pytest.mark.parametrize("gap", [0.5, 0.25])
def test_the_bound_of_dp_se_holds_and_says_something(gap: float) -> None:
    """The largest of 50 runs; a run whose radii hold is below the bound for certain."""
    policy, horizon = bl.policy("dp-se", arms=2, epsilon=0.5, horizon=60_000), 60_000
    world = bl.environment("bernoulli", means=[0.5 + gap / 2, 0.5 - gap / 2])
    bound = policy.regret_bound(world, horizon)
    assert bound is not None
    results = bl.simulate(policy, world, horizon=horizon, repetitions=50, seed=0)
    regret = results.final_regret("dp-se")
    assert 0.15 * bound < regret.max() <= bound < 0.5 * gap * horizon
