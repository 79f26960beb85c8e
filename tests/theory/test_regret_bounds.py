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


T = 10**5
MOMENT = {"moment_order": 2.0, "moment_bound": 1.0}
FOR_DRAWS: dict[str, dict[str, Any]] = {
    "ucb1": {},
    "robust-ucb": {"horizon": T, **MOMENT},
    "adap-ucb": {"epsilon": 1.0},
    "dp-imed": {"epsilon": 1.0, "index": "exact", "batches": "ratio"},
    "dp-se": {"epsilon": 1.0, "horizon": T},
    "dp-ftpl-gauss": {"epsilon": 1.0, "delta": 0.01},
    "dp-ftpl-beta": {"epsilon": 1.0, "delta": 0.01},
    "dp-ftpl-new": {"epsilon": 1.0, "delta": 0.01, "horizon": T},
    "gdp-elim-new": {"epsilon": 1.0, "delta": 0.01, "horizon": T},
    "dpr-ucb": {"epsilon": 1.0, "horizon": T, **MOMENT},
    "dpr-se": {"epsilon": 1.0, "horizon": T, **MOMENT},
    "ldpr-se": {"epsilon": 1.0, "horizon": T, **MOMENT},
    "dpr-batch-ucb": {"epsilon": 1.0, "horizon": T, **MOMENT},
    "ldpr-batch-ucb": {"epsilon": 1.0, "horizon": T, **MOMENT},
    "prae-raw": {"epsilon": 1.0, "horizon": T, "moment_order": 2.0},
    "prae-central": {"epsilon": 1.0, "horizon": T, "moment_order": 2.0, "mean_range": 20.0},
}
FOR_OUTLIERS = ("dpr-batch-ucb", "ldpr-batch-ucb", "prae-raw", "prae-central")
CLEAN = bl.environment("bernoulli", means=[0.5, 0.6])


def contaminated(fraction: float) -> bl.Environment:
    """Outliers that make the worse arm look better, within [0, 1]."""
    outliers = {"kind": "points", "values": [1.0, 0.0]}
    return bl.environment("contaminated", inner=CLEAN, fraction=fraction, outliers=outliers)


ADVICE = [[1.0, 0.0], [0.5, 0.5], [0.0, 1.0]]
NO_DRAWS = [
    bl.environment("table", rewards=[[0.5, 0.6]] * 9),
    bl.environment("linear", arms=2, theta=[0.7, 0.3, -0.4]),
    bl.environment("labelled", features=[[0.1, 0.9], [0.4, 0.2], [0.3, 0.3]], labels=[0, 1, 1]),
    bl.environment("switching", horizon=T, switch=400, before=[0.5, 1], after=[0.5, 0]),
    bl.environment("stochastic-losses", means=[0.5, 0.6]),
    bl.environment("losses", losses=[[0.5, 0.6]] * 9),
    bl.environment("advice", losses=[[0.5, 0.6]] * 9, advice=ADVICE),
]


@pytest.mark.parametrize("name", FOR_DRAWS)
def test_theorems_for_independent_rewards_are_for_nothing_else(name: str) -> None:
    """With points (1, 0) for 3 rewards in 10, arm 0 looks better, and all play it."""
    policy = bl.policy(name, arms=2, **FOR_DRAWS[name])
    for bound in (policy.regret_bound, policy.proved_bound):
        assert bound(CLEAN, T) is not None
        assert bound(contaminated(0.0), T) == bound(CLEAN, T)
        assert bound(contaminated(0.3), T) is None
        assert [world.name for world in NO_DRAWS if bound(world, 9) is not None] == []


@pytest.mark.parametrize("name", FOR_OUTLIERS)
def test_theorems_for_outliers_hold_up_to_as_many_as_were_told(name: str) -> None:
    policy = bl.policy(name, arms=2, contamination=0.05, **FOR_DRAWS[name])
    assert policy.regret_bound(contaminated(0.05), T) is not None
    assert policy.regret_bound(contaminated(0.0501), T) is None


def test_every_policy_with_a_bound_is_tried_here() -> None:
    """Those for losses have theorems for any of them; `random` needs none, dpr-top-two has none."""
    proved = {
        policy.name
        for policy in EXAMPLES
        if policy.rewards != "loss" and type(policy).proved_bound is not bl.Policy.proved_bound
    }
    assert proved == {*FOR_DRAWS, "random", "dpr-top-two"}


def test_what_playing_at_random_costs() -> None:
    """The mean gap a round, with outliers too; by contexts it is another one."""
    policy = bl.policy("random", arms=2)
    assert policy.regret_bound(contaminated(0.3), 100) == pytest.approx(5.0)
    assert [world.name for world in NO_DRAWS if policy.regret_bound(world, 9) is not None] == []


@pytest.mark.parametrize("name", ["exp3", "tsallis-inf", "htinf", "ftpl", "dp-htinf", "ldp-exp3"])
def test_theorems_for_any_losses(name: str) -> None:
    known = {"horizon": T} if name not in ("exp3", "tsallis-inf", "htinf") else {}
    policy = bl.policy(name, arms=2, **known, **({"epsilon": 0.5} if "dp-" in name else {}))
    worlds = [CLEAN, contaminated(0.3), *NO_DRAWS]
    proved = [world.name for world in worlds if policy.regret_bound(world, 9) is not None]
    assert proved == ["switching", "stochastic-losses", "losses"]


@pytest.mark.parametrize(
    "name", ["exp4", "dp-exp4", "ldp-exp4", "dp-htinf-experts", "dp-exp3-experts"]
)
def test_theorems_for_experts(name: str) -> None:
    known = {} if name == "exp4" else {"epsilon": 0.5}
    known |= {"delta": 0.01} if name == "dp-exp4" else {}
    for experts, worlds in (3, ["advice"]), (4, []):
        policy = bl.policy(name, arms=2, experts=experts, horizon=T, **known)
        proved = [w.name for w in [CLEAN, *NO_DRAWS] if policy.regret_bound(w, 9) is not None]
        assert proved == worlds


def test_no_bound_for_arms_that_the_policy_does_not_have() -> None:
    assert bl.policy("ucb1", arms=3).regret_bound(CLEAN, T) is None


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
