"""Several deciders in the simulator: one is the policy itself, many cost almost nothing."""

from __future__ import annotations

import numpy as np
import pytest

import balaclava as bl
from balaclava.errors import IncompatibleError, ParameterError

WORLD = bl.environment("bernoulli", means=[0.1, 0.9])
POLICY = bl.policy("dp-imed", arms=2, epsilon=1.0)


def play(deciders: list[int], **changes: object) -> bl.Results:
    options = {"horizon": 4_000, "repetitions": 4, "seed": 3, **changes}
    return bl.simulate_deciders(POLICY, WORLD, deciders=deciders, **options)


def test_one_decider_is_the_policy_itself() -> None:
    alone = bl.simulate(POLICY, WORLD, horizon=4_000, repetitions=4, seed=3)
    assert np.array_equal(play([1]).pulls("dp-imed, 1 decider"), alone.pulls("dp-imed"))


def test_results_depend_on_the_seed_alone() -> None:
    one, other = play([2, 8], workers=1), play([8], workers=2)
    assert np.array_equal(one.regret("dp-imed, 8 deciders"), other.regret("dp-imed, 8 deciders"))


@pytest.mark.statistical
def test_64_deciders_cost_little_more_than_one() -> None:
    """At most 1.25 times the regret of one, on four arms.

    The means of 200 runs have a standard error of 2 % each. The test fails by chance with
    probability below 1e-9 if the true ratio is 1.0, as measured with 2,000 runs.
    """
    world = bl.environment("bernoulli", means=[0.55, 0.60, 0.65, 0.75])
    policy = bl.policy("dp-imed", arms=4, epsilon=1.0)
    results = bl.simulate_deciders(
        policy, world, deciders=[1, 64], horizon=30_000, repetitions=200, seed=1, checkpoints=1
    )
    one, many = (results.final_regret(label).mean() for label in results.labels)
    assert many < 1.25 * one


@pytest.mark.statistical
def test_slots_that_expire_cost_little() -> None:
    """Most leases of more than one slot end before they are used, and batches are smaller."""
    world = bl.environment("bernoulli", means=[0.4, 0.6])
    pulls = [
        bl.simulate_deciders(
            POLICY, world, deciders=[2], lease_rounds=term, horizon=20_000, repetitions=8, seed=1
        ).pulls("dp-imed, 2 deciders")
        for term in (None, 1)
    ]
    assert not np.array_equal(*pulls)
    assert [each.sum(axis=1).tolist() for each in pulls] == 2 * [8 * [20_000]]
    assert max(each[:, 0].mean() for each in pulls) < 600  # of 20,000 pulls of the worse arm


def test_late_rewards_and_windows_work_through_leases() -> None:
    late = play([8], delay=bl.Delay(mean=50, law="geometric", lost=0.02))
    windows = play([8], settle="window", patience=100, missing=0.0)
    for results in (late, windows):
        assert results.pulls("dp-imed, 8 deciders")[:, 0].max() < 1_000


def test_what_cannot_be_leased_is_refused() -> None:
    with pytest.raises(IncompatibleError, match="cannot be leased"):
        bl.simulate_deciders(
            bl.policy("ucb1", arms=2), WORLD, deciders=[2], horizon=100, repetitions=1, seed=1
        )
    for changes in ({"deciders": [0]}, {"lease_rounds": 0}, {"repetitions": 0}):
        with pytest.raises(ParameterError, match=next(iter(changes))):
            play(**({"deciders": [1]} | changes))
