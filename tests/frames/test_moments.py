"""Batches of moments: who is in which batch, and how far one participant moves their sums."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from balaclava.frames import pending
from balaclava.frames.moments import (
    Moments,
    add_moment,
    begin_moments,
    entries_of,
    give_up_moment,
    join_batch,
    keep_moments,
    overdue_row,
    unpack_moments,
    widest_move,
)
from balaclava.frames.pools import NO_ROW
from balaclava.privacy.exact_noise import grid_step

WEIGHT = 2.0


def decide(state: Moments, x: np.ndarray, first: float = 4, growth: float = 2.0) -> int:
    """Note a row and join a batch: the phase."""
    note = pending.free_note(state.pending)
    assert note != pending.FORGOTTEN
    state.pending.notes[note, :-1] = x
    return join_batch(state, first, growth)


def part(x: np.ndarray, reward: float, block: int, blocks: int, step: float) -> np.ndarray:
    """The vector of one participant alone."""
    state = begin_moments(blocks, x.size, 8)
    add_moment(state, block, decide(state, x), reward, WEIGHT, step)
    return state.sums.sum(axis=0)


@pytest.mark.statistical
@pytest.mark.parametrize("d", [1, 2, 5])
def test_no_two_participants_differ_by_more_than_the_sensitivity(d: int) -> None:
    """For rows up to length 1, the same arm or another, and rewards at both ends or between."""
    rng, widest = np.random.default_rng(d), 0.0
    bound = widest_move(d, WEIGHT)
    step = grid_step(bound)
    for _ in range(2_000):
        ends = []
        for _ in range(2):
            x = rng.normal(size=d)
            x /= np.linalg.norm(x) / rng.choice([1.0, rng.random()])
            ends.append(part(x, rng.choice([0.0, 1.0, rng.random()]), rng.integers(2), 2, step))
        widest = max(widest, float(np.linalg.norm(ends[0] - ends[1])))
    assert widest <= bound
    assert widest > 0.8 * bound


def test_the_worst_pair_reaches_the_sensitivity() -> None:
    """Rows at |<x, x'>| = k^2/8 with rewards that move r x apart."""
    q = WEIGHT**2 / 8
    x, y = np.array([1.0, 0.0]), np.array([q, math.sqrt(1 - q * q)])
    step = grid_step(widest_move(2, WEIGHT))
    apart = part(x, 1.0, 0, 1, step) - part(y, 0.0, 0, 1, step)
    assert np.linalg.norm(apart) == pytest.approx(math.sqrt(2) * (1 + WEIGHT**2 / 8), rel=1e-5)


def test_sums_are_the_moments_of_the_rewards_that_came() -> None:
    rng, state = np.random.default_rng(1), begin_moments(2, 3, 32)
    rows = rng.normal(size=(4, 3))
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    phases = [decide(state, x) for x in rows]
    assert give_up_moment(state, phases[2]) == NO_ROW
    released = [
        add_moment(state, block, phases[i], reward, WEIGHT, 2.0**-20)
        for i, block, reward in ((3, 1, 1.0), (0, 0, 0.0), (1, 1, 0.25))
    ]
    assert released == [NO_ROW, NO_ROW, 1]
    state.last_release[:] = state.sums[1]
    keep_moments(state, 1)
    matrix, b = np.zeros((3, 3)), np.zeros(3)
    unpack_moments(state.released, 1, matrix, b)
    assert matrix == pytest.approx(rows[[1, 3]].T @ rows[[1, 3]], abs=1e-5)
    assert b == pytest.approx(WEIGHT * (rows[3] * 0.5 - rows[1] * 0.25), abs=1e-5)
    unpack_moments(state.released, 0, matrix, b)
    assert matrix == pytest.approx(np.outer(rows[0], rows[0]), abs=1e-5)
    assert (state.rewards[0], state.draws[0]) == (3, 1)
    assert not state.sums.any()


def test_batches_grow_with_the_number_of_decisions_alone() -> None:
    """Also while rewards are late; no row is free for a fifth batch."""
    state = begin_moments(1, 2, 64)
    numbers = []
    for t in range(40):
        phase = decide(state, np.array([0.1 * (t % 3), 0.2]))
        numbers.append(int(state.pending.notes[phase % 64, 2]))
    assert numbers == [1] * 4 + [2] * 4 + [3] * 8 + [4] * 24
    for phase in range(1, 5):
        row = add_moment(state, 0, phase, 1.0, WEIGHT, 2.0**-20)
    assert row == 1
    state.last_release[:] = state.sums[row]
    keep_moments(state, row)
    decide(state, np.zeros(2))
    assert int(state.number[0]) == 5


def test_a_batch_is_released_at_its_deadline_without_the_rewards_that_come_later() -> None:
    """It ended after 4 decisions, and is due after 8; the late reward is in no sum at all."""
    state = begin_moments(1, 2, 64)
    phases = [decide(state, np.array([0.6, 0.8])) for _ in range(7)]
    for phase in phases[:3]:
        assert add_moment(state, 0, phase, 1.0, WEIGHT, 2.0**-20) == NO_ROW
    assert overdue_row(state) == NO_ROW
    decide(state, np.zeros(2))
    assert overdue_row(state) == 1
    state.last_release[:] = state.sums[1]
    keep_moments(state, 1)
    assert overdue_row(state) == NO_ROW
    before = state.sums.copy()
    assert add_moment(state, 0, phases[3], 1.0, WEIGHT, 2.0**-20) == NO_ROW
    assert np.array_equal(state.sums, before)
    assert (state.rewards[0], state.left.min(), list(state.faults(8))) == (3, 0, [])


def test_a_batch_without_rewards_is_closed_without_a_release() -> None:
    state = begin_moments(1, 2, 16)
    for _ in range(5):
        decide(state, np.ones(2) / 2)
    assert [give_up_moment(state, phase) for phase in range(1, 5)] == [NO_ROW] * 4
    assert (state.numbers[1], state.draws[0]) == (0, 0)
    assert give_up_moment(state, 3) == NO_ROW  # once


def test_a_state_that_was_damaged_is_refused() -> None:
    state: Any = begin_moments(1, 2, 16)
    assert list(state.faults(0)) == []
    state.sums[3, 0] = 1.0
    assert list(state.faults(0)) == ["a sum has no batch"]
    assert entries_of(2) == state.sums.shape[1]
