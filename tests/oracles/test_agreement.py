"""Every policy for bounded rewards plays as a second implementation of its paper's rule does."""

from __future__ import annotations

import numpy as np
import pytest

import balaclava as bl
from tests.oracles.agreement import (
    CASES,
    FAR_APART,
    HALF_WAY,
    LOOPS,
    PAPER,
    PUBLISHED_BATCHES,
    Case,
    compare,
)

RUNS = 60
# The horizon is the shortest at which the policy is past its start and its rule decides.
SMALL = [
    (Case("dp-ftpl-gauss", 1, 0.01), 2_000),
    (Case("dp-ftpl-beta", 0, 0.2), 2_000),
    (Case("dp-ftpl-new", 0.37, 1e-3), 2_000),
    (Case("gdp-elim-new", 0.01, 1e-3, means=HALF_WAY), 20_000),
    (Case("dp-se", 0.37, means=FAR_APART), 20_000),
    (Case("dp-ucb", 7.3), 2_000),
    (Case("dp-ucb-bound", 7.3), 2_000),
    (Case("dp-ucb-int", 7.3, 0.2), 2_000),
    (Case("private-ucb", 7.3), 2_000),
    (Case("adap-ucb", 1), 2_000),
    (Case("adap-klucb", 1), 2_000),
    (Case("lazy-dp-ts", 1), 2_000),
    (Case("lazy-dp-ucb", 1), 2_000),
    (Case("dp-klucb", 1), 2_000),
    (Case("dp-imed", 1, None, PUBLISHED_BATCHES | PAPER), 2_000),
    (Case("ldp-ucb-laplace", 7.3), 2_000),
    (Case("ldp-ucb-bernoulli", 1), 2_000),
]


def small(case: Case) -> str:
    return f"{case.policy} {case.setting}"


def agree(case: Case, horizon: int, runs: int) -> None:
    found = compare(case.ours(horizon, runs), case.independent(horizon, runs))
    # Fixed seeds. If both play alike, each of the three is beyond its limit in less than one case
    # in 10,000 (|z|: 6e-5; the p-values: 1e-5 each).
    assert abs(found.z) <= 4, found
    assert min(found.kolmogorov_smirnov, found.mann_whitney) >= 1e-5, found


def test_every_second_implementation_is_compared() -> None:
    """A policy may have its second implementation in its own test instead."""
    bounded = {e.name for e in bl.list_policies() if ".bounded." in e[1].__module__}
    assert set(LOOPS) <= bounded
    assert set(LOOPS) == {case.policy for case, _ in SMALL} == {case.policy for case in CASES}


QUICK = ("dp-imed", "dp-se", "dp-klucb", "dp-ftpl-gauss", "ldp-ucb-bernoulli")


@pytest.mark.parametrize(
    ("case", "horizon"),
    [
        pytest.param(
            *pair, id=pair[0].policy, marks=[] if pair[0].policy in QUICK else [pytest.mark.slow]
        )
        for pair in SMALL
    ],
)
def test_a_policy_agrees_with_its_second_implementation(case: Case, horizon: int) -> None:
    agree(case, horizon, RUNS)


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES, ids=small)
def test_a_policy_agrees_at_every_setting(case: Case) -> None:
    agree(case, 20_000, 40)


def test_the_comparison_detects_a_wrong_policy() -> None:
    right = Case("dp-ftpl-new", 1, 0.01)
    wrong = Case("dp-ftpl-new", 0.37, 0.01)  # as if the noise were 2.7 times too large
    assert compare(right.ours(2_000, RUNS), right.independent(2_000, RUNS)).agrees
    assert not compare(right.ours(2_000, RUNS), wrong.independent(2_000, RUNS)).agrees


def test_the_comparison_of_equal_and_of_constant_samples() -> None:
    same = np.full(10, 3.0)
    assert compare(same, same + 1e-12).z == 0
    assert compare(same, same + 1e-12).agrees
    assert not compare(same, same + 1).agrees
    assert compare(same, same + 1).z == -np.inf
    assert compare(np.append(same, 100.0), same).heavy
