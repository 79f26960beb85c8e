"""Estimates of policies that keep pools inside a state of their own."""

from typing import Any, NamedTuple

import numpy as np
import pytest

import balaclava as bl
from balaclava.authoring import (
    FROM_BATCHES,
    Epsilon,
    PooledPolicy,
    PrivateBoundedPolicy,
    kernel,
    pools,
)
from balaclava.errors import PolicyError


class Records(NamedTuple):
    pools: pools.Pools
    own: np.ndarray


class State(NamedTuple):
    records: Records
    time: np.ndarray


@kernel
def begin(params: Any) -> State:
    inside = pools.begin_pools(params.arms, pools.OPEN_BATCHES_PER_ARM)
    return State(Records(inside, np.zeros(1)), np.zeros(1))


@kernel
def choose(params: Any, state: State, t: int, context: Any, rng: Any) -> tuple[int, int]:
    return t % params.arms, 0


@kernel
def learn(params: Any, state: State, t: int, arm: int, reward: float, phase: int, rng: Any) -> None:
    state.time[0] = t


KERNELS = bl.policy("ucb1", arms=2).kernels._replace(begin=begin, choose=choose, learn=learn)


class Nested(PooledPolicy, PrivateBoundedPolicy):
    """Pools two levels inside the state."""

    name = "nested-pools"
    kernels = KERNELS
    pools = "records.pools"
    estimation = FROM_BATCHES
    epsilon: Epsilon


class Misfit(PooledPolicy, PrivateBoundedPolicy):
    """Pools inside the state, but no path to them."""

    name = "misfit-pools"
    kernels = KERNELS
    estimation = FROM_BATCHES
    epsilon: Epsilon


def test_estimates_follow_the_path_of_the_pools() -> None:
    agent = Nested(arms=2, epsilon=1.0).agent(seed=1)
    inside = agent._runner.state.records.pools
    inside.rewards_in_order[1], inside.in_order[1], inside.draws_in_order[1] = 900, 0.625, 3
    shown = agent.estimates()
    assert shown[1].rewards == 900
    assert shown[1].mean == 0.625
    assert agent.winner() is None
    assert FROM_BATCHES.read is not Nested.estimation.read  # others keep theirs


def test_estimates_that_do_not_fit_the_state_are_refused_at_once() -> None:
    with pytest.raises(PolicyError, match=r"'rewards_in_order'.*set `pools = \"\.\.\.\"`"):
        Misfit(arms=2, epsilon=1.0).agent(seed=1)


def test_winners_are_compiled_at_any_path() -> None:
    """The field's name is in the compiled code."""
    world = bl.environment("bernoulli", means=[0.2, 0.8])
    policy = Nested(arms=2, epsilon=1.0)
    results = bl.simulate(policy, world, horizon=50, repetitions=2, seed=1, winners=True)
    assert results.pulls("nested-pools").sum() == 100
