"""What a reward leaves in the state is enlarged, and no decision may read it."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
import pytest

from balaclava.auditing.replay.amplified_states import amplified, amplified_fault
from balaclava.auditing.replay.recorded_run import record
from balaclava.auditing.scenario import Neighbour, plain_scenario
from tests.oracles.violators import PROVED_CONTROLS, VIOLATORS


class State(NamedTuple):
    """A state of each kind of array."""

    scores: np.ndarray
    counts: np.ndarray
    far: np.ndarray
    empty: np.ndarray
    nested: tuple


class Inner(NamedTuple):
    """A part of a state."""

    one: np.ndarray


def state(scores, count, far, one):
    return State(
        np.array(scores), np.array([count]), np.array(far), np.zeros(0), Inner(np.array([one]))
    )


def test_the_largest_difference_becomes_a_billion_times_the_largest_entry():
    before = state([3.0, -7.0, 0.5], 4, [math.inf, 2.0], 1.0)
    other = state([3.0, -7.5, 0.75], 5, [math.inf, 3.0], 1.0)
    for sign in (1.0, -1.0):
        found = amplified(before, other, sign)
        # The entries reach 7, the differences are 0, -1/2 and 1/4.
        assert found.scores.tolist() == [3.0, -7.0 - sign * 8e9, 0.5 + sign * 4e9]
        assert found.counts.tolist() == [4]  # numbers of decisions
        assert found.far.tolist() == [math.inf, 2.0]  # inf - inf is no difference
        assert found.nested.one.tolist() == [1.0]
    assert before.scores.tolist() == [3.0, -7.0, 0.5]


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
