"""The audit catches every violator of the table, and calls no control violated."""

from __future__ import annotations

import pytest

import balaclava as bl
from balaclava.auditing.audit_plan import plan_games
from balaclava.auditing.games.attacks import GameSetting
from balaclava.auditing.games.statistical_audit import audit_by_betting
from balaclava.auditing.joint.joint_replay import replay_all_neighbours
from balaclava.auditing.replay.replay_audit import audit_by_replay
from tests.effort import but_slow, looks
from tests.oracles.violators import PROVED_CONTROLS, UNUSUAL_CONTROLS, VIOLATORS
from tests.oracles.violators.joint import JOINT
from tests.oracles.violators.outcomes import OUTCOMES
from tests.oracles.violators.slips import SLIPS

GAME_ROUNDS = 64
IN_GAMES = [row.name for row in VIOLATORS.values() if row.in_games]
# Of the three newest tables, a few rows for every run of the tests.
QUICK = {
    *("unclipped", "takes-any-reward", "mean-of-few", "refuses-large-sums", "fails-in-round-45"),
    *("joint-tie-break", "joint-one-who-joins", "joint-open-matrix"),
    "joint-lost-features",
    *("releases-nan", "whole-rewards-only", "window-of-two", "changes", "only-if-changed"),
    "recommends-without-means",
}
BY_REPLAY = [row.name for row in VIOLATORS.values() if row.by_replay]
LONG = {row.name for row in (*OUTCOMES, *SLIPS, *JOINT)} - QUICK


def replayed(row, pairs=None):
    plan = plan_games(row.policy)
    policy, rounds = plan.policy, plan.replay_rounds
    if row.rounds is not None:
        policy, rounds = row.policy, row.rounds
    return replay_all_neighbours(
        policy, row.policy.guarantee, rounds=rounds, pairs=pairs or row.pairs, seed=row.seed
    )


@pytest.mark.parametrize("name", but_slow(BY_REPLAY, *LONG))
def test_replay_does_not_prove_a_violator(name):
    found = replayed(VIOLATORS[name])
    assert found.verdict in ("unproved", "violated"), str(found)
    assert found.fault


@pytest.mark.parametrize(
    "name",
    ["refuses-large-sums", "fails-in-round-45", "whole-rewards-only", "releases-nan"],
)
def test_a_failure_that_depends_on_rewards_is_a_counterexample(name):
    found = replayed(VIOLATORS[name], 100)
    assert found.verdict == "violated"
    assert "it fails with" in found.fault or "it does not fail" in found.fault
    assert "no randomness reaches it" in found.fault


@pytest.mark.slow
@pytest.mark.parametrize("name", [row.name for row in VIOLATORS.values() if row.by_default])
def test_the_default_audit_flags_a_violator(name):
    report = bl.audit(VIOLATORS[name].policy)
    assert report.verdict not in ("consistent", "not private"), str(report)


@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=[pytest.mark.slow] if n else []) for n, name in enumerate(IN_GAMES)],
)
def test_bets_refute_a_violator(name):
    """A policy that spends 1.25 times a tight claim is among them."""
    policy = VIOLATORS[name].policy
    found = audit_by_betting(GameSetting(policy, 0.0, GAME_ROUNDS, 1), 1.0, pairs=20_000)
    assert found.verdict == "violated"


@pytest.mark.parametrize("name", ["honest", "one-release"])
@pytest.mark.parametrize("epsilon", [0.1, 1.0, 5.0])
@pytest.mark.parametrize("pairs", looks(250, 1_000))
def test_replay_proves_a_control(name, epsilon, pairs):
    policy = type(PROVED_CONTROLS[name].policy)(arms=3, epsilon=epsilon)
    found = audit_by_replay(policy, policy.guarantee, rounds=GAME_ROUNDS, pairs=pairs, seed=1)
    assert found.verdict == "consistent"
    assert found.pairs == pairs
    assert found.moved > pairs // 10
    assert found.epsilon == pytest.approx(epsilon)


def test_replay_proves_a_control_where_rewards_are_as_large_as_the_level():
    found = replayed(PROVED_CONTROLS["truncated-far"], 1_000)
    assert (found.verdict, found.fault) == ("consistent", "")
    assert 0.9 < found.epsilon <= 1.0


@pytest.mark.parametrize("name", UNUSUAL_CONTROLS)
@pytest.mark.parametrize("pairs", looks(50, 150))
def test_replay_calls_no_control_violated(name, pairs):
    assert replayed(UNUSUAL_CONTROLS[name], pairs).verdict in ("unproved", "consistent")


@pytest.mark.slow
@pytest.mark.parametrize("name", UNUSUAL_CONTROLS)
def test_the_default_audit_calls_no_control_violated(name):
    report = bl.audit(UNUSUAL_CONTROLS[name].policy)
    assert report.verdict in ("unproved", "consistent"), str(report)
