"""FTPL: rates and resampling."""

from __future__ import annotations

import math

import pytest

import balaclava as bl
from balaclava.authoring import compiled
from balaclava.policies.classic import ftpl
from balaclava.privacy.randomness import seeded

GOLDEN = {"arms": 5, "horizon": 10**6, "epsilon": 0.1}


def test_rates_of_ftpl() -> None:
    base = bl.policy("dp-ftpl", **GOLDEN).base_policy()
    assert base.constants().resamples == 708
    # Golden value with M = sqrt(K n) in place of its ceiling.
    assert base.rate * 708 / math.sqrt(500_000) == pytest.approx(3.0056586828348876e-05, rel=1e-12)
    # More arms than n^0.26: the noise of all arms counts.
    many = bl.policy("ftpl", arms=100, horizon=10**5, loss_noise=1.0)
    draws = math.ceil(math.sqrt(10**7))
    assert many.rate == pytest.approx(1 / (draws * (1 + math.sqrt(10) * math.log(10**7))))


@pytest.mark.statistical
def test_resampling_counts_to_the_first_success_or_to_all() -> None:
    """E min(first success, M) = (1 - (1-p)^M)/p; 0 on failure would give 13.6 at p = 1/50."""
    p, most = 0.02, 50

    def make(choose, begin):
        def mean(params, lead, games, rng):
            counts, pulls = 0.0, 0
            state = begin(params)
            state.losses[0] = lead
            for t in range(games):
                arm, phase = choose(params, state, t + 1, None, rng)
                if arm == 0:
                    counts += state.pending.notes[phase % state.pending.numbers.size, 0]
                    pulls += 1
            return counts / pulls, pulls / games

        return mean

    # Arm 0 leads if Z_0 + lead < Z_1: P(Z_1 - Z_0 > x) = exp(-x) (2 + x) / 4 for unit scales.
    lead = 0.0
    while math.exp(-lead) * (2 + lead) / 4 > p:
        lead += 1e-4
    policy = bl.policy("ftpl", arms=2, horizon=100, eta=1.0, resamples=most)
    mean = compiled(make, ftpl.choose, ftpl.begin)
    found, share = mean(policy.constants(), lead, 1_000_000, seeded(1))
    # 20,000 counts of standard deviation 19: five standard errors are 0.7 (chance below 1e-6).
    assert share == pytest.approx(p, abs=0.001)
    assert found == pytest.approx(31.791515995644158, abs=0.7)
