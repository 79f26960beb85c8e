"""Where rewards are changed."""

from __future__ import annotations

import numpy as np

from balaclava.auditing.replay.recorded_run import record
from balaclava.auditing.replay.reward_choices import choose_neighbours
from balaclava.auditing.scenario import plain_scenario
from tests.oracles.violators import PROVED_CONTROLS


def test_neighbours_lie_at_every_phase_boundary():
    policy, rounds = PROVED_CONTROLS["honest"].policy, 64
    rng = np.random.default_rng(0)
    scenario = plain_scenario(policy, rng.integers(0, 2, (rounds, 2)).astype(float))
    run = record(policy, scenario, seed=0)
    neighbours = choose_neighbours(policy, run, 200, (0.0, 1.0), rng)
    places = {neighbour.slot + 1 for neighbour in neighbours}
    phases = [phase for _, phase in run.decisions]
    changes = {t for t in range(2, rounds + 1) if phases[t - 1] != phases[t - 2]}
    assert changes
    assert changes | {t - 1 for t in changes} <= places
