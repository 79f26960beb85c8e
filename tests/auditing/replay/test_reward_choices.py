"""Where rewards are changed."""

from __future__ import annotations

import numpy as np
import pytest

from balaclava.auditing.games.attacks import constant_pair
from balaclava.auditing.replay.recorded_run import record
from balaclava.auditing.replay.reward_choices import (
    choose_neighbours,
    lonely_slots,
    special_values,
)
from balaclava.auditing.scenario import delayed_events, plain_scenario
from tests.oracles.violators import PROVED_CONTROLS, UNUSUAL_CONTROLS


def test_neighbours_lie_at_every_phase_boundary():
    policy, rounds = PROVED_CONTROLS["honest"].policy, 64
    rng = np.random.default_rng(0)
    scenario = plain_scenario(policy, rng.integers(0, 2, (rounds, 2)).astype(float))
    run = record(policy, scenario, seed=0)
    neighbours = choose_neighbours(policy, run, 200, (0.0, 1.0), rng)
    places = {neighbour.slot + 1 for neighbour in neighbours}
    phases = [phase for _, phase in run.decisions]
    changes = {t for t in range(2, rounds + 1) if phases[t - 1] != phases[t - 2]}
    assert changes
    assert changes | {t - 1 for t in changes} <= places


@pytest.mark.parametrize(("name", "accepted"), [("honest", False), ("clipped", True)])
def test_rewards_outside_the_range_are_tried_if_an_agent_accepts_them(name, accepted):
    policy = {**PROVED_CONTROLS, **UNUSUAL_CONTROLS}[name].policy
    values = special_values(policy)
    assert {0.0, 1.0} <= set(values)
    assert (min(values) < -1e9 and max(values) > 1e9) == accepted
    pair = constant_pair(policy, 0.0, 2, 5)
    assert pair.streams[:, 1, 0].tolist() == ([-3.0, 4.0] if accepted else [0.0, 1.0])


def test_a_reward_among_cancelled_ones_is_a_neighbour():
    policy, rng = PROVED_CONTROLS["honest"].policy, np.random.default_rng(1)
    scenario = plain_scenario(policy, np.ones((48, 2)))
    scenario.event_items[12:36] *= -1
    scenario.event_items[20] *= -1  # alone
    run = record(policy, scenario, seed=0)
    assert lonely_slots(run, [*range(12), 20, *range(36, 48)])[0] == 20
    short = plain_scenario(policy, np.ones((3, 2)))
    short.event_items[:2] *= -1
    assert lonely_slots(record(policy, short, seed=0), [2]) == [2]
    assert 20 in {each.slot for each in choose_neighbours(policy, run, 8, (0.0, 1.0), rng)}


def test_some_batches_lose_nearly_all_of_their_rewards():
    rng = np.random.default_rng(0)
    told = [item > 0 for row in delayed_events(1_600, 0, 0.2, rng) for item in row]
    shares = np.reshape(told, (100, 16)).mean(axis=1)
    assert (shares <= 0.2).sum() > 10
    assert (shares == 1.0).sum() > 10
