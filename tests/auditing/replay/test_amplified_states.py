"""What a reward leaves in the state is enlarged, and no decision may read it."""

from __future__ import annotations

import numpy as np
import pytest

from balaclava.auditing.replay.amplified_states import amplified_fault
from balaclava.auditing.replay.recorded_run import record
from balaclava.auditing.scenario import Neighbour, plain_scenario
from tests.oracles.violators import PROVED_CONTROLS, VIOLATORS


@pytest.mark.parametrize("name", ["ninth-digit", "fraction-kept"])
def test_low_digits_are_seen(name):
    policy = VIOLATORS[name].policy
    run = record(policy, plain_scenario(policy, np.full((60, 2), 0.3)), seed=0)
    assert "if that is enlarged" in amplified_fault(policy, run, Neighbour(2, 0.9))


@pytest.mark.parametrize("name", PROVED_CONTROLS)
def test_a_control_reads_nothing(name):
    policy = PROVED_CONTROLS[name].policy
    run = record(policy, plain_scenario(policy, np.full((60, policy.arms), 0.3)), seed=0)
    assert amplified_fault(policy, run, Neighbour(2, 0.9)) == ""
