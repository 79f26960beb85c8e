"""LDPR-SE (Tao, Wu, Zhao, Wang 2022): reports on the device, and what the server learns."""

from __future__ import annotations

import math
import subprocess
import sys
from typing import Any, ClassVar

import numpy as np
import pytest

import balaclava as bl
from balaclava.auditing.replay.replay_audit import audit_by_replay
from balaclava.authoring import Epsilon
from balaclava.errors import DecisionError, ParameterError, RewardError
from balaclava.policies.heavy_tailed import ldpr_se
from balaclava.policies.local_policies import LocalRealPolicy
from balaclava.privacy.device_report import truncated_report
from balaclava.privacy.mechanisms.laplace import laplace_report
from balaclava.privacy.mechanisms.truncation import truncated
from tests.policies.heavy_tailed.test_truncated_elimination import MEANS, make


def test_ldpr_se_finds_the_best_arm() -> None:
    policy = make("ldpr-se", arms=3, epsilon=5.0, moment_bound=4.0, radius_scale=0.08)
    world = bl.environment("gaussian", means=MEANS)
    pulls = bl.simulate(policy, world, horizon=10**6, repetitions=5, seed=1).pulls("ldpr-se")
    assert (pulls.argmax(axis=1) == 2).all()  # seeds are fixed


def test_a_report_on_the_device() -> None:
    policy = make("ldpr-se", arms=2, epsilon=1e6, horizon=1000)
    agent = policy.agent()
    decision = agent.ask()
    level = agent.report_level(decision)
    assert level == pytest.approx(
        ldpr_se.truncation_level(policy.constants(), 2, 1, policy.first_epoch)
    )
    for reward, kept in ((0.3, 0.3), (-0.9 * level, -0.9 * level), (1.01 * level, 0.0)):
        assert policy.report(reward, level) == pytest.approx(kept, abs=1e-4 * level)
        assert truncated_report(reward, level=level, epsilon=1e6) == pytest.approx(
            kept, abs=1e-4 * level
        )
    agent.tell_report(decision, policy.report(0.3, level))
    with pytest.raises(DecisionError):
        agent.report_level(decision)
    with pytest.raises(ParameterError, match=r"level is missing.*agent\.report_level"):
        policy.report(0.3)
    other = make("dpr-se").agent()
    asked = other.ask()
    with pytest.raises(RewardError, match="use tell"):
        other.report_level(asked)


@pytest.mark.parametrize("level", [0.0, -1.0, math.inf, math.nan, "1", None, True, 1e-300, 1e300])
def test_levels_that_are_refused(level: Any) -> None:
    with pytest.raises(ParameterError, match="level"):
        truncated_report(0.5, level=level, epsilon=1.0)
    if level is not None:
        with pytest.raises(ParameterError, match="level"):
            make("ldpr-se").report(0.5, level)


def test_a_report_does_not_repeat_a_reward() -> None:
    for bad in (math.nan, math.inf, "0.7310585", None, 10**400):
        with pytest.raises(RewardError) as error:
            truncated_report(bad, level=1.0, epsilon=1.0)
        assert "7310585" not in str(error.value)
    for epsilon in (0.0, -1.0, math.inf, math.nan, "1"):
        with pytest.raises(ParameterError, match="epsilon"):
            truncated_report(0.5, level=1.0, epsilon=epsilon)  # type: ignore[arg-type]


@pytest.mark.statistical
def test_the_law_of_a_report() -> None:
    """The mean of |noise| is its scale 2B/epsilon; 5 standard errors, once in a million."""
    noise = np.abs([truncated_report(-1e9, level=0.5, epsilon=2.0) for _ in range(4_000)])
    assert noise.mean() == pytest.approx(0.5, abs=5 * 0.5 / math.sqrt(noise.size))


def test_a_device_needs_little() -> None:
    code = (
        "import sys, balaclava.privacy.device_report as r; "
        "print(sorted(m for m in ('numba', 'scipy', 'opendp', 'pyarrow', "
        " 'matplotlib', 'balaclava.policies.base') if m in sys.modules))"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert out.stdout.strip() == "[]"


def test_the_server_learns_from_reports_alone() -> None:
    policy = make("ldpr-se", arms=2, epsilon=2.0, horizon=1000, moment_bound=4.0, radius_scale=0.02)
    agent, phases = policy.agent(), set()
    for _ in range(600):
        decision = agent.ask()
        phases.add(decision.phase)
        report = policy.report(3.0 if decision.arm == 1 else -3.0, agent.report_level(decision))
        agent.tell_report(decision, report)
    assert max(phases) >= 1
    assert -1 in phases  # an arm was dropped; the other is played for ever


@bl.kernel
def careless_report(params: Any, reward: float, level: float, rng: Any) -> float:
    return laplace_report(rng, truncated(reward, level), 2.0, params.epsilon)


class Careless(LocalRealPolicy):
    """Private at level 1, and at no larger one."""

    name = "careless"
    report_kernel = staticmethod(careless_report)
    kernels: ClassVar = bl.Kernels(*bl.policy("ucb1", arms=2).kernels)
    epsilon: Epsilon


def test_the_audit_tries_other_levels() -> None:
    policy = Careless(arms=2, epsilon=1.0)
    audit = audit_by_replay(policy, policy.guarantee, rounds=20, pairs=10, seed=1)
    assert audit.verdict == "unproved"
    assert "report" in audit.fault


@pytest.mark.parametrize("v", [0.5, 1.0])
def test_the_printed_bound_of_ldpr_se_is_false(v: float) -> None:
    """No constant makes Theorem 7 true of the policy, nor of any locally private one."""

    def pulls(gap: float) -> float:
        common = {"moment_order": 1 + v, "moment_bound": 1.0, "radius_scale": 0.05}
        policy = make("ldpr-se", arms=2, **common)
        params, tau = policy.constants(), math.ceil(math.log2(1 / gap))
        return float(sum(ldpr_se.epoch_length(params, 2, i) for i in range(1, tau + 1)))

    def printed(gap: float) -> float:
        return gap ** (-1 / v)

    gaps = [2.0**-3, 2.0**-5]
    regret = [gap * pulls(gap) for gap in gaps]
    growth = math.log(regret[1] / regret[0]) / math.log(gaps[0] / gaps[1])
    assert growth == pytest.approx((2 + v) / v, rel=0.03)
    assert growth > 2 / v
    common = {"moment_order": 1 + v, "horizon": 10**18, "epsilon": 1.0}
    below = [bl.bounds.local_pair(gap, **common) / printed(gap) for gap in (1e-1, 1e-2, 1e-3)]
    assert below[2] > 10 * below[1] > 100 * below[0]
