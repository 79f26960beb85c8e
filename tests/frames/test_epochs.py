"""Epochs: in any order of events each reward is in at most one release, and no invariant breaks."""

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import initialize, invariant

from balaclava.frames.epochs import (
    add_reward,
    awaited,
    begin_epochs,
    eliminate_arms,
    end_epoch,
    epoch_row,
    give_up,
    is_learned,
    is_settled,
    keep_release,
    needs_epoch,
    next_decision,
    open_epoch,
)
from balaclava.frames.pools import UNLEARNED
from tests.frames.frame_machine import LARGEST, FrameMachine, Params, generator


class EpochsMachine(FrameMachine):
    """An elimination policy with random epochs and radii."""

    @initialize(
        arms=st.integers(1, 6),
        even=st.sampled_from(((0.0, 0.0), (0.0, 0.0), (0.3, 0.0), (0.2, 0.2))),
        rows=st.sampled_from((2, 2, 4)),
        seed=st.integers(0, 2**32),
    )
    def start(self, arms, even, rows, seed):
        self.arms, self.rows, self.params = arms, rows, Params(arms, *even)
        self.rng, self.luck = generator(seed), generator(seed + 1)
        self.state = self.begin()

    def begin(self):
        return begin_epochs(self.arms, self.rows)

    def is_kept(self, arm, phase):
        return bool(phase > 0 and is_learned(self.state, arm, phase))

    def choose(self):
        state = self.state
        if needs_epoch(state):
            active = [arm for arm in range(self.arms) if state.active[arm]]
            only = self.pick((-1, -1, -1, *active))
            open_epoch(state, self.luck.integers(1, 5), only)
        arm, phase = next_decision(self.params, state, self.rng)
        assert phase == UNLEARNED or state.active[arm]
        return arm, phase

    def is_over(self):
        return self.state.last_arm[0] >= 0

    def learn(self, arm, phase, reward):
        state = self.state
        if not is_learned(state, arm, phase):
            return
        if reward is None:
            give_up(state, arm, phase)
        else:
            add_reward(state, arm, reward, phase)
        while is_settled(state):
            self.settle()

    def settle(self):
        state, epoch = self.state, int(self.state.oldest[0])
        row, width = epoch_row(state, epoch), self.pick((0.15, 1.0, 1.0))
        for arm in range(self.arms):
            rewards = state.rewards_in_epoch[arm, row]
            if state.active[arm]:
                self.release(arm, epoch, state.sums[arm, row], rewards)
                if rewards:
                    keep_release(state, arm, row, state.sums[arm, row], width * LARGEST)
        eliminate_arms(state)
        end_epoch(state, self.luck.integers(1, 5))

    @invariant()
    def rows_hold_the_rewards(self):
        state = self.state
        for (arm, epoch), group in self.groups.items():
            if not group.released and is_learned(state, arm, epoch):
                row = epoch_row(state, epoch)
                assert state.sums[arm, row] == group.total
                assert state.rewards_in_epoch[arm, row] == group.rewards

    @invariant()
    def awaited_decisions_add_up(self):
        state = self.state
        for epoch in range(int(state.oldest[0]), int(state.number[0]) + 1):
            row = epoch_row(state, epoch)
            left = [awaited(state, arm, row) for arm in range(self.arms) if state.active[arm]]
            assert sum(left) == state.left[row]

    @invariant()
    def the_best_arm_stays(self):
        assert self.state.active.any()

    def checks(self):
        super().checks()
        self.rows_hold_the_rewards()
        self.awaited_decisions_add_up()
        self.the_best_arm_stays()


TestEpochs = EpochsMachine.TestCase
TestEpochs.settings = settings(max_examples=40, stateful_step_count=30)


def test_an_eliminated_arm_has_no_turn_in_the_epoch_that_is_open():
    state, params, rng = begin_epochs(3, 4), Params(3, 0.0, 0.0), generator(1)
    open_epoch(state, 1, -1)
    first = [next_decision(params, state, rng) for _ in range(3)]
    open_epoch(state, 5, -1)
    next_decision(params, state, rng)
    for arm, phase in first:
        add_reward(state, arm, (9.0, 8.0, 0.0)[arm], phase)
    for arm in range(3):
        keep_release(state, arm, epoch_row(state, 1), (9.0, 8.0, 0.0)[arm], 1.0)
    eliminate_arms(state)
    end_epoch(state, 5)
    assert state.active.tolist() == [True, True, False]
    assert {int(next_decision(params, state, rng)[0]) for _ in range(8)} == {0, 1}
