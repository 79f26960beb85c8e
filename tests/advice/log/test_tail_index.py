"""Hill's estimate of the tail index."""

from __future__ import annotations

import numpy as np
import pytest

from balaclava.advice.log.tail_index import hill_estimate


def test_hill_covers_the_index() -> None:
    """200 logs of a power law: a 95 % interval holds the index in at least 85 % of them.

    That fewer do by chance has a probability below 1e-6, if 95 % is right.
    """
    rng = np.random.default_rng(2)
    held = 0
    for _ in range(200):
        tail = hill_estimate(1 + rng.pareto(1.8, 2_000))
        assert tail is not None
        held += tail.low <= 1.8 <= tail.high
    assert held >= 170
    # Scale and sign do not matter.
    sample = 1 + rng.pareto(1.8, 500)
    assert hill_estimate(-7 * sample).index == pytest.approx(hill_estimate(sample).index)  # type: ignore[union-attr]
    assert hill_estimate(np.zeros(100)) is None
    assert hill_estimate(np.ones(100)) is None
    assert hill_estimate(np.arange(1.0, 15.0)) is None
