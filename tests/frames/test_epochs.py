"""Epochs: in any order of events each reward is in at most one release, and no invariant breaks."""

import math

import numpy as np
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import initialize, invariant

from balaclava.frames import blocks
from balaclava.frames.epochs import (
    active_arms,
    add_reward,
    awaited,
    begin_epochs,
    capacity,
    closing_turns,
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
    play_last_arm,
    rule_chance,
)
from balaclava.frames.pools import UNLEARNED
from tests.frames.frame_machine import (
    LARGEST,
    Draws,
    FrameMachine,
    Params,
    generator,
    require_exact_chances,
    require_ranges,
    shapes,
)


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


def test_faults():
    state = begin_epochs(3)
    assert list(state.faults(0)) == []
    counts = ["rewards_in_epoch", "blocks_done", "draws", "number", "lost", "out_of_turn"]
    counts += ["rewards", "settled"]
    state.number[0] = 4
    require_ranges(
        state,
        9,
        {name: (0, 9) for name in counts}
        | {"oldest": (0, 10), "left": (0, 12), "phase": (UNLEARNED, 4), "only": (-1, 2)}
        | {"last_arm": (-1, 2), "equally_likely": (1, 3), "chance": (0.0, 1.0)}
        | {"radii": (0.0, math.inf), "widths": (0.0, math.inf)},
    )
    for name in ("blocks_learned", "length"):
        for value, wrong in ((2**62, False), (2**62 + 1, True), (-1, True), (0, False)):
            getattr(state, name)[0] = value
            assert (f"{name} holds a number out of its range" in state.faults(9)) is wrong


@pytest.mark.parametrize("even", [(0.0, 0.0), (0.25, 0.2), (0.0, 0.2)])
@pytest.mark.parametrize("moment", ["block of three", "two due", "one arm left"])
def test_propensities_are_exact(even, moment):
    params, state = Params(4, *even), begin_epochs(4)
    state.active[1] = False
    open_epoch(state, 2, -1)
    if moment == "two due":
        next_decision(Params(4, 0.0, 0.0), state, Draws(0.5))
    elif moment == "one arm left":
        play_last_arm(state, 2)
    phases = []

    def choose(copy, rng):
        arm, phase = next_decision(params, copy, rng)
        phases.append(phase)
        assert phase == UNLEARNED or copy.active[arm]
        return arm

    copies, shares = require_exact_chances(state, choose)
    drawn = even[1] + (1 - even[1]) * even[0]
    by_rule = {"block of three": 1 / 3, "two due": 0.5, "one arm left": 1.0}[moment]
    assert max(shares.values()) == pytest.approx(drawn / 4 + (1 - drawn) * by_rule)
    held, explored = even[1], (1 - even[1]) * even[0] / 4
    unlearned = (
        1.0 if moment == "one arm left" else held + explored
    )  # one arm of four is not in play
    assert np.mean(np.array(phases) == UNLEARNED) == pytest.approx(unlearned)
    assert {int(phase) for phase in phases} <= {UNLEARNED, 1}
    out_of_turn = np.mean([copy.out_of_turn.sum(axis=1) for copy in copies], axis=0)
    each = 0.0 if moment == "one arm left" else explored
    assert out_of_turn == pytest.approx([each, 0.0, each, each])
    awaited = {"block of three": 3, "two due": 3, "one arm left": 0}[moment]
    assert np.mean([copy.left.sum() for copy in copies]) == pytest.approx(awaited + 3 * each)


@pytest.mark.parametrize(("length", "most"), [(0, 2**19), (8, 2**19 + 16)])
def test_an_epoch_has_room_for_half_its_capacity_in_turn_and_out_of_turn(length, most):
    assert capacity(length) == 2 * most
    for full in (False, True):
        state, params = begin_epochs(2), Params(2, 0.5, 0.0)
        open_epoch(state, length, -1)
        row = epoch_row(state, 1)
        state.out_of_turn[0, row] = state.blocks_learned[row] = most - (not full)
        phase = UNLEARNED if full else 1
        assert next_decision(params, state, Draws(0.1, 0.1)) == (0, phase)
        assert state.phase[0] == phase
        assert state.left[row] == (0 if full else 3)  # a block of two, and the arm out of turn


def settled_epoch(means, radii, rows=2, length=5):
    """A first epoch with one reward for each arm, and a second that is open."""
    arms = len(means)
    state, rng = begin_epochs(arms, rows), generator(1)
    open_epoch(state, 1, -1)
    for _ in range(arms):
        next_decision(Params(arms, 0.0, 0.0), state, rng)
    assert needs_epoch(state)
    open_epoch(state, length, -1)
    for arm, (mean, radius) in enumerate(zip(means, radii, strict=True)):
        add_reward(state, arm, mean, 1)
        keep_release(state, arm, epoch_row(state, 1), mean, radius)
    assert is_settled(state)
    return state


@pytest.mark.parametrize("explore", [0.0, 0.5])
def test_the_chance_of_an_arm_in_a_block_with_several_turns_of_each(explore):
    state, params = begin_epochs(2, most_turns=3), Params(2, explore, 0.0)
    open_epoch(state, 10, -1)
    by_rule = [0.99] if explore else []  # no even draw
    left, drawn = [3, 3], [0.99]  # the draw of three turns
    for place in (0.0, 0.3, 0.0, 0.9, 0.0, 0.0):
        before = [rule_chance(state, arm) for arm in (0, 1)]
        shares = [each / sum(left) for each in left]
        arm, phase = next_decision(params, state, Draws(*drawn, *by_rule, place))
        assert phase == 1
        assert state.last_chance == pytest.approx(explore / 2 + (1 - explore) * shares[arm])
        if not drawn:
            assert before == shares
        left[arm] -= 1
        drawn = []
    assert left == [0, 0]
    row = epoch_row(state, 1)
    assert (state.blocks_done[0], state.blocks_learned[row], state.left[row]) == (3, 3, 6)
    state.blocks_done[0] = 8  # two turns are left: a draw of three is not possible
    next_decision(params, state, Draws(0.99, *by_rule, 0.0))
    assert (state.blocks.size[0], state.blocks_learned[row]) == (4, 5)
    assert [state.blocks.order[i] for i in range(4)] == [0, 1, 0, 1]


def test_an_arm_is_eliminated_if_it_is_behind_by_more_than_both_radii():
    state = settled_epoch((4.0, 8.0, 5.0, 4.5, 9.0), (0.5, 1.0, 2.0, 1.0, 5.0))
    state.blocks_learned[epoch_row(state, 2)], state.left[epoch_row(state, 2)] = 3, 15
    state.lost[3, epoch_row(state, 2)] = 1
    eliminate_arms(state)  # the floor is 8 - 1 = 7, which the third arm's 5 + 2 reaches
    assert state.active.tolist() == [False, True, True, False, True]
    assert active_arms(state) == 3
    assert state.left[epoch_row(state, 2)] == 15 - 3 - 2  # one of the fourth's was given up
    assert state.last_arm[0] == -1


@pytest.mark.parametrize("last", [0, 1])
def test_the_last_arm_ends_all_epochs(last):
    state = settled_epoch((4.0, 8.0) if last else (8.0, 4.0), (1.0, 1.0))
    next_decision(Params(2, 0.0, 0.0), state, generator(1))
    state.chance[0], state.equally_likely[0] = 0.5, 2
    eliminate_arms(state)
    assert (state.last_arm[0], state.last_chance) == (last, 1.0)
    assert blocks.block_is_over(state.blocks)
    end_epoch(state, 3)
    assert (state.oldest[0], state.number[0]) == (3, 2)
    assert not is_learned(state, last, 2)
    assert not is_settled(state)
    assert not needs_epoch(state)
    assert next_decision(Params(2, 0.0, 0.0), state, None) == (last, UNLEARNED)
    assert next_decision(Params(2, 0.5, 0.0), state, Draws(0.1, 0.1)) == (0, UNLEARNED)
    assert list(closing_turns(state, generator(1))) == []


def test_an_ended_epoch_leaves_nothing_in_its_row():
    state = settled_epoch((7.0, 8.0, 8.0), (1.0, 1.0, 1.0))
    row = epoch_row(state, 1)
    state.lost[:, row] = state.out_of_turn[:, row] = 1
    eliminate_arms(state)
    end_epoch(state, 3)
    fresh = begin_epochs(3)
    for name in ("rewards_in_epoch", "lost", "out_of_turn", "sums", "left", "blocks_learned"):
        assert (getattr(state, name)[..., row] == getattr(fresh, name)[..., row]).all()
    assert (state.radii == math.inf).all()
    assert (state.widths == 1.0).all()
    assert (state.oldest[0], state.number[0], state.length[0]) == (2, 2, 3)
    assert not state.fully_asked[0]


def test_a_block_whose_other_arms_are_eliminated_is_done():
    state = settled_epoch((0.0, 8.0, 8.0), (1.0, 1.0, 1.0), length=1)
    params = Params(3, 0.0, 0.0)
    made = [next_decision(params, state, Draws(draw)) for draw in (0.9, 0.0)]
    assert made == [(2, 2), (1, 2)]
    assert (state.blocks_done[0], state.fully_asked[0]) == (0, False)
    eliminate_arms(state)
    end_epoch(state, 1)
    assert (state.blocks_done[0], state.fully_asked[0]) == (1, True)
    assert needs_epoch(state)


def test_the_newest_epoch_goes_on_while_no_row_is_free():
    state, params, rng = begin_epochs(2, 2), Params(2, 0.0, 0.0), generator(1)
    open_epoch(state, 1, -1)
    for _ in range(2):
        next_decision(params, state, rng)
    assert needs_epoch(state)
    open_epoch(state, 1, -1)
    for _ in range(2):
        next_decision(params, state, rng)
    assert not needs_epoch(state)  # the first is not settled
    assert not is_settled(state)
    for arm in range(2):
        add_reward(state, arm, 1.0, 1)
    assert is_settled(state)


def test_closing_turns_complete_the_block():
    for played in (0, 1, 2):
        state, rng = begin_epochs(3), generator(played)
        open_epoch(state, 4, -1)
        made = [next_decision(Params(3, 0.0, 0.0), state, rng) for _ in range(played)]
        closing = list(closing_turns(state, rng))
        assert sorted(int(arm) for arm, _ in (*made, *closing)) == [0, 1, 2]
        assert {int(phase) for _, phase in closing} == {1}
        assert state.fully_asked[0]
        assert list(closing_turns(state, rng)) == []
        for arm in range(3):
            assert not is_settled(state)
            give_up(state, arm, 1)
        assert is_settled(state)


def test_releases_are_pooled_by_their_rewards():
    state = begin_epochs(2)
    open_epoch(state, 1, -1)
    for rewards, released, pooled in ((2, 3.0, 1.5), (6, 1.0, 0.5)):
        state.rewards_in_epoch[0, 1] = rewards
        keep_release(state, 0, 1, released, 0.25)
        assert (state.means[0], state.pooled[0]) == (released / rewards, pooled)
    assert (state.radii[0], state.widths[0]) == (0.25, 0.25)
    assert (state.rewards[0], state.draws[0], state.settled[0]) == (8, 2, 2)


def test_a_fresh_state():
    found = shapes(begin_epochs(3, 4))
    assert {found[name] for name in ("rewards_in_epoch", "lost", "out_of_turn", "sums")} == {(3, 4)}
    assert {found[name] for name in ("left", "blocks_learned", "only")} == {(4,)}
    assert {found[name] for name in list(found)[list(found).index("number") :]} == {(1,)}
    single = begin_epochs(1)
    assert (single.last_arm[0], needs_epoch(single)) == (0, False)
    assert begin_epochs(2).left.size == 2


def test_an_epoch_of_one_arm_awaits_only_its_turns():
    state, params = begin_epochs(3), Params(3, 0.0, 0.0)
    row = open_epoch(state, 2, 1)
    assert [next_decision(params, state, Draws(0.5)) for _ in range(2)] == [(1, 1)] * 2
    assert [awaited(state, arm, row) for arm in range(3)] == [0, 2, 0]
    assert (state.left[row], needs_epoch(state)) == (2, True)
    add_reward(state, 1, 1.0, 1)
    assert not is_settled(state)
    give_up(state, 1, 1)
    assert is_settled(state)
    assert (state.rewards_in_epoch[1, row], state.lost[1, row]) == (1, 1)
