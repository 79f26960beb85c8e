"""Pools: in any order of events each reward is in one release, and no invariant breaks."""

import numpy as np
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import initialize, invariant

from balaclava.frames import blocks
from balaclava.frames.pools import (
    NO_ROW,
    UNLEARNED,
    add_reward,
    arm_without_rewards,
    assign_batch,
    assign_decision,
    batch_ordinal,
    begin_pools,
    clipped_mean,
    close_batch,
    closing_decisions,
    continue_batch,
    cut_short,
    fill_block,
    find_row,
    give_up,
    in_batch,
    leave_batch,
    must_choose,
    needs_batch,
    next_arm,
    open_batch,
    rewards_in_batch,
    ring_row,
    use_mean,
)
from tests.frames.frame_machine import (
    Draws,
    FrameMachine,
    Params,
    generator,
    require_exact_chances,
    require_ranges,
    shapes,
)

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


def test_faults():
    """A damaged save must not be read past the end of an array."""
    state = begin_pools(3, ROWS)
    assert list(state.faults(0)) == []
    counts = ["number", "numbers", "empty", "waiting", "weights", "draws", "lost", "rewards"]
    counts += ["settled", "counted", "placed_batches", "rewards_in_order", "draws_in_order"]
    require_ranges(
        state,
        9,
        {name: (0, 9) for name in counts}
        | {"arms_untried": (0, 3), "arms_with_release": (0, 3), "current": (-1, 2)}
        | {"place": (-1, 9), "queued_arms": (0, 2), "queued_rewards": (-1, 9), "lead": (0, 2)}
        | {"spreads": (0.0, 1.0), "chance": (0.0, 1.0)},
    )
    for name in ("size", "sizes", "planned"):
        values = getattr(state, name).reshape(-1)
        for value, wrong in ((2**62, False), (2**62 + 1, True), (-1, True), (0, False)):
            values[0] = value
            assert (f"{name} holds a number out of its range" in state.faults(9)) is wrong


def open_batches():
    """Arm 0 has played 2 of 5 decisions of its batch, and plays 2 more without a choice."""
    state = begin_pools(3, ROWS)
    for arm in range(3):
        open_batch(state, arm, 5)
    state.first_pulls[0], state.no_draw[0], state.current[0] = False, True, 0
    assert assign_decision(state, 0) == (0, 1)
    assert assign_batch(state, 0) == (0, 1)
    assert (state.placed[0], state.rest_of_batch[0]) == (4, 2)
    return state


BEYOND = "the arm in play continues beyond its batch"
AWAITS, LOST = (
    "a batch awaits more decisions than it has",
    "a batch lost more decisions than it has",
)
TOO_MANY = "a batch has more decisions than its size, or fewer than 0"
MORE = "more rewards or assigned decisions than decisions"
WITHOUT = "a sum or a release without a batch"


@pytest.mark.parametrize(
    ("fault", "change"),
    [
        ("", {}),
        (TOO_MANY, {"placed": [6, 0, 0]}),
        (TOO_MANY, {"placed": [4, -1, 0]}),
        ("", {"rewards": [1, 1, 0]}),
        (MORE, {"rewards": [1, 1, 1]}),
        (MORE, {"placed": [4, 1, 0]}),
        ("", {"rest_of_batch": [3], "placed": [3, 0, 0]}),
        (BEYOND, {"rest_of_batch": [3], "placed": [2, 3, 0]}),
        (BEYOND, {"rest_of_batch": [-1], "placed": [1, 0, 0]}),
        ("", {"rest_of_batch": [0], "placed": [2, 0, 0], "current": [-1]}),
        (AWAITS, {"left": [0, 6, 0, 0]}),
        (AWAITS, {"left": [0, -1, 0, 0]}),
        ("", {"left": [0, 3, 0, 0], "lost": [0, 2, 0, 0]}),
        (LOST, {"left": [0, 4, 0, 0], "lost": [0, 2, 0, 0]}),
        (WITHOUT, {"sums": [1.0, 0.0, 0.0, 0.0]}),
        ("", {"sums": [0.0, 1.0, 0.0, 0.0]}),
        ("", {"settled": [1, 0, 0]}),
        (WITHOUT, {"settled": [2, 0, 0]}),
    ],
)
def test_a_damaged_batch_is_a_fault(fault, change):
    state = open_batches()
    for name, values in change.items():
        getattr(state, name).reshape(-1)[: len(values)] = values
    found = list(state.faults(2))
    assert fault in found if fault else found == []


EVEN = [(0.0, 0.0), (0.25, 0.2), (0.0, 0.2)]


@pytest.mark.parametrize("even", EVEN)
@pytest.mark.parametrize("moment", ["first pulls", "two due", "all wait", "in play"])
def test_propensities_are_exact(even, moment):
    params, state = Params(4, *even), begin_pools(4, ROWS)
    if moment == "two due":
        for draw in (0.0, 0.9):
            next_arm(Params(4, 0.0, 0.0), state, Draws(draw))
    elif moment == "all wait":
        state.waiting[:] = 1
    elif moment == "in play":
        state.first_pulls[0], state.current[0] = False, 2
    copies, shares = require_exact_chances(state, lambda copy, rng: next_arm(params, copy, rng))
    drawn = even[1] + (1 - even[1]) * even[0]
    by_rule = {"two due": 0.5, "in play": 1.0}.get(moment, 0.25)
    assert max(shares.values()) == pytest.approx(drawn / 4 + (1 - drawn) * by_rule)
    assert np.mean([copy.held_out[0] for copy in copies]) == pytest.approx(even[1])
    assert all(copy.no_draw[0] == (moment == "in play" and even == EVEN[0]) for copy in copies)


def test_an_arm_whose_rewards_are_lost_has_a_batch_for_each_of_the_leader():
    state = begin_pools(3, ROWS)
    state.weights[:], state.arms_with_release[0], state.lead[0] = [4, 0, 0], 1, 0
    state.settled[:], state.number[:] = [2, 0, 9], [3, 3, 2]
    assert arm_without_rewards(state) == 2
    state.waiting[2] = 1
    assert arm_without_rewards(state) == -1
    state.number[1] = 2
    assert arm_without_rewards(state) == 1
    state.weights[1] = 1
    assert arm_without_rewards(state) == -1


def test_an_added_arm_that_waits_has_batches_up_to_its_part():
    state = begin_pools(3, ROWS)
    state.weights[:], state.arms_with_release[0] = [4, 4, 0], 2
    state.settled[:], state.number[:] = [2, 2, 0], [3, 2, 1]
    state.planned[2] = state.size[2] = state.placed[2] = state.waiting[2] = 1
    state.size[0], state.placed[0] = 8, 5
    state.left[0, 1], state.left[2, 1] = 8, 1  # 5 of 8 are asked, and await their rewards
    assert arm_without_rewards(state) == 2
    state.planned[2] = 2  # another batch would take it to 4 of 8
    assert arm_without_rewards(state) == -1
    state.planned[2] = 1
    state.numbers[2, 2] = 2  # no row is free
    assert arm_without_rewards(state) == -1


def test_a_batch_that_is_left_takes_back_its_rest():
    state = open_batches()
    assert in_batch(state)
    assert continue_batch(state) == (0, 1)
    assert state.rest_of_batch[0] == 1
    leave_batch(state)
    assert (state.placed.tolist(), state.rest_of_batch[0]) == ([3, 0, 0], 0)
    assert state.current[0] == -1
    assert not in_batch(state)


def test_closing_decisions_settle_every_unfinished_batch():
    state = open_batches()
    open_batch(state, 1, 1)  # the second batch of the arm, fully asked
    state.held_out[0] = False
    assert assign_decision(state, 1) == (1, 2)
    state.held_out[0] = True
    closing = closing_decisions(state)
    for arm, played in ((0, 2), (2, 0)):
        assert next(closing) == (arm, 1)
        row = find_row(state, arm, 1)
        for _ in range(played):
            assert add_reward(state, arm, row, 1.0) == NO_ROW
        assert give_up(state, arm, row) == (row if played else NO_ROW)
    assert list(closing) == []
    assert state.placed.tolist() == state.size.tolist() == [2, 1, 0]
    assert state.planned.tolist() == [3, 6, 0]  # a batch without rewards is not planned
    assert state.empty.tolist() == [0, 0, 1]
    assert batch_ordinal(state, 2) == 1
    assert batch_ordinal(state, 1) == 3


def test_an_earlier_save_counts_all_its_releases_in_order():
    state = begin_pools(2, ROWS)
    open_batch(state, 0, 2)
    row = find_row(state, 0, 1)
    for reward in (1.0, 0.0):
        assign_decision(state, 0)
        add_reward(state, 0, row, reward)
    state.place[0, row] = 0  # a save of before has no places
    close_batch(state, 0, row, 1.5)
    assert (state.in_order[0], state.rewards_in_order[0], state.draws_in_order[0]) == (0.75, 2, 1)
    assert (state.pooled[0], state.rewards[0], state.draws[0]) == (0.75, 2, 1)


def test_a_used_mean_is_clipped_on_request():
    state = begin_pools(2, ROWS)
    for mean, clipped in ((1.5, 1.0), (0.25, 0.25), (-0.5, 0.0)):
        use_mean(state, 0, mean, 16)
        assert clipped_mean(state, 0) == clipped
        assert state.spreads[0] == 0.25
    assert state.arms_with_release[0] == 1


def test_phases_that_no_batch_has_find_no_row():
    state = open_batches()
    assert [find_row(state, 0, phase) for phase in (-1, 0, 1, 2, 1 + ROWS)] == [
        *[NO_ROW] * 2, 1, *[NO_ROW] * 2
    ]  # fmt: skip
    assert add_reward(state, 0, NO_ROW, 1.0) == NO_ROW
    assert give_up(state, 0, NO_ROW) == NO_ROW
    assert state.sums.sum() == state.lost.sum() == 0


def test_a_fresh_state():
    found = shapes(begin_pools(3, ROWS))
    names = list(found)
    assert [found[name] for name in names[: names.index("numbers")]] == [(3,)] * 17
    assert {found[name] for name in names[names.index("numbers") :][:6]} == {(3, ROWS)}
    assert {found[name] for name in names if name.startswith("queued")} == {(8 * 3 + ROWS,)}
    assert {found[name] for name in names[names.index("placed_batches") :]} == {(1,)}


def test_an_arm_may_be_explored_and_lead_once_its_mean_is_used():
    state = begin_pools(3, ROWS)
    for arm in range(3):
        open_batch(state, arm, 1)
        assign_decision(state, arm)
    assert not must_choose(state)
    for arm, reward in ((2, 0.5), (0, 0.75)):
        row = add_reward(state, arm, find_row(state, arm, 1), reward)
        assert not state.ready[arm]
        close_batch(state, arm, row, reward)
        use_mean(state, arm, reward, 1)
        assert state.ready[arm]
        assert state.lead[0] == arm
        assert not must_choose(state)  # the second arm is untried
    assert give_up(state, 1, find_row(state, 1, 1)) == NO_ROW
    assert (state.arms_untried[0], state.arms_with_release[0]) == (0, 2)
    assert not state.first_pulls[0]
    assert must_choose(state)
    state.current[0] = 0
    assert not must_choose(state)


def test_first_pulls_last_until_an_arm_has_a_release():
    state = begin_pools(2, ROWS)
    for arm in range(2):
        open_batch(state, arm, 1)
        assign_decision(state, arm)
        assert give_up(state, arm, find_row(state, arm, 1)) == NO_ROW
    assert state.arms_untried[0] == 0
    assert state.first_pulls[0]
    open_batch(state, 1, 1)
    assign_decision(state, 1)
    close_batch(state, 1, add_reward(state, 1, find_row(state, 1, 2), 1.0), 1.0)
    use_mean(state, 1, 1.0, 1)
    assert not state.first_pulls[0]
    assert state.lead[0] == 1


def test_the_arm_in_play_continues_if_more_than_one_decision_is_left():
    for size, rest in ((1, 0), (2, 0), (3, 1), (4, 2)):
        state = begin_pools(2, ROWS)
        open_batch(state, 0, size)
        state.no_draw[0], state.current[0] = True, 0
        assert assign_batch(state, 0) == (0, 1)
        assert (state.rest_of_batch[0], state.placed[0]) == (rest, rest + 1)
        assert state.current[0] == (-1 if size == 1 else 0)


def test_no_row_is_free_while_all_batches_are_open():
    state = begin_pools(1, ROWS)
    rows = []
    for _ in range(ROWS):
        rows.append(open_batch(state, 0, 1))
        assign_decision(state, 0)
    assert rows == [1, 2, 3, 0]
    assert open_batch(state, 0, 1) == NO_ROW
    assert needs_batch(state, 0)
    assert assign_decision(state, 0) == (0, UNLEARNED)
    assert (state.number[0], state.waiting[0]) == (ROWS, ROWS)
