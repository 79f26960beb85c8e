"""One experiment on several shards: what is merged, and what it comes to."""

from __future__ import annotations

import numpy as np
import pytest

import balaclava as bl
from balaclava.errors import IncompatibleError, ParameterError
from balaclava.privacy.randomness import seeded
from balaclava.simulation.shards import Published, merge

WORLD = bl.environment("bernoulli", means=[0.1, 0.9])
POLICY = bl.policy("dp-imed", arms=2, epsilon=1.0)


def play(shards: list[int], **changes: object) -> bl.Results:
    asked = {"merge_every": 500, "horizon": 4_000, "repetitions": 4, "seed": 3, **changes}
    return bl.simulate_shards(POLICY, WORLD, shards=shards, **asked)


def test_one_shard_is_the_policy_itself() -> None:
    alone = bl.simulate(POLICY, WORLD, horizon=4_000, repetitions=4, seed=3)
    assert np.array_equal(play([1]).pulls("dp-imed, 1 shard"), alone.pulls("dp-imed"))


@pytest.mark.statistical
def test_more_shards_cost_their_first_batches_and_find_the_best_arm_all_the_same() -> None:
    """Eight shards make at most 30 first pulls of the worse arm each, and a few batches more."""
    results = play([1, 8], horizon=20_000)
    one, eight = (results.pulls(label)[:, 0] for label in results.labels)
    assert (eight > one).all()
    assert (eight < 8 * 30 * 3).all()
    assert (results.pulls("dp-imed, 8 shards").sum(axis=1) == 20_000).all()


def test_results_depend_on_the_seed_alone() -> None:
    one, other = play([2, 8], workers=1), play([8], workers=2)
    assert np.array_equal(one.regret("dp-imed, 8 shards"), other.regret("dp-imed, 8 shards"))


def test_a_merge_adds_what_was_released_once() -> None:
    """Two shards with releases of their own: merged twice, each release counts once."""
    kernels, params = POLICY.kernels, POLICY.constants()
    states = [kernels.begin(params) for _ in range(2)]
    zeros = np.zeros(2, np.int64)
    published = Published(zeros, np.zeros(2), zeros)
    rng = seeded(1)
    for t in range(1, 101):
        for state in states:
            arm, phase = kernels.choose(params, state, t, None, rng)
            kernels.learn(params, state, t, arm, 0.5, phase, rng)
    rewards = sum(state.rewards for state in states)
    sums = sum(state.rewards * state.pooled for state in states)
    draws = sum(state.draws for state in states)
    for _ in range(2):
        published = merge(states, published)
        for state in states:
            assert np.array_equal(state.rewards, rewards)
            assert np.array_equal(state.draws, draws)
            np.testing.assert_allclose(state.pooled * rewards, sums, rtol=1e-12)
            assert state.lead[0] == np.argmax(state.means)


def test_what_cannot_be_sharded_is_refused() -> None:
    with pytest.raises(IncompatibleError, match="shards cannot merge"):
        bl.simulate_shards(
            bl.policy("ucb1", arms=2),
            WORLD,
            shards=[2],
            merge_every=10,
            horizon=100,
            repetitions=1,
            seed=1,
        )
    for changes in ({"shards": [0]}, {"merge_every": 0}, {"repetitions": 0}):
        with pytest.raises(ParameterError, match=next(iter(changes))):
            play(**({"shards": [1]} | changes))
