"""The conformance suite fails policies that keep parts of the contract only."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pytest

import balaclava as bl
from balaclava.errors import PrivacyError
from balaclava.testing import ConformanceError, check_policy
from balaclava.testing.conformance import share_of_best
from balaclava.testing.policy_checks import (
    keeps_its_claim_in_small_worlds,
    knows_its_propensities,
    learns_without_some_rewards,
    works_without_a_seed,
)
from tests.oracles.violators import PROVED_CONTROLS, VIOLATORS
from tests.oracles.violators.frame import claiming, frame

LENGTH = 10


class Batch(NamedTuple):
    """The rewards of the current batch, and the means of earlier ones."""

    arm: np.ndarray  # one element
    asked: np.ndarray  # one element
    settled: np.ndarray  # one element
    number: np.ndarray  # one element
    sums: np.ndarray
    pulls: np.ndarray


@bl.kernel
def begin(params):
    return Batch(
        arm=np.zeros(1, np.int64),
        asked=np.zeros(1, np.int64),
        settled=np.zeros(1, np.int64),
        number=np.ones(1, np.int64),
        sums=np.zeros(params.arms),
        pulls=np.zeros(params.arms, np.int64),
    )


@bl.kernel
def choose(params, state, t, context, rng):
    if state.asked[0] >= LENGTH:
        return state.arm[0], -1
    state.asked[0] += 1
    return state.arm[0], state.number[0]


@bl.kernel
def settle(params, state):
    """The next batch begins when each decision of this one has settled."""
    state.settled[0] += 1
    if state.settled[0] < LENGTH:
        return
    state.settled[0], state.asked[0] = 0, 0
    state.number[0] += 1
    best, highest = 0, -1.0
    for arm in range(params.arms):
        mean = 2.0 if state.pulls[arm] == 0 else state.sums[arm] / state.pulls[arm]
        if mean > highest:
            best, highest = arm, mean
    state.arm[0] = best


@bl.kernel
def learn(params, state, t, arm, reward, phase, rng):
    if phase == state.number[0]:
        state.sums[arm] += reward
        state.pulls[arm] += 1
        settle(params, state)


@bl.kernel
def forget(params, state, t, arm, phase, rng):
    if phase == state.number[0]:
        settle(params, state)


class Greedy(bl.Policy):
    """Batches of ten decisions for the arm with the highest mean."""

    name = "greedy-batches"
    kernels = bl.Kernels(begin, choose, learn, forget)


class Stalling(Greedy):
    """The same, but a lost reward keeps its batch open for ever."""

    name = "stalling"
    kernels = bl.Kernels(begin, choose, learn)


def test_a_policy_that_stalls_at_a_lost_reward_fails():
    stalling = Stalling(arms=3)
    assert share_of_best(stalling, 2, 600, lossy=False) == 1.0
    assert share_of_best(stalling, 2, 600, lossy=True) == 0.0
    with pytest.raises(ConformanceError, match="stalling: it stops learning when a reward is lost"):
        learns_without_some_rewards(stalling)
    learns_without_some_rewards(Greedy(arms=3))


@pytest.mark.slow
def test_the_whole_suite_fails_it_for_that_alone():
    check_policy(Greedy(arms=3))
    with pytest.raises(ConformanceError, match="it stops learning when a reward is lost"):
        check_policy(Stalling(arms=3))


def test_a_private_policy_that_stalls_fails_too():
    kernels = frame()
    stalling = claiming("private-stalling", bl.Kernels(*kernels[:3]))
    with pytest.raises(ConformanceError, match="stops learning"):
        learns_without_some_rewards(stalling)
    learns_without_some_rewards(PROVED_CONTROLS["honest"].policy)


def test_what_does_not_learn_anyway_is_not_accused():
    policy = bl.policy("random", arms=3)
    assert share_of_best(policy, 0, 600, lossy=False) < 0.5
    learns_without_some_rewards(policy)


def test_a_policy_that_exceeds_its_claim_in_a_small_world_fails():
    for name in ("half-noise", "talkative"):
        with pytest.raises(ConformanceError, match=f"{name}: (unproved|violated): all"):
            keeps_its_claim_in_small_worlds(VIOLATORS[name].policy)
    keeps_its_claim_in_small_worlds(PROVED_CONTROLS["honest"].policy)
    keeps_its_claim_in_small_worlds(bl.policy("ucb1", arms=2))


@bl.kernel
def lose_with_raw_noise(params, state, t, arm, phase, rng):
    state.notes[0] = rng.laplace(0.0, 1.0)


def test_noise_of_lost_rewards_is_drawn_by_mechanisms():
    raw = claiming("raw-noise-in-forget", bl.Kernels(*frame(lose=lose_with_raw_noise)))
    with pytest.raises(PrivacyError, match="laplace"):
        works_without_a_seed(raw)
    works_without_a_seed(PROVED_CONTROLS["honest"].policy)


@bl.kernel
def choose_or_draw(params, state, t, context, rng):
    """The rule draws the arm of a batch itself, and the frame does not know."""
    arm, phase = CHOOSE(params, state, t, context, rng)
    return (int(rng.random() * params.arms), phase) if t % 7 == 6 else (arm, phase)


CHOOSE = bl.policy("dp-klucb", arms=2, epsilon=1.0).kernels.choose


class Drawing(type(bl.policy("dp-klucb", arms=2, epsilon=1.0))):
    """As dp-klucb; some arms are drawn."""

    name = "drawing"
    kernels = bl.policy("dp-klucb", arms=2, epsilon=1.0).kernels._replace(choose=choose_or_draw)


class Silent(Drawing):
    """The same, and it says that it does not know."""

    name = "silent"

    def propensity(self, state, arm):
        return None


def test_a_draw_that_the_propensity_does_not_count_is_found():
    with pytest.raises(ConformanceError, match="has propensity 1, but other random numbers"):
        knows_its_propensities(Drawing(arms=2, epsilon=1.0))
    knows_its_propensities(Silent(arms=2, epsilon=1.0))
    knows_its_propensities(bl.policy("dp-klucb", arms=2, epsilon=1.0))
    for name, more in (("prae-raw", {}), ("prae-central", {"mean_range": 20.0})):
        half = bl.policy(
            name, arms=3, epsilon=1.0, horizon=600, moment_order=2, moment_bound=3.2,
            threshold=20, first_phase="half-greedy", **more,
        )  # fmt: skip
        knows_its_propensities(half)
