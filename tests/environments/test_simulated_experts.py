"""Simulated experts and advice from a log."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import balaclava as bl
from balaclava.environments.simulated_experts import (
    advice_from_log,
    bad,
    even,
    good,
    naming,
    panel,
    treacherous,
)
from balaclava.errors import ParameterError

LOSSES = np.array([[0.0, 1.0, 0.5], [1.0, 0.5, 0.0], [0.2, 0.9, 0.3]])


def test_experts_who_know_the_losses() -> None:
    advice = panel(good(LOSSES), bad(LOSSES), treacherous(LOSSES, 1), even(LOSSES), good(LOSSES, 0))
    world = bl.environment("advice", losses=LOSSES, advice=advice)
    expected = [0.2, 2.9, 0.0 + 1.0 + 0.9, (1.5 + 1.5 + 1.4) / 3, 0.75 + 0.75 + 0.6]
    assert world.expert_losses(np.array([3]))[0] == pytest.approx(expected)


def test_advice_from_a_log() -> None:
    log = [{"age": 25}, {"age": 70}]
    rules = [lambda row: 0, lambda row: int(row["age"] > 60), lambda row: [0.2, 0.8]]
    advice = advice_from_log(log, rules, arms=2)
    assert advice.tolist() == [
        [[1, 0], [1, 0], [0.2, 0.8]],
        [[1, 0], [0, 1], [0.2, 0.8]],
    ]


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda: advice_from_log([], [lambda _: 0], 2), "contexts or rules are empty"),
        (lambda: advice_from_log([1], [], 2), "contexts or rules are empty"),
        (lambda: advice_from_log([1], [lambda _: 2], 2), "names arm 2"),
        (lambda: advice_from_log([1], [lambda _: "left"], 2), "neither an arm"),
        (lambda: advice_from_log([1], [lambda _: [0.5, 0.2]], 2), "does not sum to 1"),
        (lambda: naming([0.5], of=2), "whole numbers"),
        (lambda: naming([2], of=2), "from 0 to 1"),
        (lambda: naming([0], of=2, trust=1.5), "trust = 1.5"),
        (lambda: good(np.array([[0.5, 2.0]])), "losses"),
        (lambda: panel(good(LOSSES), even(LOSSES[:2])), "different shapes"),
    ],
)
def test_faults_of_experts_are_named(call: Any, said: str) -> None:
    with pytest.raises(ParameterError, match=said):
        call()
