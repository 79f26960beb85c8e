"""Scenarios: which events happen in which round."""

from __future__ import annotations

import numpy as np
import pytest

import balaclava as bl
from balaclava.auditing.scenario import (
    Scenario,
    delayed_events,
    event_arrays,
    plain_scenario,
    scenario_contexts,
    varied_context,
)

PLAIN = bl.policy("ucb1", arms=2)
LINEAR = bl.policy("linucb", arms=3, features=2)


def test_a_plain_scenario_tells_each_reward_at_once():
    rewards = np.arange(6.0).reshape(3, 2)
    scenario = plain_scenario(PLAIN, rewards, rounds_before=5)
    assert scenario.rounds == 3
    assert scenario.times.tolist() == [6, 7, 8]
    assert [scenario.events(i) for i in range(3)] == [[1], [2], [3]]
    assert scenario.context(1) is None
    assert scenario.rewards.tolist() == rewards.tolist()
    assert plain_scenario(PLAIN, rewards).times.tolist() == [1, 2, 3]


def test_a_truncated_scenario_keeps_the_events_of_its_decisions_and_of_pending_ones():
    """Four rounds, then two decisions from before; items are slots from 1, cancelled below 0."""
    events = [[5], [1, -2], [-6, 4], [3]]
    offsets, items = event_arrays(events)
    assert (offsets.tolist(), items.tolist()) == ([0, 1, 3, 5, 6], [5, 1, -2, -6, 4, 3])
    scenario = Scenario(
        times=np.array([11, 12, 13, 14, 3, 7]),
        rewards=np.arange(12.0).reshape(6, 2),
        contexts=np.arange(4.0),
        event_offsets=offsets,
        event_items=items,
    )
    scenario.truncate(3)
    assert scenario.rounds == 3
    assert scenario.times.tolist() == [11, 12, 13, 3, 7]
    assert scenario.rewards[:, 0].tolist() == [0.0, 2.0, 4.0, 8.0, 10.0]
    assert [scenario.events(i) for i in range(3)] == [[4], [1, -2], [-5]]
    assert scenario.contexts.tolist() == [0.0, 1.0, 2.0]
    assert scenario.context(2) == 2.0


@pytest.mark.parametrize(("delay", "cancelled"), [(0, 0.0), (0, 1.0), (7, 0.3)])
def test_delayed_events(delay, cancelled):
    rounds, pending = 400, 30
    events = delayed_events(rounds, delay, cancelled, np.random.default_rng(0), pending)
    place = {abs(item): i for i, row in enumerate(events) for item in row}
    assert len(place) == sum(map(len, events))  # each happens once
    waits = [place[slot + 1] - slot for slot in range(rounds) if slot + 1 in place]
    assert set(waits) == set(range(delay + 1))
    missing = [slot for slot in range(rounds) if slot + 1 not in place]
    assert all(slot >= rounds - delay for slot in missing)
    early = [place[rounds + number + 1] for number in range(pending)]
    assert 0 <= min(early) <= max(early) < rounds // 2
    assert max(early) > rounds // 4
    own = [item for row in events for item in row if abs(item) <= rounds]
    share = np.mean([item < 0 for item in own])
    assert bool(share > 0.0) is (cancelled > 0.0)  # some blocks have a share of their own
    assert all(item > 0 for row in events for item in row if abs(item) > rounds)
    if delay:
        assert any(row != sorted(row) for row in events)  # in any order


def test_contexts_repeat_or_vary_within_what_the_policy_takes():
    assert scenario_contexts(PLAIN, 5, None) is None
    practice = np.asarray(LINEAR.practice_context)
    same = scenario_contexts(LINEAR, 5, None)
    assert same.shape == (5, *practice.shape)
    assert (same == practice).all()
    varied = scenario_contexts(LINEAR, 450, np.random.default_rng(0))
    assert len(varied) == 450
    assert (varied[400:] == varied[:50]).all()
    distinct = {each.tobytes() for each in varied}
    assert len(distinct) > 50
    for context in varied[:20]:
        LINEAR.checked_context(context)
    few = scenario_contexts(LINEAR, 3, np.random.default_rng(0))
    assert (few == varied[:3]).all()


def test_a_varied_context_mixes_shuffled_rows_and_columns():
    practice, rng = np.arange(6.0).reshape(3, 2) / 10, np.random.default_rng(1)
    mixed = 0
    for _ in range(60):
        context = varied_context(LINEAR, practice, rng)
        total = context.sum()
        assert total == pytest.approx(practice.sum())  # weights of a mixture add up to 1
        assert context.min() >= 0.0
        assert context.max() <= 0.5 + 1e-12
        mixed += not np.isin(np.round(context, 12), np.round(practice, 12)).all()
    assert 5 < mixed < 55
