"""Pulls of an arm until elimination removes it."""

from __future__ import annotations

import numpy as np
import pytest

from balaclava.theory.elimination_regret import elimination_regret, pulls_until_removed


def test_pulls_until_removed():
    phases = [(2, 9.0), (4, 0.2), (8, 0.1)]
    assert pulls_until_removed(1.0, phases, 100) == 6
    assert pulls_until_removed(0.8, phases, 100) == 14  # 4 beta is not below the gap yet
    assert pulls_until_removed(0.1, phases, 100) == 100
    assert pulls_until_removed(1.0, phases, 3) == 3
    gaps = np.array([0.0, 1.0, 0.1])
    assert elimination_regret(gaps, phases, 100, 0.0) == pytest.approx(6 * 1.0 + 94 * 0.1)
    assert elimination_regret(gaps, phases, 100, 0.2) == pytest.approx(6 + 9.4 + 20)
    assert elimination_regret(gaps, phases, 100, 7.0) == 100
