"""Small worlds: the variant that is enumerated, its rewards, and the loss of a pair."""

from __future__ import annotations

from typing import Annotated

import numpy as np
import pytest

import balaclava as bl
from balaclava.auditing.enumeration.exhaustive_audit import audit_exhaustively
from balaclava.auditing.enumeration.small_worlds import (
    SmallWorld,
    extreme_rewards,
    small_variant,
    with_parameters,
)
from balaclava.authoring import (
    Epsilon,
    Kernels,
    PrivateBoundedPolicy,
    Range,
    begin_tally,
    count_reward,
    kernel,
    laplace_release,
)


@kernel
def best_sum(params, state, t, context, rng):
    return (t - 1) % params.arms if t <= 2 * params.wait else np.argmax(state.sums), 0


@kernel
def release_once(params, state, t, arm, reward, phase, rng):
    if state.pulls[arm] < params.wait:
        count_reward(state, arm, reward, params.wait)
        if state.pulls[arm] == params.wait:
            state.sums[arm] = laplace_release(rng, state.sums[arm], 1.0, params.epsilon)


class OwnName(PrivateBoundedPolicy):
    """Its batch size has a name of the author's."""

    name = "batch-size-of-own-name"
    kernels = Kernels(begin_tally, best_sum, release_once)
    epsilon: Epsilon
    wait: Annotated[int, Range(1, meaning="rewards of each arm before its release")] = 90


def test_a_batch_size_of_any_name_is_made_small():
    variant, first = small_variant(OwnName(arms=2, epsilon=1.0))
    assert variant.wait == 1
    assert first is not None
    assert audit_exhaustively(OwnName(arms=2, epsilon=1.0)).fits


def test_a_variant_releases_early_and_keeps_its_claim():
    policy = bl.policy("dp-se", arms=9, epsilon=0.3, horizon=10**6)
    variant, first = small_variant(policy)
    assert variant.arms == 2
    assert first <= 20
    assert variant.guarantee.epsilon == 0.3


def test_a_parameter_that_a_policy_does_not_take_changes_nothing():
    policy = bl.policy("dp-imed", arms=2, epsilon=1.0)
    assert with_parameters(policy, {"experts": 2}) is policy
    assert with_parameters(policy, {"epsilon": -1.0}) is policy


def test_unbounded_rewards_are_as_large_as_truncation_allows():
    policy = bl.policy(
        "dpr-batch-ucb", arms=2, epsilon=1.0, horizon=100, moment_order=2, moment_bound=1.0,
        first_batch=1,
    )  # fmt: skip
    low, high = extreme_rewards(policy, 6)
    assert low == -high < 0
    assert extreme_rewards(bl.policy("dp-imed", arms=2, epsilon=1.0), 6) == (0.0, 1.0)


def test_one_reward_is_lost_and_the_others_are_late():
    world = SmallWorld(bl.policy("dp-ucb", arms=2, epsilon=1.0), 2, 6, late=True)
    assert world.free == (0, 2, 3, 4, 5)
    assert [world.scenario.events(i) for i in range(6)] == [[], [1], [-2], [3], [4], [5]]


@pytest.mark.parametrize(
    ("p", "q", "loss"),
    [
        ([0.6, 0.4], [0.3, 0.7], np.log(2)),
        ([0.6, 0.4, 0.0], [0.3, 0.7, 0.0], np.log(2)),
        ([0.5, 0.5], [1.0, 0.0], np.inf),
        ([1.0, 1e-300], [1.0, 0.0], 0.0),  # the other may have vanished in floats
        ([1.0, np.nan], [1.0, np.nan], 0.0),  # after an impossible sequence
    ],
)
def test_the_loss_without_a_delta_is_the_largest_ratio(p, q, loss):
    world = SmallWorld(bl.policy("dp-ucb", arms=2, epsilon=1.0), 2, 6)
    with np.errstate(all="ignore"):
        found, place = world.loss(np.array(p), np.array(q), np.full(len(p), -1))
    assert found == pytest.approx(loss)
    assert place == (1 if loss == np.inf else 0)


def test_the_loss_with_a_delta_is_the_worst_sum_after_one_sequence():
    policy = bl.policy("dp-ftpl-new", arms=2, epsilon=1.0, delta=0.01, horizon=100)
    world = SmallWorld(policy, 2, 6)
    p, q = np.array([0.9, 0.1, 0.5, 0.5]), np.array([0.3, 0.7, 0.5, 0.5])
    found, place = world.loss(p, q, np.array([0, 0, 1, 1]))
    assert (found, place) == (pytest.approx(0.9 - np.e * 0.3), 0)


def test_a_world_that_fits_is_played_to_its_end():
    world = SmallWorld(bl.policy("ldp-ucb-bernoulli", arms=2, epsilon=1.0), None, 2)
    world.enumerate()
    assert world.scenario.rounds == 30 > world.played  # too many sequences
    short = SmallWorld(bl.policy("ldp-ucb-bernoulli", arms=2, epsilon=1.0), 1, 2)
    short.enumerate()
    assert (short.scenario.rounds, short.played, short.free) == (6, 6, (0, 1))
    assert short.moved
    assert not short.exceeds_claim
