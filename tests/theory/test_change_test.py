"""The change test: exact cases, and its rate of false alarms with the noise that is drawn."""

import math

import numpy as np
import pytest

from balaclava.privacy.exact_noise import to_unit_grid
from balaclava.privacy.mechanisms.laplace import laplace_release
from balaclava.privacy.randomness import SystemRandomness
from balaclava.theory.change_test import FALSE_ALARMS, change_evidence, change_threshold
from balaclava.theory.confidence_sequences import laplace_scale, pair_evidence


def test_the_thresholds_of_all_change_points_add_up_to_the_rate():
    total = sum(2.0 * math.exp(-change_threshold(k, 0.03)) for k in range(1, 100_000))
    assert total == pytest.approx(0.03, rel=1e-4)


def test_evidence_is_that_of_two_arms_in_the_direction_of_the_means():
    low, high = (0.5, 400, 3), (0.8, 300, 2)
    evidence = pair_evidence(low, high, laplace_scale(1.0), 1.0)
    assert change_evidence(low, high, 1.0) == change_evidence(high, low, 1.0) == evidence > 10.0


@pytest.mark.parametrize(
    ("before", "after"),
    [((0.5, 0, 0), (0.9, 50, 1)), ((0.5, 50, 1), (0.0, 0, 0)), ((0.5, 500, 1), (0.52, 500, 1))],
)
def test_nothing_and_small_differences_show_nothing(before, after):
    assert change_evidence(before, after, 1.0) == 0.0


@pytest.mark.parametrize("mean", [1e300, -1e300])
def test_a_mean_of_a_forged_save_is_no_error(mean):
    assert change_evidence((mean, 400, 3), (0.5, 300, 2), 1.0) > 0.0


def test_noise_counts():
    """The same means show less the more draws of noise they hold."""
    evidence = [change_evidence((0.7, 400, k), (0.4, 400, k), 0.3) for k in (1, 4, 16)]
    assert evidence[0] > evidence[1] > evidence[2]


def alarms(runs, mean, epsilon, batches, seed, rng=None):
    """The share of runs, without a change, in which a change was ever seen."""
    data, seen = np.random.default_rng(seed), 0
    for _ in range(runs):
        sums, sizes = np.zeros(batches), np.zeros(batches, np.int64)
        size, hit = 4, False
        for m in range(batches):
            rewards = [to_unit_grid(float(x)) for x in data.random(size) < mean]
            sums[m] = laplace_release(rng or data, sum(rewards), 1.0, epsilon)
            sizes[m] = size
            # The next size depends on what was released.
            size = 4 if sums[m] > size * mean else 12
            for k in range(1, m + 1):
                n, more = sizes[:k].sum(), sizes[k : m + 1].sum()
                before = sums[:k].sum() / n, int(n), k
                after = sums[k : m + 1].sum() / more, int(more), m + 1 - k
                hit |= change_evidence(before, after, epsilon) >= change_threshold(k, 0.2)
        seen += hit
    return seen / runs


@pytest.mark.statistical
@pytest.mark.parametrize(("mean", "epsilon"), [(0.5, 1.0), (0.05, 3.0)])
def test_the_rate_of_false_alarms_is_kept(mean, epsilon):
    """At a rate of .2, 40 runs: above .425 with probability below 10^-3 if the rate were .2."""
    assert alarms(40, mean, epsilon, 6, 1) <= 0.425


@pytest.mark.statistical
def test_the_rate_is_kept_with_the_discrete_noise_of_an_agent():
    assert alarms(10, 0.3, 2.0, 5, 2, SystemRandomness()) <= 0.6


def test_the_rate_is_that_of_the_documents():
    assert FALSE_ALARMS == 0.01
