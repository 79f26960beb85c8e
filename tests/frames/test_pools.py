"""Pools: in any order of events each reward is in one release, and no invariant breaks."""

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import initialize, invariant

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
        return self.assign(state, arm)

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

    def checks(self):
        super().checks()
        self.rows_hold_what_was_told()

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
