"""Scenarios of each kind: their length, what is late, and where a fast-forward ends."""

from __future__ import annotations

import numpy as np
import pytest

import balaclava as bl
from balaclava.auditing.replay.scenario_kinds import (
    SCENARIO_KINDS,
    ScenarioKind,
    fast_forward,
    kind_around,
    make_scenario,
    start_round,
)
from tests.oracles.violators import PROVED_CONTROLS

HONEST = PROVED_CONTROLS["honest"].policy
LIMITS = (0.0, 1.0)


def made(kind, policy=HONEST, number=0, rounds=40):
    return make_scenario(policy, kind, number, rounds, LIMITS, 0, np.random.default_rng(0))


def told(scenario):
    return {item - 1 for item in scenario.event_items.tolist() if item > 0}


def waits(scenario):
    rows = [(i, item) for i in range(scenario.rounds) for item in scenario.events(i)]
    return [i - (abs(item) - 1) for i, item in rows if abs(item) <= scenario.rounds]


@pytest.mark.parametrize(
    ("kind", "rounds"),
    [
        (ScenarioKind(), 40),
        (ScenarioKind(long=True), 1_000),
        (ScenarioKind(several_releases=True), 120),
        (ScenarioKind(delay=8), 40),
    ],
)
def test_the_length_of_a_scenario(kind, rounds):
    scenario = made(kind)
    assert scenario.rounds == len(scenario.times) == rounds
    assert scenario.times.tolist() == list(range(1, rounds + 1))
    assert scenario.initial_state is None
    assert max(waits(scenario)) == kind.delay
    assert made(kind, rounds=1_200).rounds == 1_200


def test_a_scenario_with_several_releases_has_at_most_400_rounds_of_its_own():
    assert made(ScenarioKind(several_releases=True), rounds=150).rounds == 400
    assert made(ScenarioKind(several_releases=True), rounds=401).rounds == 401


def test_rewards_in_any_order_are_late_by_half_a_scenario():
    scenario = made(ScenarioKind(delay=-1), rounds=400)
    assert 190 < max(waits(scenario)) <= 200


def test_conditions_contexts_and_restores():
    kind = ScenarioKind(("special values",), special=True, restored=True)
    linear = bl.policy("dp-linucb", arms=2, features=2, epsilon=1.0, delta=0.01, outstanding=64)
    for number, varies in ((0, False), (1, True), (2, False)):
        scenario = made(kind, linear, number)
        assert scenario.conditions == ("special values", *["changing contexts"] * varies)
        assert (len(np.unique(scenario.contexts, axis=0)) > 1) is varies
        assert 1 <= len(scenario.restore_rounds) <= 2
        assert all(0 <= each < 40 for each in scenario.restore_rounds)
    assert made(kind, HONEST) is None  # a policy that cannot be saved
    assert made(ScenarioKind(), HONEST, 1).conditions == ()


@pytest.mark.parametrize(
    ("horizon", "start"),
    [(None, None), (100, 80), (10, 0), (1_000_000, 999_980), (1_000_001, None)],
)
def test_where_a_scenario_past_the_horizon_starts(horizon, start):
    policy = bl.policy("dp-imed", arms=2, epsilon=1.0, horizon=horizon)
    assert start_round(policy, ScenarioKind(start="horizon")) == start
    assert start_round(policy, ScenarioKind(start="release")) == 0
    assert start_round(policy, ScenarioKind(start=77)) == 77
    if start is None:
        assert made(ScenarioKind(start="horizon"), policy) is None


def test_a_fast_forward_ends_before_the_first_draw_after_its_target():
    """The control releases every twelfth round; five hundred rounds are played at a time."""
    state, round_, pending = fast_forward(HONEST, ScenarioKind(), 30, LIMITS, 0, 0)
    assert round_ == 30
    assert state.asked[0] == 30 % 12
    assert pending.shape == (0, 2)
    assert state.raw.sum() == 0.0  # quiet: only the smallest rewards


def test_without_a_draw_it_ends_25000_rounds_later():
    """The first batch waits for pending rewards, so that nothing is released."""
    kind = ScenarioKind(start=1_100, pending=4)
    state, round_, pending = fast_forward(HONEST, kind, 1_100, LIMITS, 0, 0)
    assert round_ == 1_100 + 50 * 500
    assert pending[:, 1].tolist() == [1, 1, 1, 1]  # of the first batch
    assert pending[:, 0].tolist() == [1, 0, 1, 0]
    assert state.number[0] == 1


def test_a_loud_past_has_rewards():
    loud, _, _ = fast_forward(HONEST, ScenarioKind(), 600, LIMITS, 0, 1)
    quiet, _, _ = fast_forward(HONEST, ScenarioKind(quiet=True), 600, LIMITS, 0, 1)
    assert loud.raw.sum() > 100.0
    assert quiet.raw.sum() == 0.0


def test_a_scenario_after_a_fast_forward():
    scenario = made(ScenarioKind(start=100, pending=4), rounds=40)
    assert scenario.rounds == 300
    assert scenario.times[:300].tolist() == list(range(25_101, 25_401))
    assert scenario.times[300:].tolist() == [1, 2, 3, 4]
    assert {300, 301, 302, 303} <= told(scenario)
    assert len(scenario.rewards) == 304
    scenario = made(ScenarioKind(start=100), rounds=200)
    assert scenario.rounds == 800
    assert scenario.times.tolist() == list(range(101, 901))
    assert made(ScenarioKind(start=100), rounds=1_000).rounds == 1_500


def test_kinds_around_a_round():
    kind = kind_around(1_234)
    assert (kind.start, kind.quiet, kind.conditions) == (1_214, True, ("around round 1,234",))
    assert kind_around(5).start == 1
    assert len({kind.conditions for kind in SCENARIO_KINDS}) == len(SCENARIO_KINDS)
