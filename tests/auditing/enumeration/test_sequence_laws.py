"""The probability of a sequence is that of all ways to reach it."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

import balaclava as bl
from balaclava.auditing.enumeration.sequence_laws import Enumeration
from balaclava.auditing.scenario import plain_scenario
from balaclava.privacy.mechanisms.randomized_response import report_probability


def enumerated(policy, rounds, free):
    scenario = plain_scenario(policy, np.zeros((rounds, policy.arms)))
    return Enumeration(policy, scenario, free, (0.0, 1.0), 5_000, few_cells=False)


class Coins:
    """Draws that make randomized response answer as scripted."""

    def __init__(self, reports):
        self.reports = list(reports)

    def random(self):
        return 0.0 if self.reports.pop(0) else 1.0 - 2.0**-53


@pytest.mark.oracle
def test_the_law_of_a_local_policy_is_the_sum_over_all_reports():
    rounds = 4
    policy = bl.policy("ldp-ucb-bernoulli", arms=2, epsilon=1.0)
    enumeration = enumerated(policy, rounds, (0, 1, 2, 3))
    *_, laws = enumeration.rounds()
    params, (begin, choose, learn, _) = policy.constants(), policy.kernels
    expected = {}
    for number in range(2**rounds):
        rewards = [float(number >> slot & 1) for slot in range(rounds)]
        for reports in itertools.product((0, 1), repeat=rounds):
            rng, state, seen, chance = Coins(reports), begin(params), [], 1.0
            for t, (reward, report) in enumerate(zip(rewards, reports, strict=True), start=1):
                arm, phase = choose(params, state, t, None, rng)
                learn(params, state, t, arm, reward, phase, rng)
                truth = report_probability(reward, 1.0)
                chance *= truth if report else 1.0 - truth
                seen += [int(arm), report]
            expected.setdefault(tuple(seen), np.zeros(2**rounds))[number] += chance
    found = {}
    for history, chances in laws.items():
        seen = []
        for each in enumeration.sequences.sequence(history):
            if isinstance(each, tuple):
                seen.append(int(each[0]))
        found[tuple(seen)] = found.get(tuple(seen), 0.0) + chances
    assert found.keys() == expected.keys()
    for seen, chances in expected.items():
        assert found[seen] == pytest.approx(chances, rel=1e-12)


@pytest.mark.parametrize("name", ["dp-imed", "dp-exp3", "lazy-dp-ts", "random"])
def test_probabilities_add_up_to_one(name):
    parameters = {"epsilon": 1.0} if name != "random" else {}
    parameters |= {"outstanding": 32} if name == "dp-exp3" else {}
    policy = bl.policy(name, arms=2, horizon=100, **parameters)
    for laws in itertools.islice(enumerated(policy, 3, (0, 2)).rounds(), 3):
        assert sum(laws.values()) == pytest.approx(np.ones(4), rel=1e-12)


def test_random_play_has_equal_probabilities_that_no_reward_moves():
    *_, laws = enumerated(bl.policy("random", arms=2), 3, (0, 1)).rounds()
    assert len(laws) == 8
    assert np.array(list(laws.values())) == pytest.approx(np.full((8, 4), 1 / 8))
