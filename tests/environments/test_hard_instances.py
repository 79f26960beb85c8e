"""Instances on which lower bounds are proved (Tao, Wu, Zhao, Wang 2022)."""

from __future__ import annotations

import math

import numpy as np
import pytest

import balaclava as bl
from balaclava.environments.hard_instances import hard_arms, hard_local_arms, hard_pair
from balaclava.errors import ParameterError


@pytest.mark.parametrize("v", [0.4, 1.0])
def test_hard_pair(v: float) -> None:
    gap = 0.1
    here, there = hard_pair(gap, 1 + v, others=3, lifted=2)
    assert here.means == pytest.approx([2.5 * gap] + [1.5 * gap] * 3)
    assert there.means == pytest.approx([2.5 * gap, 1.5 * gap, 3.5 * gap, 1.5 * gap])
    assert here.moments(1 + v) == pytest.approx([0.5, 0.3, 0.3, 0.3])
    assert there.moments(1 + v)[2] == pytest.approx(0.7)


@pytest.mark.parametrize("v", [0.4, 1.0])
def test_hard_arms(v: float) -> None:
    means = [0.16, 0.1, 0.12]
    here, there = hard_arms(means, 1 + v, lifted=1)
    assert here.means == pytest.approx(means)
    assert here.moments(1 + v) == pytest.approx([0.5] * 3)
    assert there.means == pytest.approx([0.16, 0.22, 0.12])
    assert there.moments(1 + v) == pytest.approx([0.5, 1.0, 0.5])
    assert there.moments(1 + v, central=True)[1] < 4
    here, there = hard_local_arms([0.3, 0.24, 0.2], 1 + v, lifted=2)
    assert there.means == pytest.approx([0.3, 0.24, 0.4])
    assert there.moments(1 + v)[2] == pytest.approx(0.5 + 0.1 / 0.2)


@pytest.mark.statistical
def test_draws_of_three_points() -> None:
    """Frequencies within 5 standard errors of a fixed seed."""
    _, there = hard_arms([0.16, 0.1], 2.0, lifted=1)
    rng = np.random.default_rng(5)
    drawn = np.array([there.draw(there.constants(), 1, 1, rng) for _ in range(50_000)])
    for value, chance in (
        (there.values[1], there.probabilities[1]),
        (there.other_values[1], there.other_probabilities[1]),
    ):
        error = math.sqrt(chance / drawn.size)
        assert np.mean(drawn == value) == pytest.approx(chance, abs=5 * error)


def test_hard_instances_refuse() -> None:
    for gap in (0.0, 0.21, -0.1):
        with pytest.raises(ParameterError, match="gap"):
            hard_pair(gap, 1.5)
    with pytest.raises(ParameterError, match="lifted"):
        hard_pair(0.1, 1.5, others=2, lifted=3)
    with pytest.raises(ParameterError, match="best arm"):
        hard_arms([0.16, 0.1], 1.5, lifted=0)
    with pytest.raises(ParameterError, match="1/12"):
        hard_arms([0.16, 0.01], 1.5, lifted=1)
    with pytest.raises(ParameterError, match="1/5 to 1/2"):
        hard_local_arms([0.3, 0.29], 1.5, lifted=1)
    with pytest.raises(ParameterError, match="too rare"):
        hard_pair(0.01, 1.001)
    with pytest.raises(ParameterError, match="more than 1"):
        bl.environment(
            "three-point",
            values=[1.0],
            probabilities=[0.7],
            other_values=[2.0],
            other_probabilities=[0.4],
        )
