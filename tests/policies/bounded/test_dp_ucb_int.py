"""DP-UCB-INT: its interval, and when its indices change."""

from __future__ import annotations

import numpy as np
import pytest

from balaclava.auditing.replay.replay_audit import audit_by_replay
from balaclava.auditing.tape import Recorder
from balaclava.privacy.accounting import interval_epsilon
from balaclava.privacy.guarantee import Guarantee
from tests.policies.bounded.test_dp_ucb import make


def test_the_papers_interval_is_too_short() -> None:
    """f = ceil(1 / epsilon) = 1 does not keep epsilon = 1, and the auditor sees it."""
    policy = make("dp-ucb-int", epsilon=22.0)
    assert policy.interval == 1
    claim = Guarantee(epsilon=1.0, delta=0.01)
    assert audit_by_replay(policy, claim, rounds=200, pairs=200, seed=1).verdict == "unproved"


@pytest.mark.parametrize(
    ("f", "v", "epsilon"),
    [(1, 1.1, 21.9), (10, 1.1, 3.65), (66, 1.1, 1.09), (100, 1.1, 0.85), (10, 1.5, 0.96)],
)
def test_interval_accountant_golden(f: int, v: float, epsilon: float) -> None:
    cost = interval_epsilon(f, 0.01, v)
    assert cost == pytest.approx(epsilon, abs=0.05 if f == 1 else 0.005)
    assert make("dp-ucb-int", epsilon=cost * 1.000001, v=v).interval == f
    assert make("dp-ucb-int", epsilon=cost * 0.999999, v=v).interval == f + 1


def test_refreshes_once_an_interval() -> None:
    policy = make("dp-ucb-int", epsilon=4.0)
    f = policy.interval
    params, (begin, choose, learn, _) = policy.constants(), policy.kernels
    state, recorder = begin(params), Recorder(4)
    order, pulls = [], [0, 0, 0]
    for t in range(1, 201):
        arm, phase = choose(params, state, t, None, recorder)
        before, released = state.indices.copy(), len(recorder.tape)
        learn(params, state, t, arm, float(arm == 1), phase, recorder)
        order.append(arm)
        pulls[arm] += 1
        due = pulls[arm] % f == 0
        assert len(recorder.tape) - released == due
        if not due:
            assert np.array_equal(state.indices, before)
    assert order[: 3 * f] == [0, 1, 2] * f
    assert f > 5


def test_late_rewards_refresh_once_too() -> None:
    policy = make("dp-ucb-int", epsilon=4.0)
    f = policy.interval
    params, (begin, choose, learn, _) = policy.constants(), policy.kernels
    state, recorder = begin(params), Recorder(4)
    asked = [choose(params, state, t, None, recorder)[0] for t in range(1, 5 * f)]
    assert np.ptp(np.bincount(asked)) <= 1  # nothing is known: all arms in turn
    for t in reversed(range(1, 5 * f)):
        learn(params, state, t, asked[t - 1], 1.0, 0, recorder)
    assert len(recorder.tape) == 3
    assert np.isfinite(state.indices).all()
