"""The judgement of long runs, on runs made by hand: one query a round, whose epsilons are given."""

from __future__ import annotations

import math

import numpy as np
import pytest

import balaclava as bl
from balaclava.auditing.compiled_tape import CODE, EPSILON, MOVES, SENSITIVITY, new_tape
from balaclava.auditing.replay.composed_loss import ComposedLoss
from balaclava.auditing.replay.long_replay import (
    LongReplay,
    chosen_slots,
    exceeds,
    extrapolated,
    other_reward,
    releases_until,
    terms_of,
)
from balaclava.auditing.replay.long_runs import DIFFERENT_DECISION, LongRun, long_events
from balaclava.auditing.scenario import plain_scenario
from balaclava.auditing.tape import MovedInput
from balaclava.privacy.accounting import smallest_interval, zeta
from balaclava.privacy.guarantee import Guarantee
from balaclava.privacy.mechanisms.base import Loss, Terms

ROUNDS = 64
CLAIM = Guarantee(epsilon=1.0)


def policy_with(horizon=None):
    return bl.policy("dp-imed", arms=2, epsilon=1.0, horizon=horizon)


def run_of(policy, rounds=ROUNDS, moves=100):
    """A run whose round i makes query i, after its choice."""
    scenario = plain_scenario(policy, np.zeros((rounds, 2)))
    tape = new_tape(np.random.default_rng(0), rounds, moves, (0.0,), 0.0)
    places = np.stack([np.arange(rounds), np.arange(1, rounds + 1)], axis=1)
    return LongRun(policy, scenario, tape, np.zeros((2, rounds), np.int64), places, rounds)


def moves_of(epsilons, delta=0.0):
    return [
        MovedInput("a", Terms(0.0, 1.0, epsilon, delta), Loss(epsilon, delta), position=i)
        for i, epsilon in enumerate(epsilons)
    ]


def spread(*totals):
    """Epsilons of the rounds, whose sums by rounds 4, 8, 16, 32 and 64 are given."""
    shares = np.diff(totals, prepend=0.0)
    sizes = (4, 4, 8, 16, 32)
    return np.concatenate(
        [np.full(size, share / size) for size, share in zip(sizes, shares, strict=True)]
    )


def replay_of(policy, claim=CLAIM):
    return LongReplay(policy, claim, seed=0)


@pytest.mark.parametrize(
    ("losses", "doublings", "expected"),
    [
        ([0.0, 1.0, 2.0, 3.0], 2.0, 5.0),
        ([0.0, 1.0, 1.5, 1.75], 2.0, 1.9375),  # and 0.125, 0.0625
        ([0.0, 1.0, 9.0], 1.0, 41.0),  # at most four times as much in each doubling
        ([0.0, 1.0, 9.0], 2.0, 169.0),
        ([0.0, 2.0, 1.0], 2.0, 1.0),  # no growth
        ([0.0, 0.0, 1.0], 2.0, 1.0),  # nor a factor
    ],
)
def test_growth_is_continued_by_its_factor(losses, doublings, expected):
    assert extrapolated(losses, doublings) == pytest.approx(expected)


@pytest.mark.parametrize(("horizon", "claimed", "fault"), [
    (ROUNDS << 5, 0.91, False),  # 0.5 now and 0.1 in each of five doublings: 1.0, within 1.1 times
    (ROUNDS << 5, 0.85, True),
    (ROUNDS << 4, 0.82, False),
    (ROUNDS << 4, 0.77, True),
    (None, 1.0, True),  # 54 doublings
    (None, 5.4, False),
    (None, 3.5, True),  # steps in place of 1/n: each doubling seems to add a little less
    (ROUNDS, 0.1, False),  # all of it was played
    (ROUNDS + 1, 0.1, True),
])  # fmt: skip
def test_a_loss_that_grows_is_extrapolated_to_the_horizon(horizon, claimed, fault):
    policy = policy_with(horizon)
    found = replay_of(policy, Guarantee(epsilon=claimed)).growth_fault(
        run_of(policy), moves_of(spread(0.1, 0.2, 0.3, 0.4, 0.5))
    )
    assert bool(found) is fault
    if fault:
        assert found.startswith("its loss grows with the run: 32 mechanisms moved, which costs ")
        assert "epsilon 0.4 (declared: 0.4) after 32 rounds, 64 mechanisms moved" in found
        assert "epsilon 0.5 (declared: 0.5) after 64; claimed are " in found


def test_a_loss_whose_growth_halves_converges():
    policy, epsilons = policy_with(), spread(0.5, 0.75, 0.875, 0.9375, 0.96875)
    assert replay_of(policy).growth_fault(run_of(policy), moves_of(epsilons)) == ""
    assert replay_of(policy, Guarantee(epsilon=0.9)).growth_fault(
        run_of(policy), moves_of(epsilons)
    )


def test_declared_losses_and_deltas_grow_too():
    policy, run = policy_with(), run_of(policy_with())
    small = [each._replace(loss=Loss(0.0)) for each in moves_of(spread(0.1, 0.2, 0.3, 0.4, 0.5))]
    assert "its loss grows" in replay_of(policy).growth_fault(run, small)
    deltas = spread(0.001, 0.002, 0.003, 0.004, 0.005)
    moves = [
        MovedInput("a", Terms(0.0, 1.0, 0.0, delta), Loss(0.0, delta), position=i)
        for i, delta in enumerate(deltas)
    ]
    for claimed, fault in ((0.03, True), (0.06, False)):  # 0.005 and 54 times 0.001: 0.059
        claim = Guarantee(epsilon=1.0, delta=claimed)
        assert bool(replay_of(policy, claim).growth_fault(run, moves)) is fault


def test_few_or_late_releases_are_not_extrapolated():
    policy, moves = policy_with(), moves_of(spread(0.1, 0.2, 0.3, 0.4, 0.5))
    run, replay = run_of(policy), replay_of(policy)
    assert replay.growth_fault(run, moves[:7]) == ""
    assert replay.growth_fault(run, moves[:8])
    run.tape.entries[:4, CODE] = 1.0, 1.5, -1.0, 1.0  # an array, a plain draw and a number
    assert replay.growth_fault(run, moves[4:41]) == ""  # 37 releases of the reward after two others
    assert replay.growth_fault(run, moves[4:42])


@pytest.mark.parametrize("releases", [8, 11, 14, 37, 63])
@pytest.mark.parametrize("power", [1.1, 1.5, 2.0])
def test_a_slow_series_that_converges_to_the_claim_is_no_fault(power, releases):
    policy, total = policy_with(), float(zeta(np.array([power]))[0])
    moves = moves_of(np.arange(1.0, releases + 1) ** -power / total)
    assert replay_of(policy).growth_fault(run_of(policy), moves) == ""
    assert replay_of(policy, Guarantee(epsilon=0.8)).growth_fault(run_of(policy), moves)


@pytest.mark.parametrize("releases", [8, 14, 63])
@pytest.mark.parametrize("v", [1.02, 1.1, 1.5])
def test_advanced_composition_converges_where_the_plain_sum_does_not(v, releases):
    """The releases of dp-ucb-int, at the smallest interval that keeps its claim; then shorter."""
    policy, claim = policy_with(), Guarantee(epsilon=1.0, delta=0.01)
    enough, ordinals = smallest_interval(1.0, 0.01, v), np.arange(1.0, releases + 1)
    root = 0.2 * ordinals**-0.5  # its squares do not converge
    for epsilons, fault in (
        ((enough * ordinals) ** (-0.5 * v), False),
        ((enough // 8 * ordinals) ** (-0.5 * v), True),
        (root, True),
    ):
        found = replay_of(policy, claim).growth_fault(run_of(policy), moves_of(epsilons))
        assert found.startswith("its loss grows with the run" if fault else "")
        assert bool(found) is fault


@pytest.mark.parametrize(("rounds", "horizon", "expected"), [
    ([0, 1, 3, 7, 15, 31, 63], 2**60, 61),  # one in each doubling
    (range(64), 2**60, 2**60),  # one in each round
    (range(1, 64, 2), 2**60, 2**59),
    ([n * n - 1 for n in range(1, 33)], 2**60, 2**30),  # in square numbers
    ([63] * 16, 2**60, 2**58),  # all at once: at most as many again in as many rounds
])  # fmt: skip
def test_the_releases_to_come(rounds, horizon, expected):
    assert releases_until(horizon, np.array(rounds)) == pytest.approx(expected)


def test_a_full_list_of_moves_ends_what_was_seen():
    policy = policy_with(2 * ROUNDS)
    epsilons = np.append(spread(0.1, 0.2, 0.3, 0.4, 0.5), np.zeros(2 * ROUNDS))
    run = run_of(policy, 3 * ROUNDS, moves=ROUNDS)
    replay = replay_of(policy, Guarantee(epsilon=0.5))
    moves = moves_of(epsilons)[:ROUNDS]
    assert replay.growth_fault(run, moves) == ""  # the run went beyond the horizon
    run.tape.cursor[MOVES] = ROUNDS
    assert "its loss grows" in replay.growth_fault(run, moves)


def spent(run, *epsilons):
    """Releases whose largest epsilons until rounds 2, 4, ..., 64 are given."""
    cuts = (2, 4, 8, 16, 32, 64)
    run.tape.entries[:, CODE] = 1.0
    first = 2
    for end, epsilon in zip(cuts[1:], epsilons, strict=True):
        run.tape.entries[first:end, EPSILON] = 0.5 * epsilon
        run.tape.entries[end - 1, EPSILON] = epsilon
        first = end
    return run


@pytest.mark.parametrize(("horizon", "late", "claimed", "fault"), [
    # 0.1 more in each doubling: 0.5 by round 64, 1.0 by 64 * 32, for a reward that pays it once.
    (ROUNDS << 5, 0.5, 1.01, False),
    (ROUNDS << 5, 0.5, 0.99, True),
    (ROUNDS << 5, 0.25, 0.51, False),  # it pays half of what a release may spend
    (ROUNDS << 5, 0.25, 0.49, True),
    (ROUNDS, 0.5, 0.1, False),
    (None, 0.5, 5.89, True),
    (None, 0.5, 5.91, False),
])  # fmt: skip
def test_releases_that_spend_ever_more(horizon, late, claimed, fault):
    policy = policy_with(horizon)
    run = spent(run_of(policy), 0.1, 0.2, 0.3, 0.4, 0.5)
    replay = replay_of(policy, Guarantee(epsilon=claimed))
    found = replay.budget_fault(run, [(3, 9.0), (32, late), (40, 0.5 * late)])
    assert bool(found) is fault
    if fault:
        assert found.startswith("its releases spend ever more: epsilon 0.4 by round 32, 0.5 by")
        assert "by round 64; claimed are " in found


def test_releases_that_do_not_spend_more_are_no_fault():
    policy, replay = policy_with(), replay_of(policy_with(), Guarantee(epsilon=0.1))
    level = spent(run_of(policy), 0.1, 0.2, 0.3, 0.3, 0.5)
    assert replay.budget_fault(level, [(40, 0.5)]) == ""
    growing = spent(run_of(policy), 0.1, 0.2, 0.3, 0.4, 0.5)
    assert replay.budget_fault(growing, [(31, 0.5)]) == ""  # no late reward was seen
    assert replay.budget_fault(growing, [(32, 0.5)])
    growing.tape.entries[:, CODE] = -1.0  # plain draws spend nothing
    assert replay.budget_fault(growing, [(32, 0.5)]) == ""


def test_the_loss_of_a_decision_is_of_what_lies_between_two_choices():
    policy = bl.policy("dp-ftpl-new", arms=2, epsilon=1.0, delta=0.01, horizon=100)
    run, replay = run_of(policy, 8), replay_of(policy, policy.guarantee)
    run.places[:, 0] = np.arange(2, 18, 2)  # two queries before each choice
    run.places[:, 1] = np.arange(2, 18, 2)
    each = moves_of([0.6] * 16)
    apart = [each[1], each[2], each[5]]
    assert replay.loss_fault(run, apart) == ""
    together = replay.loss_fault(run, [each[1], each[4], each[5]])
    assert together.startswith("decision 3: 2 mechanisms moved, which costs epsilon 1.2 ")
    assert together.endswith("claimed are epsilon 1 and delta 0.01")


def test_a_loss_above_the_claim():
    policy, run = policy_with(), run_of(policy_with())
    assert replay_of(policy).loss_fault(run, moves_of([0.5, 0.5])) == ""
    assert replay_of(policy).loss_fault(run, moves_of([0.5, 0.6])).startswith("2 mechanisms moved")
    assert exceeds(ComposedLoss(epsilon=1.1), CLAIM)
    assert exceeds(ComposedLoss(declared=1.1), CLAIM)
    assert not exceeds(ComposedLoss(epsilon=1.0, declared=1.0), CLAIM)
    claimed = Guarantee(epsilon=0.123456, delta=1.2345e-5)
    assert terms_of(claimed) == "epsilon 0.1235 and delta 1.24e-05"


def test_rewards_about_the_widest_gaps_are_chosen():
    """Queries in rounds 9, 20, 60 and 64: the widest gaps end in rounds 20 and 60."""
    policy, rng = policy_with(), np.random.default_rng(0)
    run = run_of(policy)
    counts = np.isin(np.arange(1, ROUNDS + 1), (9, 20, 60, 64)).cumsum()
    run.places[:, 1] = counts
    slots = chosen_slots(run, rng)
    assert len(slots) <= 9
    assert slots == sorted(set(slots))
    assert {0, 2, 18, 19, 58, 59} <= set(slots)
    run.places[:, 1] = 0
    assert {0, 2} <= set(chosen_slots(run, rng))
    run.scenario.event_items[:59] *= -1  # cancelled
    assert min(chosen_slots(run, rng)) == 59
    run.rounds = 59
    assert chosen_slots(run, rng) == []


def test_the_other_reward_is_at_the_far_end():
    policy, rng = policy_with(), np.random.default_rng(0)
    run = run_of(policy)
    run.scenario.rewards[3] = 0.6, 0.4
    assert other_reward(run, 3, (0.0, 1.0), rng) == 0.0
    run.decisions[0, 3] = 1
    assert other_reward(run, 3, (0.0, 1.0), rng) == 1.0
    assert other_reward(run, 3, (0.0, 0.8), rng) == 0.0  # in the middle
    real = bl.policy("dpr-ucb", arms=2, epsilon=1.0, horizon=99, moment_order=1.9, moment_bound=2.0)
    run = run_of(real)
    run.scenario.rewards[:] = -0.5
    assert {other_reward(run, 0, (-2.0, 2.0), rng) for _ in range(20)} == {2.0}
    run.tape.entries[5, [CODE, SENSITIVITY]] = 1.0, 14.0
    run.tape.entries[6, [CODE, SENSITIVITY]] = -1.0, 99.0  # of a plain draw
    found = [other_reward(run, 0, (-2.0, 2.0), rng) for _ in range(60)]
    assert set(found) == {2.0, 7.0}
    assert 15 < found.count(7.0) < 45


def test_events_of_long_runs():
    offsets, items = long_events(5, False, np.random.default_rng(0))
    assert (offsets.tolist(), items.tolist()) == ([0, 1, 2, 3, 4, 5], [1, 2, 3, 4, 5])
    rounds = 9_000
    offsets, items = long_events(rounds, True, np.random.default_rng(0))
    assert offsets.size == rounds + 1
    assert (np.diff(offsets) >= 0).all()
    at = np.repeat(np.arange(rounds), np.diff(offsets))
    used = items[: offsets[-1]]
    assert np.unique(np.abs(used)).size == used.size
    waits = at - (np.abs(used) - 1)
    assert waits.min() == 0
    assert 500 < waits.max() < 1_008  # a few rewards of each chunk
    assert 8 <= (waits > 8).sum() <= 48
    for chunk in range(2):  # each has its own decisions, and loses about as many
        mine = used[(at >= 4_000 * chunk) & (at < 4_000 * (chunk + 1))]
        assert np.abs(mine).min() == 4_000 * chunk + 1
        assert np.abs(mine).max() <= 4_000 * (chunk + 1)
        assert mine.size > 3_980
        assert 0.1 < np.mean(mine < 0) < 0.5


def test_the_reward_with_which_a_fault_begins_is_found():
    """A run in which every decision depends on the 38th reward of arm 0 alone."""

    class Leaks(LongRun):
        def replay(self, rewards, neighbour=None):
            if rewards[37, 0] == self.scenario.rewards[37, 0]:
                return "", self.rounds
            return DIFFERENT_DECISION.format(51), 50

    policy = policy_with()
    plain = run_of(policy)
    run = Leaks(policy, plain.scenario, plain.tape, plain.decisions, plain.places, ROUNDS)
    replay = replay_of(policy)
    replay.bisect(run, np.ones((ROUNDS, 2)))
    assert replay.fault_round == 51
    assert replay.fault.startswith("round 38 of a long run: the decision of round 51 differs")
    assert math.isfinite(replay.fault_round)
