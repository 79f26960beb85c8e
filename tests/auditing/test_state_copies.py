"""Copies and digests of states."""

from __future__ import annotations

import balaclava as bl
from balaclava.auditing.state_copies import copy_state, fingerprint


def test_a_fingerprint_tells_states_apart():
    policy = bl.policy("ftpl", arms=3, horizon=100)
    state = policy.kernels.begin(policy.constants())
    other = copy_state(state)
    assert fingerprint(state) == fingerprint(other)
    other.pending.notes[-1, -1] += 2.0**-40
    assert fingerprint(state) != fingerprint(other)
