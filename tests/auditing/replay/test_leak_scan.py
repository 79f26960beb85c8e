"""The scan for rewards that bypass the mechanisms."""

from __future__ import annotations

import math

import balaclava as bl
from balaclava.auditing.replay.leak_scan import scan_for_leaks
from tests.oracles.violators import VIOLATORS


def test_a_scan_finds_the_round_from_which_raw_sums_decide():
    assert scan_for_leaks(VIOLATORS["raw-after-5000"].policy, 0, math.inf)[0] == 5001


def test_a_scan_finds_nothing_if_all_rewards_pass_through_mechanisms():
    policy = bl.policy("dp-imed", arms=2, epsilon=1.0)
    assert scan_for_leaks(policy, 0, math.inf) == []
