"""The bound and the conditions of Lemma 5.1."""

from __future__ import annotations

import math

import numpy as np
import pytest

import balaclava as bl
from balaclava.environments.hard_losses import fast_commit
from balaclava.papers.asi2025.lemma51_conditions import lemma_line, strongest_condition
from balaclava.simulation.results import Run


def test_the_bound_of_the_lemma() -> None:
    # P = e^(-1/2) / 2 = 0.3033 for epsilon p = 1/2; (p / gamma - p) / 2 = 49.5; tau / 2 = 10.
    late = 0.5 * math.exp(-0.5) * 49.5 - 10
    assert late > 5 > 0.01 * 100 / 4
    found = bl.bounds.early_commitment(horizon=120, epsilon=0.5, share=0.01, changed=1.0, switch=20)
    assert found == pytest.approx(late - 0.0)
    assert (
        bl.bounds.early_commitment(horizon=10**6, epsilon=0.5, share=0.01, changed=1.0, switch=20)
        == 2500.0
    )


def test_the_line_is_of_order_the_root_of_rounds() -> None:
    at = {(T, e): lemma_line(T, e) for T in (10**6, 10**8) for e in (0.1, 0.001)}
    assert at[10**8, 0.1] / at[10**6, 0.1] == pytest.approx(10, rel=0.05)
    assert at[10**6, 0.001] / at[10**6, 0.1] == pytest.approx(10, rel=0.05)


def base_results(paths: list[list[float]], rounds: list[int]) -> bl.Results:
    """Regret on losses that do not turn: half the pulls of the second arm."""
    world = fast_commit(rounds[-1], 0.1, switched=False)
    policies = {"dp-htinf": bl.policy("dp-htinf", arms=2, horizon=rounds[-1], epsilon=0.1)}
    results = bl.Results.empty(
        policies, world, horizon=rounds[-1], seed=0, checkpoints=np.array(rounds)
    )
    for i, path in enumerate(paths):
        results.add(Run("dp-htinf", i, np.array(path), np.zeros(2, np.int64)))
    return results


def test_of_whom_the_lemma_speaks() -> None:
    # Settled at once: 10 pulls up to round 20, then 90 in the other 9,980.
    early = base_results([[5.0, 50.0]] * 3, [20, 10_000])
    found = strongest_condition(early, "dp-htinf", 0.1, [20])
    assert found is not None
    assert found.switch == 20
    assert 2 * found.share * 20 <= found.changed <= found.share * (10_000 - 20)
    assert found.bound == pytest.approx(
        bl.bounds.early_commitment(
            horizon=10_000, epsilon=0.1, share=found.share, changed=found.changed, switch=20
        )
    )
    # Never settles: all pulls of the second arm come right after the turn.
    late = base_results([[0.0, 50.0, 50.0]] * 3, [20, 200, 10_000])
    assert strongest_condition(late, "dp-htinf", 0.1, [20]) is None
