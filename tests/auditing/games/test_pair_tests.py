"""Games on one pair."""

from __future__ import annotations

import numpy as np
import pytest

from balaclava.auditing.games.pair_tests import PairGames
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
    assert games.search() > 1.0
    assert not np.array_equal(games.rewards, games.scenario.rewards)
    assert (games.rewards[0] == 1.0).all()  # the changed reward stays
    assert games.test(VIOLATION_ERROR).refuted


@pytest.mark.statistical
def test_a_claim_that_holds_is_not_refuted_even_where_it_is_tight():
    games = pair_games(PROVED_CONTROLS["honest"].policy)
    games.search()
    result = games.test(VIOLATION_ERROR)
    assert not result.refuted
    assert result.epsilon_lower > 0.5
