"""Reports are replayed at every level, and faults of each kind are named."""

from __future__ import annotations

import math

import pytest

import balaclava as bl
from balaclava.auditing.laws.local_reports import audit_reports, first_level
from balaclava.auditing.replay.report_replay import report_fault
from balaclava.authoring import LocalRealPolicy, laplace_report, truncated
from tests.oracles.violators import VIOLATORS
from tests.oracles.violators.frame import as_summed, claiming, frame

LOCAL = [
    bl.policy("ldp-ucb-bernoulli", arms=2, epsilon=1.0),
    bl.policy("ldp-ucb-laplace", arms=2, epsilon=0.3),
    bl.policy("ldpr-se", arms=2, epsilon=1.0, horizon=1_000, moment_order=1.9, moment_bound=2.0),
]


def local(report):
    """A local policy for rewards of any size with such reports."""

    def keep(params, state, t, arm, reward, phase, rng):
        return report(params, reward, 1.0, rng)

    return claiming(
        "local", frame(keep=keep, score=as_summed), LocalRealPolicy,
        report_kernel=staticmethod(report), learn_report=staticmethod(frame().learn),
    )  # fmt: skip


def fault_of(report, seed=0):
    policy = local(report)
    return report_fault(policy, policy.guarantee, seed)


@pytest.mark.parametrize("policy", LOCAL, ids=lambda policy: policy.name)
@pytest.mark.parametrize("seed", range(3))
def test_reports_that_keep_their_claim(policy, seed):
    assert report_fault(policy, policy.guarantee, seed) == ("consistent", "")


def honest(params, reward, level, rng):
    return laplace_report(rng, truncated(reward, level), 2.0 * level, params.epsilon)


def test_a_report_is_tried_at_levels_far_apart():
    levels, rewards = [], []

    def noted(params, reward, level, rng):
        levels.append(level)
        rewards.append(reward / level)
        return honest(params, reward, level, rng)

    assert fault_of(noted) == ("consistent", "")
    assert len(levels) == 2 * 200
    powers = [round(math.log10(level)) for level in levels]
    assert levels == pytest.approx([10.0**power for power in powers])
    near = [power for power in powers if abs(power) <= 6]
    assert 0.7 < len(near) / len(powers) < 0.95
    assert set(near) == set(range(-6, 7))
    assert min(powers) < -120
    assert max(powers) > 120
    assert {-1.0, 0.0, 1.0, 2.0} <= set(rewards)  # ends, middle, and beyond the level
    inside = [each for each in rewards if -1.0 < each < 1.0]
    assert len(inside) > 100
    assert max(inside) > 0.8  # drawn from the whole range


def raw_report(params, reward, level, rng):
    return truncated(reward, level)


def other_noise(params, reward, level, rng):
    scale = 2.0 * level if reward > 0.0 else 4.0 * level
    return laplace_report(rng, truncated(reward, level), scale, params.epsilon)


def too_little(params, reward, level, rng):
    return laplace_report(rng, truncated(reward, level), 1.9 * level, params.epsilon)


def digits(params, reward, level, rng):
    return honest(params, reward, level, rng) + 0.001 * truncated(reward, level)


def refuses(params, reward, level, rng):
    if reward > 0.0:
        raise ValueError("no")
    return honest(params, reward, level, rng)


def always_refuses(params, reward, level, rng):
    raise ValueError("no")


@pytest.mark.parametrize(
    ("report", "verdict", "fault"),
    [
        (raw_report, "violated", "a report depends on the reward although every mechanism"),
        (digits, "unproved", "a report depends on the reward although every mechanism"),
        (other_noise, "unproved", "a report: the sensitivity, epsilon or delta of"),
        (too_little, "unproved", "a report: 1 mechanism moved, which costs epsilon 1.0"),
        (refuses, "violated", "a report depends on the reward although every mechanism"),
        (always_refuses, "unproved", "a report fails with ValueError"),
    ],
)
def test_each_fault_is_named(report, verdict, fault):
    found, words = fault_of(report)
    assert fault in words
    if report is not refuses:  # it may have answered on one of the two before it fails
        assert found == verdict
    if report is too_little:
        assert words.endswith("; claimed is 1")


@pytest.mark.parametrize("name", ["low-digits", "noise-ignores-level", "raw-at-far-levels"])
def test_reports_of_violators(name):
    policy = VIOLATORS[name].policy
    assert report_fault(policy, policy.guarantee, 1)[0] == "unproved"


def test_the_level_of_the_first_decision():
    assert first_level(LOCAL[0]) == 1.0
    assert first_level(VIOLATORS["noise-ignores-level"].policy) == 50.0


@pytest.mark.statistical
def test_games_on_reports_bound_epsilon():
    """Two bounds at error 0.05; at 1e-4 for a verdict. Randomized response is tight."""
    policy = LOCAL[0]
    found = audit_reports(policy, 1.0, 0.0, trials=200_000, seed=1, confidence=0.95)
    assert 0.95 < found.epsilon_lower <= 1.0
    assert (found.verdict, found.games, found.place) == ("consistent", 200_000, 1)
    assert found.event.startswith("the report is at ")
    with_delta = audit_reports(policy, 1.0, 0.2, trials=200_000, seed=1, confidence=0.95)
    assert 0.5 < with_delta.epsilon_lower < 0.7  # log((0.731 - 0.2) / 0.269) = 0.68
    assert audit_reports(policy, 0.9, 0.0, trials=200_001, seed=1, confidence=0.95).verdict == (
        "violated"
    )
    few = audit_reports(policy, 0.9, 0.0, trials=1, seed=1, confidence=0.95)
    assert (few.games, few.verdict) == (4, "consistent")
