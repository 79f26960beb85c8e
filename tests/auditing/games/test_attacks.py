"""Attacks: pairs of streams, and the ranking of events."""

from __future__ import annotations

import math

import numpy as np
import pytest

import balaclava as bl
from balaclava.auditing.games import attacks
from balaclava.auditing.games.attacks import (
    Attack,
    BestEvent,
    GameSetting,
    StreamPair,
    best_event,
    choose_attack,
    constant_pair,
    count_event,
    expected_bound,
    find_stream_pair,
    largest_counted_reward,
)
from balaclava.auditing.games.compiled_games import OutputEvent
from balaclava.auditing.games.statistical_audit import (
    BettingAudit,
    StatisticalAudit,
    bet,
    bounds_verdict,
    measure,
    split_games,
)
from balaclava.auditing.two_sample_bounds import epsilon_lower, log_wealth

BOUNDED = bl.policy("ucb1", arms=3)


def test_a_constant_pair_differs_in_one_round():
    pair = constant_pair(bl.policy("kl-ucb", arms=3, reward_range=(-2.0, 6.0)), 0.5, 2, 4)
    assert pair.place == 2
    one, other = pair.streams
    row = [-2.0 + 8.0 * 0.75, -2.0 + 8.0 * 0.25, -2.0]
    for i in (0, 2, 3):
        assert one[i].tolist() == other[i].tolist() == row
    assert (one[1].tolist(), other[1].tolist()) == ([-2.0] * 3, [6.0] * 3)
    losses = constant_pair(bl.policy("exp3", arms=2), -1.0, 1, 2).streams
    assert losses[0].tolist() == [[0.0, 0.0], [0.0, 1.0]]


def test_the_largest_reward_that_passes_truncation():
    policy = bl.policy(
        "dpr-batch-ucb", arms=2, epsilon=1.0, horizon=100, moment_order=2, moment_bound=1.0,
        first_batch=1,
    )  # fmt: skip
    size = largest_counted_reward(policy, 8)
    assert size == 2.0 ** math.log2(size)
    low, high = constant_pair(policy, 0.0, 1, 8).streams[:, 0, 0]
    assert (low, high) == (-size, size)
    assert size < 2.0**20  # larger ones are truncated to 0
    assert largest_counted_reward(bl.policy("ucb1", arms=2), 8) == 1.0  # nothing is released


def test_the_expected_bound_has_a_margin_for_luck():
    margin = 2.0 / math.sqrt(400) + 2.0 / math.sqrt(100)
    p, q = 0.6, 0.21
    deviation = math.sqrt((1 - p) * p / (p - 0.1) ** 2 + (1 - q) / q)
    found = expected_bound(np.array([60, 10, 100]), np.array([20, 0, 100]), 100, 0.1, 400)
    assert found[0] == pytest.approx(math.log((p - 0.1) / q) - margin * deviation)
    assert found[1] == 0.0  # as likely as delta allows
    assert found[2] == pytest.approx(math.log(0.9))


def histogram(*games):
    """Counts [branch, arm, probe, n] of one arm at one probe of 3 rounds."""
    counts = np.zeros((2, 1, 1, 4), np.int64)
    counts[-1, 0, 0] = games
    return counts


@pytest.mark.parametrize("side", [0, 1])
def test_the_best_event_is_the_one_that_distinguishes_most(side):
    one, other = histogram(10, 0, 0, 90), histogram(90, 0, 0, 10)
    pair = [one, other] if side == 0 else [other, one]
    found = best_event(pair, 100, np.array([3]), 0.0, 10_000)
    assert found.event in (OutputEvent(1, 0, 3, 1, True), OutputEvent(1, 0, 3, 0, False))
    assert found.side == (side if found.event.at_least else 1 - side)
    assert found.bound == pytest.approx(
        float(expected_bound(np.array(90), np.array(10), 100, 0.0, 10_000))
    )
    skewed = [histogram(50, 30, 15, 5), histogram(50, 49, 1, 0)]
    found = best_event(skewed if side == 0 else skewed[::-1], 100, np.array([3]), 0.0, 10**6)
    assert found.event == OutputEvent(1, 0, 3, 2, True)
    assert found.side == side


def test_games_that_all_fail_have_no_event():
    found = best_event([histogram(0, 0, 0, 0)] * 2, 100, np.array([2, 3]), 0.0, 10_000)
    assert found == BestEvent(-1.0, OutputEvent(1, 0, 3, 0, True), 0)


class Games:
    """In place of real games: arm 0 has 2 of 3 pulls with a given probability on each stream."""

    def __init__(self, *chances):
        self.chances, self.asked = chances, []

    def __call__(self, policy, stream, games, place, probes, seed, *path):
        self.asked.append((games, place, probes.tolist(), seed, path))
        chance = self.chances[int(stream[0, 0])]
        counts = np.zeros((4, 3, probes.size, int(probes[-1]) + 1), np.int64)
        often = round(chance * games)
        counts[-1, 0, -1, min(2, int(probes[-1]))] += often
        counts[-1, 0, -1, 0] += games - often
        return counts


def streams(first=0.0):
    return np.stack([np.full((3, 3), first), np.full((3, 3), 1.0 - first)])


def test_an_attack_is_chosen_and_counted_in_separate_games():
    for first in (0.0, 1.0):  # the likelier stream comes first in the attack
        play = Games(0.9, 0.3)
        setting = GameSetting(BOUNDED, 0.0, 3, 5, play)
        attack = choose_attack(setting, StreamPair(streams(first), 2), 1_000, 4_000)
        assert attack.streams[0, 0, 0] == 0.0 or not attack.event.at_least
        counts = count_event(setting, attack, 200, 2, 7)
        assert counts == ([180, 60] if attack.event.at_least else [140, 20])
        assert [each[4] for each in play.asked] == [(1, 0), (1, 1), (2, 7, 0), (2, 7, 1)]
        assert [each[:2] for each in play.asked] == [(1_000, 2)] * 2 + [(200, 2)] * 2
        assert {each[3] for each in play.asked} == {5}


def test_the_bound_is_that_of_the_measured_games():
    setting = GameSetting(BOUNDED, 0.1, 3, 5, Games(0.9, 0.3))
    found = measure(setting, StreamPair(streams(), 2), 0.5, 1_000, 0.95)
    # No pull of arm 0 has probability 0.7 on the second stream, and 0.1 on the first.
    assert found.epsilon_lower == pytest.approx(float(epsilon_lower(700, 100, 1_000, 0.1, 0.05)))
    assert (found.games, found.place, found.verdict) == (4_000, 2, "violated")
    certain = float(epsilon_lower(700, 100, 1_000, 0.1, 1e-4))
    for claim, verdict in ((0.999 * certain, "violated"), (1.001 * certain, "consistent")):
        assert measure(setting, StreamPair(streams(), 2), claim, 1_000, 0.95).verdict == verdict


def test_games_are_split_between_choice_and_measurement():
    assert split_games(1_000) == (1_000, 1_000)
    assert split_games(30_000_000) == (25_000_000, 35_000_000)
    assert [bounds_verdict(low, 1.0) for low in (0.9, 1.0, 1.1)] == [
        *["consistent"] * 2, "violated"
    ]  # fmt: skip


@pytest.mark.parametrize("epsilon", [0.5, 0.9, 2.0])  # at 0.9 a first block is just enough
def test_a_bettor_stops_once_the_claim_is_refuted(epsilon):
    setting = GameSetting(BOUNDED, 0.0, 3, 5, Games(0.9, 0.3))
    attack = Attack(streams(), OutputEvent(3, 0, 3, 2, True), 2)
    found = bet(setting, attack, epsilon, pairs=2_500)
    pairing = np.random.default_rng([5, 3])
    counts, pairs, wealth = np.zeros((2, 2)), 0, 0.0
    for size in (1_000, 1_000, 500):
        left, right = round(0.9 * size), round(0.3 * size)
        both = int(pairing.hypergeometric(left, size - left, right))
        counts += [[size - left - right + both, right - both], [left - both, both]]
        pairs, wealth = pairs + size, log_wealth(counts, epsilon, 0.0)
        if wealth >= math.log(1_000):
            break
    assert (found.pairs, found.log_wealth) == (pairs, wealth)
    assert found.verdict == ("violated" if epsilon < 1.0 else "consistent")
    assert found.pairs == (1_000 if epsilon < 1.0 else 2_500)


def test_a_search_keeps_a_pair_that_differs(monkeypatch):
    """Streams whose first reward is not the lowest have more pulls of arm 0."""
    monkeypatch.setattr(attacks, "undecided_gaps", lambda *_: [-1.0, 0.0, 0.5, 1.0])

    class Search(Games):
        def __call__(self, policy, stream, games, place, probes, seed, *path):
            chance = 0.9 if stream[place - 1, 0] > 0.5 and 0.3 < stream[-1, 0] < 0.7 else 0.3
            counts = np.zeros((4, 3, probes.size, int(probes[-1]) + 1), np.int64)
            counts[-1, 0, -1, -1] += round(chance * games)
            counts[-1, 0, -1, 0] += games - round(chance * games)
            self.asked.append((games, place))
            return counts

    play = Search()
    pair = find_stream_pair(GameSetting(BOUNDED, 0.0, 16, 5, play), 100_000, 1_000)
    assert 0.3 < pair.streams[0, -1, 0] < 0.7
    assert {place for _, place in play.asked} == {1, 2, 4, 8}
    games = [each for each, _ in play.asked]
    assert games == sorted(games)
    assert set(games) == {games[0] * 4**stage for stage in range(len(set(games)))}
    few = Search()
    find_stream_pair(GameSetting(BOUNDED, 0.0, 16, 5, few), 99_999, 1_000)
    assert {place for _, place in few.asked} == {1, 2}


def test_results_in_words():
    audit = StatisticalAudit("consistent", 0.12345, 0.95, 4_000, "an event", 2)
    assert str(audit) == (
        "consistent: epsilon is at least 0.123 with confidence 0.95 (4,000 games; round 2 "
        "differs; event: an event)"
    )
    assert "turned 1 into 7.39 in 1,000 pairs" in str(BettingAudit("", 2.0, 1e-3, 1_000, "", 1))
    assert "(refuted at 1,000; event: e)" in str(BettingAudit("", 2.0, 1e-3, 1_000, "e", 1))
    assert "turned 1 into e^25 in" in str(BettingAudit("", 25.0, 1e-3, 1_000, "", 1))
