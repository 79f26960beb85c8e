"""Episodes of a linear bandit: what is released is the sum of r x, and V is of its decisions."""

from __future__ import annotations

import math

import numpy as np
import pytest

from balaclava.frames import pending
from balaclava.frames.episodes import (
    UNSETTLED_EPISODES,
    Episodes,
    add_decision,
    add_reward,
    begin_episodes,
    give_up,
    keep_release,
    overdue_row,
)
from balaclava.frames.pools import NO_ROW
from tests.frames.frame_machine import require_ranges

STEP, FIRST, GROWTH = 2.0**-10, 3.0, math.log(1.5)


def decide(state: Episodes, x: np.ndarray) -> int:
    row = pending.free_note(state.pending)
    assert row != pending.FORGOTTEN
    state.pending.notes[row, :-1] = x
    phase = add_decision(state, 0, FIRST, GROWTH)
    assert row == phase % state.pending.numbers.size
    return phase


def decide_in_open(state: Episodes, x: np.ndarray, first: float = 1e9) -> int:
    state.pending.notes[pending.free_note(state.pending), :-1] = x
    return add_decision(state, 0, first, 1e9)


def on_grid(reward: float, x: np.ndarray) -> np.ndarray:
    return np.asarray(np.trunc(reward * x / STEP) * STEP)


def test_episodes_end_by_the_number_of_decisions_and_by_the_growth_of_v() -> None:
    state, x = begin_episodes(1, 2, 2.0, 64), np.array([1.0, 0.5])
    v, start, size, number = 2.0 * np.eye(2), 0.0, 0, 1
    for _ in range(40):
        decide(state, x)
        v += np.outer(x, x)
        size += 1
        growth = np.linalg.slogdet(v / 2.0)[1]
        free = number < UNSETTLED_EPISODES
        if size >= FIRST and (number == 1 or growth - start >= GROWTH) and free:
            number, size, start = number + 1, 0, growth
        assert (state.number[0], state.size[0], state.waiting[0]) == (number, size, number - 1)
        assert state.growth_at_start[0] == pytest.approx(start)
    assert number == UNSETTLED_EPISODES  # the ring is full: the newest goes on


def test_a_settled_episode_is_released_with_the_v_of_its_rewards() -> None:
    state, rng = begin_episodes(2, 3, 0.5, 32), np.random.default_rng(1)
    xs = rng.normal(size=(6, 3))
    phases = [decide(state, x) for x in xs]
    rewards = [0.7, -0.4, None, 0.9]
    total, v = np.zeros(3), 0.5 * np.eye(3)
    assert add_reward(state, 0, phases[3], rewards[3] or 0.0, STEP) == NO_ROW  # of the second
    for phase, x, reward in zip(phases[:2], xs, rewards, strict=False):
        assert reward is not None
        assert add_reward(state, 0, phase, reward, STEP) == NO_ROW
        assert add_reward(state, 0, phase, reward, STEP) == NO_ROW  # told twice counts once
        total, v = total + on_grid(reward, x), v + np.outer(x, x)
    row = give_up(state, 0, phases[2])
    assert row == 1
    assert give_up(state, 0, phases[2]) == NO_ROW
    assert state.sums[0, row].tolist() == total.tolist()
    noisy = total + 0.25
    state.last_release[:] = noisy
    keep_release(state, 0, row)
    assert state.released[0].tolist() == noisy.tolist()
    assert np.allclose(state.known.gram[0], v)
    assert np.allclose(state.theta[0], np.linalg.solve(v, noisy))
    assert (state.rewards[0], state.draws[0], state.numbers[0, row]) == (2, 1, 0)
    for raw in (state.sums[0, row], state.grams[0, row], state.rewards_in_episode[0, row]):
        assert not np.any(raw)
    assert list(state.faults(6)) == []
    assert not np.any(state.sums[1])


def test_an_episode_whose_rewards_are_all_lost_is_closed_without_a_release() -> None:
    state = begin_episodes(1, 1, 1.0, 8)
    phases = [decide(state, np.ones(1)) for _ in range(4)]
    assert state.waiting[0] == 1
    assert [give_up(state, 0, phase) for phase in phases] == [NO_ROW] * 4
    assert (state.waiting[0], state.numbers[0].tolist()) == (0, [0, 0, 2, 0])
    assert state.left.sum() == 0


def test_half_of_the_rewards_suffice_at_a_deadline_and_later_ones_join_the_open_episode() -> None:
    """Deadlines follow from decisions alone: 7, 11, 17, ... after an episode of four."""
    state, x = begin_episodes(1, 2, 1.0, 64), np.array([1.0, 0.5])
    phases = [decide_in_open(state, x, first=4.0) for _ in range(4)]
    assert (state.number[0], state.waiting[0], state.deadlines[0, 1]) == (2, 1, 7)
    add_reward(state, 0, phases[0], 1.0, STEP)
    assert overdue_row(state, 0, 4.0) == NO_ROW  # before the deadline
    for _ in range(3):
        decide_in_open(state, x)
    assert overdue_row(state, 0, 4.0) == NO_ROW  # a quarter of the rewards
    assert state.deadlines[0, 1] == 11
    add_reward(state, 0, phases[2], 0.5, STEP)
    assert overdue_row(state, 0, 4.0) == NO_ROW  # half of them, before the next deadline
    for _ in range(4):
        decide_in_open(state, x)
    assert overdue_row(state, 0, 4.0) == 1
    assert (state.waiting[0], state.left[0, 1]) == (0, 0)
    assert state.sums[0, 1].tolist() == (1.5 * x).tolist()
    keep_release(state, 0, 1)
    assert overdue_row(state, 0, 4.0) == NO_ROW
    awaited = state.left[0, 2]
    assert add_reward(state, 0, phases[3], 1.0, STEP) == NO_ROW
    assert state.sums[0, 2].tolist() == x.tolist()
    assert (state.rewards_in_episode[0, 2], state.left[0, 2]) == (1, awaited)
    assert give_up(state, 0, phases[1]) == NO_ROW
    assert state.left[0, 2] == awaited
    assert list(state.faults(state.pending.count[0])) == []


def test_as_many_rewards_as_a_first_episode_has_suffice_too() -> None:
    state, x = begin_episodes(1, 1, 1.0, 64), np.ones(1)
    phases = [decide_in_open(state, x, first=20.0) for _ in range(20)]
    for phase in phases[:3]:
        add_reward(state, 0, phase, 1.0, STEP)
    for _ in range(11):
        decide_in_open(state, x)
    assert overdue_row(state, 0, 4.0) == NO_ROW
    add_reward(state, 0, phases[3], 1.0, STEP)
    for _ in range(20):
        decide_in_open(state, x)
    assert overdue_row(state, 0, 4.0) == 1


def test_no_note_is_free_while_all_are_open() -> None:
    state = begin_episodes(1, 1, 1.0, 2)
    for _ in range(2):
        decide(state, np.ones(1))
    assert pending.free_note(state.pending) == pending.FORGOTTEN
    assert pending.next_is_taken(state.pending)
    give_up(state, 0, 1)
    assert pending.free_note(state.pending) == 1


def test_faults() -> None:
    state = begin_episodes(2, 1, 1.0, 8)
    assert list(state.faults(0)) == []
    counts = ("number", "numbers", "size", "rewards_in_episode", "draws", "rewards")
    ranges: dict[str, tuple[float, float]] = {name: (0, 6) for name in counts}
    require_ranges(state, 5, ranges | {"waiting": (0, UNSETTLED_EPISODES), "deadlines": (0, 11)})
    for name in ("rewards", "rewards_in_episode", "left"):
        getattr(state, name).reshape(-1)[0] = 2
    assert "more rewards than decisions" not in list(state.faults(6))
    assert "more rewards than decisions" in list(state.faults(5))
    awaits = "an episode awaits fewer than 0 decisions, or a sum has no episode"
    assert awaits not in list(state.faults(6))
    state.sums[1, 1] = 1.0
    assert awaits not in list(state.faults(6))
    state.sums[1, 2] = 1.0
    assert awaits in list(state.faults(6))
    state.sums[1, 2], state.left[1, 0] = 0.0, -1
    assert awaits in list(state.faults(6))
