"""Rewards per participant, and caps on them."""

from __future__ import annotations

import numpy as np
import pytest

import balaclava as bl
from balaclava.advice.log.participants import count_participants


def test_people_and_caps() -> None:
    people = np.array([0, 0, 0, 1, 2, 2])
    arms, rewards = np.array([0, 1, 1, 0, 1, 0]), np.array([1.0, 0, 0, 1, 1, 0])
    counted = count_participants(["a", "b"], arms, rewards, people, bl.Guarantee(epsilon=0.5))
    assert (counted.people, counted.median, counted.most) == (3, 2, 3)
    assert counted.guarantee == "ε=1.5 per trajectory for 3 rewards"
    assert [cap.rewards for cap in counted.caps] == [1, 2, 3]
    assert counted.caps[0].rows_kept == 0.5
    assert counted.caps[0].guarantee == "ε=0.5 per trajectory"
    assert counted.caps[1].people_cut == pytest.approx(1 / 3)
