"""Pools: in any order of events each reward is in one release, and no invariant breaks."""

import numpy as np
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import initialize, invariant

from balaclava.frames import blocks
from balaclava.frames.pools import (
    NO_ROW,
    add_reward,
    arm_without_rewards,
    assign_batch,
    assign_decision,
    begin_pools,
    close_batch,
    continue_batch,
    cut_short,
    fill_block,
    find_row,
    give_up,
    in_batch,
    must_choose,
    needs_batch,
    next_arm,
    open_batch,
    rewards_in_batch,
    ring_row,
    use_mean,
)
from tests.frames.frame_machine import FrameMachine, Params, generator

ROWS = 4


class PoolsMachine(FrameMachine):
    """A policy on pools that chooses at random."""

    @initialize(
        arms=st.integers(1, 4),
        even=st.sampled_from(((0.0, 0.0), (0.0, 0.0), (0.3, 0.0), (0.2, 0.2))),
        whole=st.booleans(),
        seed=st.integers(0, 2**32),
    )
    def start(self, arms, even, whole, seed):
        self.arms, self.params = arms, Params(arms, *even)
        self.assign = assign_batch if whole else assign_decision
        self.rng, self.luck = generator(seed), generator(seed + 1)
        self.state = self.begin()
        self.fully_asked = []  # arm and number of each batch, in this order

    def begin(self):
        return begin_pools(self.arms, ROWS)

    def choose(self):
        state = self.state
        if in_batch(state):
            return continue_batch(state)
        if must_choose(state):
            best = arm_without_rewards(state)
            if best < 0:
                ready = [arm for arm in range(self.arms) if state.ready[arm]]
                best = self.pick([int(state.lead[0]), *ready])
            state.current[0] = best
        arm = next_arm(self.params, state, self.rng)
        if needs_batch(state, arm):
            open_batch(state, arm, self.luck.integers(1, 6))
        elif not state.held_out[0] and self.luck.random() < 0.2:
            cut_short(state, arm)
        waiting = state.waiting[arm]
        decision = self.assign(state, arm)
        if state.waiting[arm] > waiting:
            self.fully_asked.append((arm, int(state.number[arm])))
        return decision

    def learn(self, arm, phase, reward):
        row = find_row(self.state, arm, phase)
        if reward is None:
            row = give_up(self.state, arm, row)
        else:
            row = add_reward(self.state, arm, row, reward)
        if row == NO_ROW:
            return
        total, rewards = self.state.sums[arm, row], rewards_in_batch(self.state, arm, row)
        self.release(arm, phase, total, rewards)
        close_batch(self.state, arm, row, total)
        use_mean(self.state, arm, self.state.pooled[arm], self.state.rewards[arm])

    @invariant()
    def rows_hold_what_was_told(self):
        state, held = self.state, 0.0
        for (arm, phase), group in self.groups.items():
            if not group.released and group.rewards:
                row = ring_row(state, phase)
                assert state.numbers[arm, row] == phase
                assert state.sums[arm, row] == group.total
                held += group.total
        assert state.sums.sum() == held

    @invariant()
    def releases_count_in_the_order_of_fully_asked_batches(self):
        state, rewards, totals = self.state, np.zeros(self.arms), np.zeros(self.arms)
        for arm, number in self.fully_asked:
            if state.numbers[arm, ring_row(state, number)] == number:
                break
            rewards[arm] += self.groups[arm, number].rewards
            totals[arm] += self.groups[arm, number].total
        assert (state.rewards_in_order == rewards).all()
        assert state.in_order * rewards == pytest.approx(totals)

    @invariant()
    def arms_with_a_release_that_do_not_wait_may_be_explored(self):
        state = self.state
        assert (state.ready == (state.weights > 0) & (state.waiting == 0)).all()

    @invariant()
    def the_lead_has_the_highest_released_mean(self):
        state = self.state
        if state.weights.any():
            assert state.lead[0] == np.where(state.weights > 0, state.means, -np.inf).argmax()

    def checks(self):
        super().checks()
        self.rows_hold_what_was_told()
        self.releases_count_in_the_order_of_fully_asked_batches()

    def teardown(self):
        """Once no decision is open, every fully asked batch is released."""
        super().teardown()
        for (arm, phase), group in self.groups.items():
            if not group.released and group.rewards:
                assert phase == self.state.number[arm]
                resting = self.state.rest_of_batch[0] if self.state.current[0] == arm else 0
                assert self.state.placed[arm] - resting < self.state.size[arm]


TestPools = PoolsMachine.TestCase
TestPools.settings = settings(max_examples=40, stateful_step_count=30)


def test_a_batch_without_room_in_the_queue_never_counts_in_order():
    """A batch is open while others pass; the queue holds a fixed number of them."""
    state = begin_pools(2, ROWS)
    open_batch(state, 0, 1)
    assert assign_decision(state, 0) == (0, 1)
    room = state.queued_arms.size
    for number in range(1, room + 3):
        open_batch(state, 1, 1)
        assert assign_decision(state, 1) == (1, number)
        row = add_reward(state, 1, find_row(state, 1, number), 1.0)
        close_batch(state, 1, row, 1.0)
    assert state.rewards[1] == room + 2
    assert state.rewards_in_order[1] == 0
    close_batch(state, 0, add_reward(state, 0, find_row(state, 0, 1), 1.0), 1.0)
    assert state.rewards_in_order.tolist() == [1, room - 1]


def test_a_block_has_the_arms_that_have_no_release_and_do_not_wait():
    state = begin_pools(4, ROWS)
    state.weights[:], state.waiting[:] = [0, 0, 3, 3], [0, 1, 0, 1]
    fill_block(state)
    assert [blocks.is_still_due(state.blocks, arm) for arm in range(4)] == [True, *[False] * 3]


@pytest.mark.parametrize("name", ["current", "lead", "queued_arms"])
def test_an_arm_beyond_the_last_is_a_fault(name):
    """A damaged save must not be read past the end of an array."""
    state = begin_pools(3, ROWS)
    assert list(state.faults(9)) == []
    getattr(state, name)[0] = 2
    assert list(state.faults(9)) == []
    getattr(state, name)[0] = 3
    assert any(name in fault for fault in state.faults(9))
