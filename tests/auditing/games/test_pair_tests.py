"""Games on one pair."""

from __future__ import annotations

import math

import numpy as np
import pytest

import balaclava as bl
from balaclava.auditing.games.compiled_games import GameCounts
from balaclava.auditing.games.pair_tests import (
    PairGames,
    PairTest,
    backgrounds,
    choose_event,
    event_counts,
    expected_pair_bound,
)
from balaclava.auditing.scenario import Neighbour, plain_scenario
from balaclava.auditing.two_sample_bounds import VIOLATION_ERROR
from tests.oracles.violators import PROVED_CONTROLS, VIOLATORS


def pair_games(policy):
    """All rewards are 1, so that decisions hardly depend on the first."""
    scenario = plain_scenario(policy, np.ones((24, 2)))
    reference = np.zeros((24, 2), np.int64)
    return PairGames(policy, scenario, reference, Neighbour(0, 0.0), policy.guarantee, seed=3)


@pytest.mark.statistical
def test_constants_in_place_of_the_other_rewards_show_a_leak():
    """A claim that holds is refuted with probability 10^-4; this one is broken twofold."""
    games = pair_games(VIOLATORS["half-noise"].policy)
    assert games.search() > 0.7  # few games: a cautious bound
    assert not np.array_equal(games.rewards, games.scenario.rewards)
    assert (games.rewards[0] == 1.0).all()  # the changed reward stays
    assert games.test(VIOLATION_ERROR).refuted


@pytest.mark.statistical
def test_a_claim_that_holds_is_not_refuted_even_where_it_is_tight():
    games = pair_games(PROVED_CONTROLS["honest"].policy)
    games.search()
    result = games.test(VIOLATION_ERROR)
    assert not result.refuted
    assert result.epsilon_lower > 0.4


COUNTS = GameCounts(pulls=np.array([[[[1, 2, 7]]]]), same=np.array([8, 9]), prefix=np.array([8, 6]))


def test_events_of_whole_runs():
    happened, trials = event_counts(COUNTS, 10, by_decision=False)
    equal, other = [8, 9, 8, 6], [2, 1, 2, 4]
    at_most, at_least = [1, 3, 10], [10, 9, 7]
    assert happened.tolist() == [*equal, *other, *at_most, *at_least]
    assert trials.tolist() == [10] * 14


def test_events_of_single_decisions_are_given_the_earlier_ones():
    happened, trials = event_counts(COUNTS, 10, by_decision=True)
    assert happened.tolist() == [8, 6, 2, 2]
    assert trials.tolist() == [10, 8, 10, 8]


def test_the_expected_bound_of_a_pair():
    a, b = 100, 50
    p, q = 0.6, 12 / 50
    deviation = math.sqrt((1 - p) * p / (a * (p - 0.1) ** 2) + (1 - q) / (q * b))
    expected = math.log((p - 0.1) / q) - 4.0 * deviation
    found = expected_pair_bound(
        np.array([60, 10, 9]), np.array([a, a, a]), np.array([10, 0, 0]), np.array([b, b, b]), 0.1
    )
    assert found[0] == pytest.approx(expected)
    assert found[1] == found[2] == -math.inf  # not above delta, and too rare
    rare = expected_pair_bound(
        np.array([9, 10]), np.array([10, 10]), np.array([0, 0]), np.array([0, 0]), 0.0
    )
    assert rare[0] == -math.inf
    assert math.isfinite(rare[1])


def test_the_best_event_may_be_likelier_on_either_stream():
    trials = np.full(2, 1_000)
    likely, unlikely = np.array([500, 900]), np.array([500, 100])
    assert choose_event([(likely, trials), (unlikely, trials)], 0.0)[1:] == (0, 1)
    bound, *best = choose_event([(unlikely, trials), (likely, trials)], 0.0)
    assert best == [1, 1]
    assert bound == expected_pair_bound(likely, trials, unlikely, trials, 0.0)[1]
    few = np.array([5, 5])
    assert choose_event([(few, trials), (few, trials)], 0.0)[0] < 0.0
    none = np.zeros(0)
    assert choose_event([(none, none), (none, none)], 0.0)[0] < 0.0


def test_the_result_in_words():
    assert str(PairTest(True, 1.2345, 4_000)) == (
        "4,000 games on this pair refute the claim: epsilon is at least 1.234"
    )
    assert "refute nothing" in str(PairTest(False, 0.0, 10))


def test_constant_rewards_with_gaps_around_the_middle():
    policy = bl.policy("kl-ucb", arms=3, reward_range=(-2.0, 6.0))
    scenario = plain_scenario(policy, np.full((4, 3), 5.0))
    own, *constants = backgrounds(policy, scenario, Neighbour(1, 0.0))
    assert own is scenario.rewards
    gaps = [-1.0, -0.5, -0.25, -0.1, 0.0, 0.1, 0.25, 0.5, 1.0]
    assert np.array([rows[0] for rows in constants]) == pytest.approx(
        np.array([[2.0 + 4.0 * gap, 2.0 - 4.0 * gap, -2.0] for gap in gaps])
    )
    assert all((rows[1] == 5.0).all() for rows in constants)  # where the reward changes
    assert all((rows[2:] == rows[0]).all() for rows in constants)
