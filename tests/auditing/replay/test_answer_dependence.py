"""Which decisions read a release."""

from __future__ import annotations

import numpy as np

from balaclava.auditing.replay.answer_dependence import reading_rounds
from balaclava.auditing.replay.recorded_run import record
from balaclava.auditing.scenario import plain_scenario
from tests.oracles.violators import VIOLATORS


def test_decisions_that_read_an_old_release_are_found():
    policy = VIOLATORS["old-draws"].policy
    rewards = np.random.default_rng(0).integers(0, 2, (30, 2)).astype(float)
    run = record(policy, plain_scenario(policy, rewards), seed=0)
    position = next(i for i, entry in enumerate(run.tape) if i >= run.round_starts[9])
    assert reading_rounds(policy, run, position, 0).nonzero()[0].tolist() == [9, 10, 11, 12, 13]
