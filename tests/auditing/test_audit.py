"""`bl.audit`: verdicts, reports and errors."""

from __future__ import annotations

import json
import math
import time

import pytest

import balaclava as bl
from balaclava.auditing.audit import check_proof, play_games, run_concurrently
from balaclava.auditing.audit_plan import plan_games
from balaclava.errors import ParameterError, PrivacyError
from balaclava.testing import examples
from tests.oracles.violators import PROVED_CONTROLS
from tests.oracles.violators.controls import Exp3
from tests.oracles.violators.frame import claiming, frame

MODULE = "balaclava.auditing.audit"
# `make test-all` takes every example of every policy; the one screen below is of a pool's release.
QUICK = {"ldp-ucb-bernoulli"}


@pytest.mark.statistical
@pytest.mark.slow
def test_exp3_leaks_and_says_so():
    report = bl.audit(Exp3(arms=2), trials=100_000, pairs=100, seed=1)
    assert report.verdict == "not private"
    assert report.replay.verdict in ("unproved", "violated")
    assert report.statistical.verdict == "violated"
    assert report.epsilon_lower > 0.0
    assert "claims nothing" in str(report)


def private_policies():
    """Every example of every registered private policy."""
    for entry in bl.list_policies():
        if entry.policy.model != "none" and entry.name != "random":  # which no reward moves
            for number, policy in enumerate(examples(entry.policy)):
                long = number > 0 or entry.name not in QUICK
                marks = [pytest.mark.slow] if long else []
                yield pytest.param(policy, id=f"{entry.name}-{number}", marks=marks)


@pytest.mark.statistical
@pytest.mark.parametrize("policy", list(private_policies()))
def test_every_private_policy_passes_the_quick_audit(policy):
    report = bl.audit(policy, trials=8_000, pairs=200, seed=4, quick=True)
    assert report.verdict == "consistent", str(report)
    assert report.replay.pairs >= 150  # a scenario of few rounds has fewer places to change
    assert report.replay.moved > 0, "no neighbour moved a mechanism: nothing was tested"


def test_a_replay_that_runs_out_of_time_says_so():
    policy = bl.policy("ldp-ucb-bernoulli", arms=2, epsilon=1.0)
    replay, *_ = check_proof(plan_games(policy), policy, 600, 1, 0.01, lambda: False)
    assert replay.untried >= 600 - replay.pairs > 0
    assert "fewer than planned: time was up" in str(replay)


@pytest.mark.statistical
@pytest.mark.slow
@pytest.mark.parametrize("name", ["dp-se", "adap-ucb", "lazy-dp-ts", "dp-imed"])
def test_tight_at_two_million_games(name):
    horizon = {"horizon": 1_000} if name == "dp-se" else {}
    report = bl.audit(bl.policy(name, arms=2, epsilon=1.0, **horizon), trials=2_000_000, seed=1)
    assert report.verdict == "consistent"
    assert report.tight, str(report)


def test_the_report_is_one_screen_and_json():
    policy = bl.policy("dp-imed", arms=2, epsilon=1.0)
    report = bl.audit(policy, trials=20_000, pairs=100, seed=1)
    text = str(report)
    assert len(text.splitlines()) <= 24
    for word in ("claims", "verdict", "replay", "exact", "statistical", "loose"):
        assert word in text
    again = json.loads(json.dumps(report.to_dict()))
    assert again["verdict"] == "consistent"
    assert again["claimed"]["epsilon"] == 1.0
    assert report.claimed == policy.guarantee
    assert "arms that come and leave" in report.replay.reached
    assert report.confidence == 0.95
    assert report.replay.pairs >= 75
    assert report.replay.moved > 0, "no neighbour moved a mechanism: nothing was tested"


def test_the_seed_decides_the_report():
    policy = PROVED_CONTROLS["one-release"].policy
    reports = [bl.audit(policy, trials=4_000, pairs=20, seed=9) for _ in range(2)]
    assert reports[0] == reports[1]


@pytest.mark.parametrize(
    ("name", "wrong"),
    [
        ("trials", 0),
        ("trials", 1.5),
        ("trials", math.nan),
        ("pairs", 0),
        ("confidence", 0.0),
        ("confidence", 1.0),
        ("confidence", math.nan),
        ("seed", -1),
    ],
)
def test_bad_numbers_are_named(name, wrong):
    with pytest.raises(ParameterError, match=name):
        bl.audit(PROVED_CONTROLS["one-release"].policy, **{name: wrong})


@pytest.mark.parametrize(
    ("policy", "epsilon", "delta"),
    [
        (bl.policy("ucb1", arms=2), 0.0, 0.0),
        (bl.policy("gdp-elim-new", arms=2, epsilon=0.7, delta=0.01, horizon=99), 0.7, 0.01),
    ],
)
def test_games_are_played_against_the_claim(monkeypatch, policy, epsilon, delta):
    """A policy that claims nothing is measured against epsilon 0."""
    asked = []
    for name in ("audit_statistically", "audit_by_betting"):
        monkeypatch.setattr(f"{MODULE}.{name}", lambda *given, **how: asked.append((given, how)))
    plan = plan_games(policy)
    for quick in (False, True):
        play_games(plan, policy, 1_001, 3, 0.9, quick, times_more=3)
    ((setting, found), how), ((in_bets, bet_on), pairs) = asked
    assert (found, setting.delta, setting.seed, setting.rounds) == (
        epsilon, delta, 3, plan.long_rounds
    )  # fmt: skip
    assert how == {
        "trials": 1_001, "confidence": 0.9, "screening_games": 2_000, "times_more": 3
    }  # fmt: skip
    assert (bet_on, in_bets.delta, in_bets.rounds, pairs) == (
        epsilon, delta, plan.rounds, {"pairs": 500}
    )  # fmt: skip


def test_only_policies_can_be_audited():
    with pytest.raises(ParameterError, match=r"bl\.policy"):
        bl.audit("dp-se")


def always_fails(params, state, t, arm, reward, phase, rng):
    return math.sqrt(-1.0 - t)


def test_a_policy_that_fails_on_every_stream_raises_its_error():
    policy = claiming("always-fails", frame(keep=always_fails))
    with pytest.raises(ValueError, match="math domain error"):
        bl.audit(policy, trials=400, pairs=20, seed=1)


def test_ctrl_c_during_the_games_ends_the_replay_too():
    ends = []

    def proof(ended):
        while not ended():
            time.sleep(0.001)
        ends.append("proof")

    def games():
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run_concurrently(proof, games)
    assert ends == ["proof"]


def test_an_error_of_the_replay_precedes_one_of_the_games():
    def proof(ended):
        raise PrivacyError("of the replay")

    def games():
        raise ValueError("of the games")

    with pytest.raises(PrivacyError, match="of the replay"):
        run_concurrently(proof, games)
    with pytest.raises(ValueError, match="of the games"):
        run_concurrently(lambda ended: None, games)
