"""Mistakes that show when arms come, rest or leave, when a trial ends, or in what is said of arms.

The policies collect rewards in pools: 16 decisions a batch, released once. They play the highest
released mean, with a bonus that falls.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

import balaclava as bl
from balaclava.authoring import FROM_BATCHES, laplace_release, pools
from balaclava.policies.contextual.dp_linucb import DPLinUCB
from balaclava.policies.pooled_policies import PooledPolicy
from tests.oracles.violators.frame import PrivateBoundedPolicy, violator

SIZE = 16


class Records(NamedTuple):
    """The pools, what hooks remember of each arm, and a table that does not grow with the arms."""

    pools: pools.Pools
    raw: np.ndarray
    counts: np.ndarray
    table: np.ndarray


@bl.kernel
def begin(params):
    return Records(
        pools=pools.begin_pools(params.arms, 32),
        raw=np.zeros(params.arms),
        counts=np.zeros(params.arms),
        table=np.zeros(64),
    )


@bl.kernel
def optimistic(params, state, arm):
    return state.pools.means[arm] + 2.0 / math.sqrt(1.0 + state.pools.rewards[arm])


@bl.kernel
def fixed_size(params, state, arm):
    return SIZE


def size_of_open_sum(params, state, arm):
    """One decision more if the raw sum of the arm's batch that still waits is large."""
    row = pools.ring_row(state.pools, state.pools.number[arm])
    return SIZE + int(state.pools.sums[arm, row] > 1.5)


@bl.kernel
def once(params, state, arm, row, rng):
    released = laplace_release(rng, state.pools.sums[arm, row], 1.0, params.epsilon)
    pools.close_batch(state.pools, arm, row, released)


def pooled(index=optimistic, size=fixed_size, release=once):
    """The kernels with other hooks."""
    index, size, release = map(bl.kernel, (index, size, release))

    @bl.kernel
    def best_arm(params, state, t):
        best, highest = -1, -math.inf
        for arm in range(params.arms):
            if state.pools.ready[arm] or arm == state.pools.lead[0]:
                score = index(params, state, arm)
                if best < 0 or score > highest:
                    best, highest = arm, score
        return best

    @bl.kernel
    def open_batch(params, state, arm, t):
        if pools.needs_batch(state.pools, arm):
            pools.open_batch(state.pools, arm, size(params, state, arm))

    decide = pools.batch_driver(best_arm, open_batch)

    @bl.kernel
    def choose(params, state, t, context, rng):
        if state.table[0] == 0.0:
            state.table[0] = params.arms
        return decide(params, state, state.pools, t, rng)

    @bl.kernel
    def settle(params, state, arm, row, rng):
        if row != pools.NO_ROW:
            release(params, state, arm, row, rng)
            pools.use_mean(state.pools, arm, state.pools.pooled[arm], state.pools.rewards[arm])

    @bl.kernel
    def learn(params, state, t, arm, reward, phase, rng):
        state.raw[arm] += reward
        row = pools.find_row(state.pools, arm, phase)
        settle(params, state, arm, pools.add_reward(state.pools, arm, row, reward), rng)

    @bl.kernel
    def forget(params, state, t, arm, phase, rng):
        row = pools.find_row(state.pools, arm, phase)
        settle(params, state, arm, pools.give_up(state.pools, arm, row), rng)

    return bl.Kernels(begin, choose, learn, forget)


# Arms that come, rest and leave


def raw_among_few(params, state, arm):
    """Raw sums decide while some of the first three arms are not available."""
    return state.raw[arm] if params.arms < 3 else state.pools.means[arm]


def by_raw_sums(params, state, arm):
    """An arm that comes gets a first batch by the raw sums of the others."""
    if state.pools.number[arm] > 0:
        return SIZE
    return SIZE // 2 + int(4.0 * state.raw.sum()) % SIZE


def a_release_for_each_arm(params, state, arm, row, rng):
    """Of epsilon, each of the first arms has its part; arms that came later spend more."""
    total = 0.0
    for _ in range(params.arms):
        share = params.epsilon / state.table[0]
        total += laplace_release(rng, state.pools.sums[arm, row], 1.0, share)
    pools.close_batch(state.pools, arm, row, total / params.arms)


def totals_of_a_slot(params, state, arm, row, rng):
    """All rewards of an arm at epsilon/2, /4, /8; the sum stays when the arm has left."""
    state.table[1 + arm] += state.pools.sums[arm, row]
    state.counts[arm] += 1.0
    released = 0.0
    if state.counts[arm] <= 20.0:
        share = params.epsilon * 0.5 ** state.counts[arm]
        released = laplace_release(rng, state.table[1 + arm], 1.0, share)
    pools.close_batch(state.pools, arm, row, released)


# The end, and what is said of arms


def exact_at_the_end(self, state, rng):
    state.pools.in_order[:] = state.raw / 100.0
    yield from PooledPolicy.closing_decisions(self, state, rng)


def raw_recommendation(self, state):
    return int(np.argmax(state.raw))


def raw_alarm(self, state):
    many = np.maximum(state.pools.rewards, SIZE)
    return np.flatnonzero(state.raw > 0.7 * many).tolist()


def with_open_episodes(self, state):
    """Coefficients with the sums of open episodes, so that they are up to date."""
    episodes = state.episodes
    moved = np.einsum("bij,bj->bi", episodes.known.inverse, episodes.sums.sum(axis=1))
    return self.coefficient_estimates(episodes.theta + moved, np.ones(moved.shape))


class PoolsPolicy(PooledPolicy, PrivateBoundedPolicy):
    """Pools in a state of their own; arms may change."""

    pools = "pools"
    fixed_arms = ""
    estimation = FROM_BATCHES


def trial(name, mistake, kernels, **options):
    return violator(name, mistake, kernels, PoolsPolicy, **options)


def with_changes(name, mistake, kernels, **options):
    """A mistake that needs an agent whose arms change."""
    return trial(name, mistake, kernels, by_replay=False, **options)


TRIALS = [
    trial(
        "size-of-open-sum", "the next batch is longer after a large raw sum",
        pooled(size=size_of_open_sum),
    ),
    with_changes("raw-among-few", "raw if few are available", pooled(raw_among_few), arms=3),
    with_changes("newcomer-by-raw-sums", "a batch by raw sums", pooled(size=by_raw_sums)),
    with_changes("first-arms-only", "more than parts", pooled(release=a_release_for_each_arm)),
    with_changes("slot-keeps-totals", "a slot keeps a sum", pooled(release=totals_of_a_slot)),
    trial("exact-at-the-end", "exact in the end", pooled(), closing_decisions=exact_at_the_end),
    trial("raw-recommendation", "a raw best arm", pooled(), recommended_arm=raw_recommendation),
    trial("raw-alarm", "an alarm by raw sums", pooled(), changed_arms=raw_alarm),
    violator(
        "up-to-date-coefficients", "raw sums in coefficients",
        None, DPLinUCB, coefficients=with_open_episodes,
        features=2, delta=1e-3, first_episode=6, outstanding=64,
    ),
]  # fmt: skip
WITH_CHANGES = [row.name for row in TRIALS if not row.by_replay]
PROPER_TRIALS = [
    trial("pooled", "a batch is released once", pooled()),
    trial("pooled-three", "with three arms", pooled(), arms=3),
]
