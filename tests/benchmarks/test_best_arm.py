"""The benchmark of named arms: its batches have the law of rounds."""

from __future__ import annotations

import numpy as np
import pytest

import balaclava as bl
import best_arm


@pytest.mark.statistical
def test_whole_batches_have_the_law_of_single_rounds():
    """Medians of 400 and 200 runs differ by less than five standard errors of the noisier one."""
    means, policy = [0.3, 0.6], best_arm.top_two([0.3, 0.6], 1.0, 0.95)
    out = best_arm.play(policy, means, 400, seed=1)
    world = bl.environment("bernoulli", means=means)
    results = bl.simulate(
        policy, world, horizon=2_000, repetitions=200, seed=2, checkpoints=400, winners=True
    )
    row = results.winners(0.95)[0]
    assert (out[:, 1] == 1).mean() >= 0.95
    spread = np.quantile(out[:, 0], 0.75) - np.quantile(out[:, 0], 0.25)
    assert abs(np.median(out[:, 0]) - row.median_round) < 5 * 0.93 * spread / np.sqrt(200)
