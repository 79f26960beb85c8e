"""Where rewards are changed."""

from __future__ import annotations

import math
from types import SimpleNamespace

import numpy as np
import pytest

import balaclava as bl
from balaclava.auditing.games.attacks import constant_pair
from balaclava.auditing.replay.recorded_run import record
from balaclava.auditing.replay.reward_choices import (
    choose_neighbours,
    different_streams,
    limits_near_truncation,
    lonely_slots,
    neighbouring_reward,
    reward_limits,
    reward_stream,
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


HEAVY = {"arms": 2, "epsilon": 1.0, "horizon": 100, "moment_order": 2, "moment_bound": 9.0}


def test_the_limits_of_rewards_to_try():
    assert reward_limits(bl.policy("kl-ucb", arms=2, reward_range=(-2.0, 6.0))) == (-2.0, 6.0)
    assert reward_limits(bl.policy("dpr-batch-ucb", **HEAVY)) == (-3.0, 3.0)
    assert reward_limits(bl.policy("dpr-adaptive-ucb", arms=2, epsilon=1.0)) == (-1e3, 1e3)
    losses = bl.policy("htinf", arms=2)
    assert reward_limits(losses) == ((0.0, 1.0) if losses.rewards == "loss" else (-1e3, 1e3))


def test_special_values_are_within_the_range_or_of_both_signs():
    values = special_values(bl.policy("kl-ucb", arms=2, reward_range=(-2.0, 6.0)))
    assert min(values) == -2.0
    assert max(values) == 6.0
    for share in (0.0, 1.0, 0.5, 0.25, 1 / 3, 0.1, 2.0**-20, 2.5 * 2.0**-20, 2.0**-21, 0.75):
        assert -2.0 + 8.0 * share in values
    assert {math.nextafter(-2.0, 6.0), math.nextafter(6.0, -2.0)} <= set(values)
    assert {1.0, 0.5} <= set(values)  # numbers of the code
    uneven = special_values(bl.policy("kl-ucb", arms=2, reward_range=(0.37, 7.11)))
    assert {0.37 + 6.74 * 0.5, 0.37 + 6.74 / 3, 0.37 + 6.74 * 0.75} <= set(uneven)
    unbounded = special_values(bl.policy("dpr-batch-ucb", **HEAVY))
    assert sorted(unbounded) == sorted(-value for value in unbounded)
    assert {5e-324, 2.0**-20, 1.0, 2.0**53, 1.7e308} <= set(unbounded)


def test_rewards_near_truncation():
    rng = np.random.default_rng(0)
    sizes = []
    for _ in range(400):
        low, high = limits_near_truncation([2.0], rng)
        assert low == -high
        sizes.append(high)
    below = np.mean(np.array(sizes) < 1.0)  # half of the sensitivity is the truncation
    assert 0.8 <= min(sizes) < 0.82
    assert 1.7 < max(sizes) <= 2.0
    assert below == np.clip(below, 0.42, 0.58)
    assert 1.09 < np.median([size for size in sizes if size > 1.0]) < 1.2  # 1 + .5^3


@pytest.mark.parametrize("number", range(9))
def test_each_kind_of_stream_stays_between_the_limits(number):
    policy = bl.policy("kl-ucb", arms=3)
    stream = reward_stream(policy, 300, number, (-2.0, 6.0), np.random.default_rng(0), False)
    assert stream.shape == (300, 3)
    assert -2.0 <= stream.min() <= stream.max() <= 6.0
    again = reward_stream(policy, 300, number + 9, (-2.0, 6.0), np.random.default_rng(0), False)
    assert (stream == again).all()
    unit = (stream + 2.0) / 8.0
    values = {
        0: {0.0, 1.0}, 2: {0.0}, 3: {1.0}, 4: {0.0, 1.0}, 6: {0.0, 1.0}, 7: {0.5},
        8: {0.0, 0.25, 0.5, 0.75, 1.0},
    }  # fmt: skip
    if number in values:
        assert set(unit.ravel().tolist()) == values[number]
    if number == 4:
        assert unit.mean(axis=0) == pytest.approx([0.05, 0.5, 0.95], abs=0.08)
    if number == 5:
        assert (unit == unit[0]).all()
    if number == 1:
        assert unit.mean() == pytest.approx(0.5, abs=0.05)
        assert np.unique(unit).size == 900


def test_special_streams_hold_special_values_only():
    policy = bl.policy("kl-ucb", arms=3)
    stream = reward_stream(policy, 50, 0, (0.0, 1.0), np.random.default_rng(0), True)
    assert set(stream.ravel().tolist()) <= set(special_values(policy))


def test_different_streams():
    policy, rng = PROVED_CONTROLS["honest"].policy, np.random.default_rng(0)
    rewards = rng.integers(0, 5, (200, 2)) / 4.0
    run = record(policy, plain_scenario(policy, rewards), seed=0)
    mirrored, coins, special, mixed, best, worst = different_streams(policy, run, (0.0, 1.0), rng)
    assert (mirrored == 1.0 - rewards).all()
    assert set(coins.ravel().tolist()) == {0.0, 1.0}
    assert set(special.ravel().tolist()) <= set(special_values(policy))
    changed = (mixed != rewards)[rewards != 0.5]
    assert (mixed[mixed != rewards] == mirrored[mixed != rewards]).all()
    assert 0.05 < changed.mean() < 0.16
    assert (best + worst == 1.0).all()
    assert sorted(best[0].tolist()) == [0.0, 1.0]
    assert (best == best[0]).all()
    clipped, *_ = different_streams(policy, run, (0.0, 0.5), rng)
    assert (clipped == np.clip(0.5 - rewards, 0.0, 0.5)).all()


def test_neighbours_change_rewards_that_are_told():
    policy, rng = PROVED_CONTROLS["honest"].policy, np.random.default_rng(0)
    scenario = plain_scenario(policy, rng.integers(0, 2, (40, 2)).astype(float))
    scenario.event_items[::2] *= -1  # every second decision is cancelled
    run = record(policy, scenario, seed=0)
    neighbours = choose_neighbours(policy, run, 400, (0.0, 1.0), rng)
    assert neighbours == sorted(neighbours)
    assert len(neighbours) == 400
    assert {slot for slot, _ in neighbours} == set(range(1, 40, 2))
    far = [run.scenario.rewards[slot, run.decisions[slot][0]] != reward
           for slot, reward in neighbours if reward in (0.0, 1.0)]  # fmt: skip
    assert np.mean(far) > 0.7
    middle = np.mean([reward == 0.5 for _, reward in neighbours])
    assert 0.06 < middle < 0.25
    assert 3 < sum(reward not in special_values(policy) for _, reward in neighbours) < 120
    few = choose_neighbours(policy, run, 8, (0.0, 1.0), rng)
    assert len(few) == 8
    scenario.event_items[:] = -np.abs(scenario.event_items)
    assert choose_neighbours(policy, run, 8, (0.0, 1.0), rng) == []


def test_the_first_and_the_last_round_are_neighbours():
    policy, rounds = bl.policy("ucb1", arms=2), 12  # no phases and no releases
    run = record(policy, plain_scenario(policy, np.ones((rounds, 2))), seed=0)
    for seed in range(12):
        chosen = choose_neighbours(policy, run, 4, (0.0, 1.0), np.random.default_rng(seed))
        assert {0, rounds - 1} <= {neighbour.slot for neighbour in chosen}


def test_a_slot_is_lonely_with_at_most_two_others_near():
    policy = PROVED_CONTROLS["honest"].policy
    run = record(policy, plain_scenario(policy, np.ones((60, 2))), seed=0)
    assert lonely_slots(run, [20, 22, 25]) == [20, 22, 25]
    assert lonely_slots(run, [20, 22, 23, 25]) == []


def test_neighbouring_rewards_between_other_limits():
    policy = bl.policy("kl-ucb", arms=2, reward_range=(2.0, 6.0))
    special, rng = special_values(policy), np.random.default_rng(0)
    for now, far in ((3.5, 6.0), (4.5, 2.0)):
        run = record(policy, plain_scenario(policy, np.full((10, 2), now)), seed=0)
        chosen = [neighbouring_reward(policy, run, 3, (2.0, 6.0), rng) for _ in range(800)]
        assert 0.5 < np.mean(np.array(chosen) == far) < 0.68
        assert 0.07 < np.mean(np.array(chosen) == 4.0) < 0.17
        others = [value for value in chosen if value not in (*special, now)]
        assert 2.0 < min(others) < 2.5
        assert 5.5 < max(others) < 6.0


def test_losses_without_limits_are_tried_between_0_and_1():
    losses = SimpleNamespace(accepts=(-math.inf, math.inf), rewards="loss")
    assert reward_limits(losses) == (0.0, 1.0)
    half = SimpleNamespace(
        accepts=(0.0, math.inf), rewards="bounded", moment_bound=None, moment_order=None
    )
    assert reward_limits(half) == (-1e3, 1e3)


def test_rewards_are_tried_so_many_widths_beyond_the_range():
    values = special_values(UNUSUAL_CONTROLS["clipped"].policy)
    low, high = UNUSUAL_CONTROLS["clipped"].policy.accepts
    if math.isfinite(high - low):
        for far in (1e-3, 0.5, 1.0, 1e3):
            assert {low - far * (high - low), high + far * (high - low)} <= set(values)


def test_one_arm_is_best_or_worst_of_three():
    policy, rng = bl.policy("kl-ucb", arms=3), np.random.default_rng(0)
    run = record(policy, plain_scenario(policy, np.ones((4, 3))), seed=0)
    *_, best, worst = different_streams(policy, run, (0.0, 1.0), rng)
    assert sorted(best[0].tolist()) == [0.0, 0.0, 1.0]
    assert (best + worst == 1.0).all()
