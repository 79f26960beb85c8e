"""Bounds and bets from games: tight where they can be, and without false alarms."""

from __future__ import annotations

import pytest

from balaclava.auditing.games.attacks import GameSetting, choose_attack, find_stream_pair
from balaclava.auditing.games.statistical_audit import (
    audit_by_betting,
    audit_statistically,
    bet,
    measure,
    split_games,
)
from tests.oracles.violators import PROVED_CONTROLS


def test_a_bound_is_measured_again_only_with_more_games():
    setting = GameSetting(PROVED_CONTROLS["one-release"].policy, 0.0, 16, 2)
    once, more = (
        audit_statistically(setting, 1.0, trials=4_000, confidence=0.95, times_more=times)
        for times in (1, 3)
    )
    pair = find_stream_pair(setting, split_games(1_000)[1])
    assert once == measure(setting, pair, 1.0, 1_000, 0.95)
    assert once.epsilon_lower > 0.0
    assert (once.games, more.games) == (4_000, 12_000)


@pytest.mark.slow
@pytest.mark.statistical
def test_the_bound_of_a_tight_claim_is_tight():
    """One release that decisions reveal: the bound must be within 10 % of the claim."""
    policy = PROVED_CONTROLS["one-release"].policy
    found = audit_statistically(
        GameSetting(policy, 0.0, 16, 2), 1.0, trials=60_000, confidence=0.95
    )
    assert 0.9 < found.epsilon_lower <= 1.0
    assert found.verdict == "consistent"


@pytest.mark.statistical
@pytest.mark.parametrize(
    ("bets", "allowed"), [(10, 1), pytest.param(1_000, 5, marks=pytest.mark.slow)]
)
def test_no_false_alarm_in_many_bets(bets, allowed):
    """Each fails with probability at most 1e-3.

    More than 1 in 10 then has probability 4.5e-5, more than 5 in 1,000 6e-4.
    """
    policy = PROVED_CONTROLS["one-release"].policy
    setting = GameSetting(policy, delta=0.0, rounds=16, seed=3)
    attack = choose_attack(setting, find_stream_pair(setting, 1_000), 16_000, 1_000)
    alarms = sum(
        bet(setting._replace(seed=seed), attack, 1.0, pairs=1_000).verdict == "violated"
        for seed in range(bets)
    )
    assert alarms <= allowed


@pytest.mark.slow
def test_no_false_alarm_in_two_hundred_quick_audits():
    """Whole audits, search included, of correct policies: more than 3 has probability 6e-5."""
    alarms = 0
    for seed in range(100):
        for name in ("honest", "one-release"):
            policy = PROVED_CONTROLS[name].policy
            found = audit_by_betting(GameSetting(policy, 0.0, 32, seed), 1.0, pairs=2_000)
            alarms += found.verdict == "violated"
    assert alarms <= 3
