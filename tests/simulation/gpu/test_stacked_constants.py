"""Pairs that share a launch: what is stacked is what is picked, and which pairs are alike."""

from __future__ import annotations

import numpy as np
import pytest
from numba.cuda.cudadrv.error import CudaDriverError

import balaclava as bl
from balaclava.authoring import begin_tally, learn_tally
from balaclava.errors import DeviceError
from balaclava.simulation.gpu.device import device_errors
from balaclava.simulation.gpu.device_loop import initial_state, philox_key, set_up
from balaclava.simulation.gpu.launches import GameBatch, _rehearse, group_batches, thread_stride
from balaclava.simulation.gpu.stacked_constants import packed, picker, stacked, value_kind
from balaclava.testing.examples import examples

CONSTANTS = {
    entry.name: examples(getattr(entry, kind))[0].constants()
    for kind, entries in (("policy", bl.list_policies()), ("environment", bl.list_environments()))
    for entry in entries
}


def same(one, other):
    if isinstance(one, tuple):
        assert type(one) is type(other)
        return all(same(*parts) for parts in zip(one, other, strict=True))
    return np.array_equal(one, other, equal_nan=np.asarray(one).dtype.kind == "f")


def changed(value):
    """The same kind, other numbers, shorter arrays."""
    if isinstance(value, tuple):
        parts = [changed(part) for part in value]
        return type(value)(*parts) if hasattr(value, "_fields") else tuple(parts)
    if isinstance(value, np.ndarray):
        return value[:0:-1]
    return not value if isinstance(value, bool) else value + 1


@pytest.mark.parametrize("name", CONSTANTS)
def test_the_constants_of_each_pair_are_picked_again(name):
    both = CONSTANTS[name], changed(CONSTANTS[name])
    assert value_kind(both[0], sizes=False) == value_kind(both[1], sizes=False)
    pick = picker(both[0], several=True)
    assert all(same(pick(packed(both), pair), both[pair]) for pair in (0, 1))
    assert picker(both[0], several=False)(both[1], 0) is both[1]


def order(policy, horizon=100, repetitions=5, means=(0.2, 0.5, 0.6)):
    world = bl.environment("bernoulli", means=list(means))
    return GameBatch("it", policy, world, np.array([horizon]), repetitions, 1)


def test_pairs_that_differ_in_numbers_alone_share_a_launch():
    imed = [bl.policy("dp-imed", arms=3, epsilon=epsilon) for epsilon in (0.5, 1.0)]
    orders = [
        order(imed[0]),
        order(imed[0], repetitions=6),
        order(imed[1], means=(0.9, 0.8, 0.1)),
        order(bl.policy("ucb1", arms=3)),
        order(imed[1], horizon=200),
        order(bl.policy("ucb1", arms=2), means=(0.1, 0.2)),
    ]
    assert group_batches(orders) == [[4], [0, 2], [1], [3], [5]]  # the longest first


def test_games_of_a_pair_lie_side_by_side():
    policies = [bl.policy("dp-se", arms=3, epsilon=e, horizon=10**5) for e in (0.1, 1.0)]
    pairs = [(policy, order(policy).environment) for policy in policies]
    games = set_up(pairs, [7, 8], 4, np.asarray)
    assert games.keys.tolist() == [philox_key(7), philox_key(8)]
    assert games.totals.size == games.faults.size == 8
    origins = [initial_state(policy) for policy in policies]
    assert type(games.states[3]) is type(origins[0][3])
    for pair, origin in enumerate(origins):
        for game in range(4 * pair, 4 * pair + 4):
            taken = stacked([games.states])  # plain tuples
            assert same(of_game(taken, game), stacked([origin]))


def of_game(states, game):
    if isinstance(states, tuple):
        return tuple(of_game(part, game) for part in states)
    return states[..., game]


def test_few_games_are_spread_over_warps():
    assert [thread_stride(games) for games in (1, 10, 90, 512, 513, 10**6)] == [32, 32, 8, 2, 1, 1]


@bl.kernel
def choose_by_a_place_that_is_not_there(params, state, t, context, rng):
    return int(0.0 * state.sums[t + params.arms]), 0


class Stray(bl.Policy):
    """Reads beyond its state."""

    name = "stray"
    kernels = bl.Kernels(begin_tally, choose_by_a_place_that_is_not_there, learn_tally)


def test_a_policy_of_a_user_is_rehearsed_before_a_device_plays_it():
    with pytest.raises(IndexError, match="out of bounds"):
        _rehearse(order(Stray(arms=3)))
    _rehearse(order(bl.policy("ucb1", arms=3)))


def test_what_the_driver_says_is_an_error_of_ours():
    with (
        pytest.raises(DeviceError, match="the GPU failed: no memory; use device = 'cpu'"),
        device_errors(),
    ):
        raise CudaDriverError("no memory")
    with pytest.raises(ValueError, match="another"), device_errors():
        raise ValueError("another")
