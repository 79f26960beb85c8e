"""The auditor: catches every planted violator, and raises no false alarm."""

from __future__ import annotations

import itertools
import json
import math
import time

import numpy as np
import pytest

import balaclava as bl
from balaclava.auditing.audit import run_concurrently
from balaclava.auditing.audit_plan import plan_games
from balaclava.auditing.games.attacks import choose_attack, find_stream_pair
from balaclava.auditing.games.compiled_games import GameStart, play_blocks, tail_counts
from balaclava.auditing.games.statistical_audit import (
    audit_by_betting,
    audit_statistically,
    bet,
)
from balaclava.auditing.replay.recorded_run import record
from balaclava.auditing.replay.replay_audit import audit_by_replay
from balaclava.auditing.replay.reward_choices import choose_neighbours
from balaclava.auditing.scenario import plain_scenario
from balaclava.auditing.state_copies import copy_state, fingerprint
from balaclava.auditing.two_sample_bounds import epsilon_lower, log_wealth
from balaclava.errors import ParameterError, PrivacyError
from balaclava.privacy.randomness import seeded
from balaclava.testing import examples
from tests.effort import looks
from tests.oracles.violators import HONEST, VIOLATORS, Exp3

ROUNDS = 64
# What shows in the decisions themselves, within 20,000 pairs of games.
VISIBLE = [
    "no-noise",
    "half-noise",
    "wrong-sensitivity",
    "shared-draw",
    "first-without-noise",
    "redrawn",
    "stopped-early",
    "one-release-a-quarter-more",
]


@pytest.mark.parametrize("name", VIOLATORS)
def test_replay_catches_every_violator(name):
    policy = VIOLATORS[name](arms=2, epsilon=1.0)
    found = audit_by_replay(policy, policy.guarantee, rounds=ROUNDS, pairs=1_000, seed=1)
    assert found.verdict in ("unproved", "violated")
    assert found.fault


@pytest.mark.parametrize("name", HONEST)
@pytest.mark.parametrize("epsilon", [0.1, 1.0, 5.0])
@pytest.mark.parametrize("pairs", looks(250, 1_000))
def test_replay_clears_the_honest(name, epsilon, pairs):
    policy = HONEST[name](arms=3, epsilon=epsilon)
    found = audit_by_replay(policy, policy.guarantee, rounds=ROUNDS, pairs=pairs, seed=1)
    assert found.verdict == "consistent"
    assert found.pairs == pairs
    assert found.moved > pairs // 10
    assert found.epsilon == pytest.approx(epsilon)


@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=[pytest.mark.slow] if n else []) for n, name in enumerate(VISIBLE)],
)
def test_betting_catches_what_shows(name):
    """A policy that spends 1.25 times a tight claim is among them."""
    policy = VIOLATORS[name](arms=2, epsilon=1.0)
    found = audit_by_betting(policy, 1.0, 0.0, rounds=ROUNDS, pairs=20_000, seed=1)
    assert found.verdict == "violated"


def test_the_natural_log_tree_costs_what_was_computed():
    policy = VIOLATORS["natural-log-tree"](arms=2, epsilon=1.0)
    found = audit_by_replay(policy, policy.guarantee, rounds=ROUNDS, pairs=500, seed=1)
    # Round 2 is the second item of an arm or the first of another: up to 7 nodes of 1/log(64).
    assert found.verdict == "unproved"
    assert "mechanisms moved" in found.fault
    assert any(f"{nodes / math.log(64):.4g}" in found.fault for nodes in (5, 6, 7))


@pytest.mark.statistical
@pytest.mark.slow
def test_exp3_leaks_and_says_so():
    report = bl.audit(Exp3(arms=2), trials=100_000, pairs=100, seed=1)
    assert report.verdict == "not private"
    assert report.replay.verdict in ("unproved", "violated")
    assert report.statistical.verdict == "violated"
    assert report.epsilon_lower > 0.0
    assert "claims nothing" in str(report)


@pytest.mark.slow
@pytest.mark.statistical
def test_a_tight_claim_is_found_tight():
    """One release, seen plainly: the bound must come within a tenth of the claim."""
    policy = HONEST["one-release"](arms=2, epsilon=1.0)
    found = audit_statistically(policy, 1.0, 0.0, rounds=16, trials=60_000, seed=2, confidence=0.95)
    assert 0.9 < found.epsilon_lower <= 1.0
    assert found.verdict == "consistent"


@pytest.mark.statistical
@pytest.mark.parametrize(
    ("bets", "allowed"), [(60, 1), pytest.param(1_000, 5, marks=pytest.mark.slow)]
)
def test_no_false_alarm_in_many_bets(bets, allowed):
    """Each fails with probability at most 1e-3.

    More than 1 in 60 then has probability 1.7e-3, more than 5 in 1,000 6e-4.
    """
    policy = HONEST["one-release"](arms=2, epsilon=1.0)
    neighbours = find_stream_pair(policy, 0.0, 16, 1_000, seed=3)
    attack = choose_attack(policy, neighbours, 0.0, 16, 16_000, 1_000, seed=3)
    alarms = sum(
        bet(policy, attack, 1.0, 0.0, pairs=1_000, seed=seed).verdict == "violated"
        for seed in range(bets)
    )
    assert alarms <= allowed


@pytest.mark.slow
def test_no_false_alarm_in_a_thousand_quick_audits():
    """Whole audits, search included, of correct policies; the same allowance."""
    alarms = 0
    for seed in range(500):
        for name in HONEST:
            policy = HONEST[name](arms=2, epsilon=1.0)
            found = audit_by_betting(policy, 1.0, 0.0, rounds=32, pairs=2_000, seed=seed)
            alarms += found.verdict == "violated"
    assert alarms <= 5


# One of each way to release; `make test-all` takes every example of every policy.
QUICK = {"dp-imed", "ldp-ucb-bernoulli"}


def private_policies():
    """Every example of every registered policy that claims anything."""
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
    assert report.replay.pairs >= 150  # a life of few rounds has fewer places to change
    assert report.replay.moved > 0, "no neighbour moved a mechanism: nothing was tested"


@pytest.mark.statistical
@pytest.mark.slow
@pytest.mark.parametrize("name", ["dp-se", "adap-ucb", "lazy-dp-ts", "dp-imed"])
def test_tight_at_two_million_games(name):
    horizon = {"horizon": 1_000} if name == "dp-se" else {}
    report = bl.audit(bl.policy(name, arms=2, epsilon=1.0, **horizon), trials=2_000_000, seed=1)
    assert report.verdict == "consistent"
    assert report.tight, str(report)


def test_every_phase_boundary_is_among_the_places():
    policy = HONEST["honest"](arms=2, epsilon=1.0)
    rng = np.random.default_rng(0)
    life = plain_scenario(policy, rng.integers(0, 2, (ROUNDS, 2)).astype(float))
    game = record(policy, life, seed=0)
    places = {
        neighbour.slot + 1 for neighbour in choose_neighbours(policy, game, 200, (0.0, 1.0), rng)
    }
    phases = [phase for _, phase in game.decisions]
    changes = {t for t in range(2, ROUNDS + 1) if phases[t - 1] != phases[t - 2]}
    assert changes
    assert changes | {t - 1 for t in changes} <= places


def test_long_phases_are_shortened_by_radius_scale():
    plan = plan_games(bl.policy("dp-se", arms=2, epsilon=1.0, horizon=10**6))
    assert plan.policy.radius_scale < 1
    assert plan.policy.epsilon == 1.0
    assert plan.rounds < 500
    assert "radius_scale" in plan.note


def test_games_last_beyond_the_first_release():
    """Also where that comes late and the policy knows no horizon: else nothing could be seen."""
    plan = plan_games(bl.policy("dp-imed", arms=2, epsilon=0.1))
    assert plan.rounds > 600  # two first batches of 300 pulls
    assert plan.long_rounds == plan.rounds
    assert plan_games(bl.policy("dp-imed", arms=2, epsilon=1.0)).long_rounds == 256
    short = bl.policy("dp-se", arms=2, epsilon=1.0, horizon=100, radius_scale=0.1)
    assert plan_games(short).long_rounds == 100


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
    assert report.confidence == 0.95


def test_the_seed_decides_the_report():
    policy = HONEST["one-release"](arms=2, epsilon=1.0)
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
        bl.audit(HONEST["one-release"](arms=2, epsilon=1.0), **{name: wrong})


def test_only_policies_can_be_audited():
    with pytest.raises(ParameterError, match=r"bl\.policy"):
        bl.audit("dp-se")


def test_the_bound_holds_as_often_as_it_says():
    """At a ratio of e^1 exactly, at most 5 % of 4,000 samples exceed 1 (plus 3 sd)."""
    rng = np.random.default_rng(0)
    n, p = 2_000, 0.4
    left, right = rng.binomial(n, p, 4_000), rng.binomial(n, p / math.e, 4_000)
    assert np.mean(epsilon_lower(left, right, n, 0.0, 0.05) > 1.0) <= 0.05 + 3 * 0.0035


def test_delta_is_taken_off():
    without = epsilon_lower(500, 100, 1_000, 0.0, 0.05)
    assert epsilon_lower(500, 100, 1_000, 0.1, 0.05) < without
    assert epsilon_lower(500, 100, 1_000, 0.9, 0.05) == 0.0


@pytest.mark.parametrize(
    ("epsilon", "delta", "q"), [(1.0, 0.0, 0.2), (0.3, 0.1, 0.5), (3.0, 0.0, 0.04)]
)
def test_the_bettor_gains_nothing_on_a_true_claim(epsilon, delta, q):
    """At the edge of the claim the expected wealth is exactly 1: all outcomes of 3 pairs."""
    p = math.exp(epsilon) * q + delta
    expected = 0.0
    for outcome in itertools.product(itertools.product((0, 1), repeat=2), repeat=3):
        counts = np.zeros((2, 2))
        probability = 1.0
        for x, y in outcome:
            counts[x, y] += 1
            probability *= (p if x else 1 - p) * (q if y else 1 - q)
        expected += probability * math.exp(log_wealth(counts, epsilon, delta))
    assert expected == pytest.approx(1.0, rel=1e-9)


def test_tail_counts():
    histogram = np.array([[[1, 2, 3]]])
    assert tail_counts(histogram, True).tolist() == [[[6, 5, 3]]]
    assert tail_counts(histogram, False).tolist() == [[[1, 3, 6]]]


def test_rounds_that_draw_nothing_are_played_once() -> None:
    """The same games, to the last one, as when each is played from its beginning."""
    policy = bl.policy("dp-ftpl-gauss", arms=2, epsilon=1.0, delta=0.01)
    rounds, probes = 2 * policy.start_phase + 3, np.array([5, 2 * policy.start_phase + 3])
    life = plain_scenario(policy, np.linspace(0.0, 1.0, 2 * rounds).reshape(rounds, 2))
    start = GameStart.of(policy, life)
    later = start.skip_deterministic(policy, life, life.rewards)
    assert later.skipped == 2 * policy.start_phase
    counts = [
        play_blocks(policy, life, life.rewards, [(50, seeded(4))], 2, probes, None, each)
        for each in (start, later)
    ]
    assert np.array_equal(counts[0].pulls, counts[1].pulls)
    assert counts[0].pulls[-1, 0, -1].max() < 50  # chance decides some of the rounds


def test_ctrl_c_among_the_games_ends_the_replay_too():
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


def test_an_error_of_the_replay_is_said_before_one_of_the_games():
    def proof(ended):
        raise PrivacyError("of the replay")

    def games():
        raise ValueError("of the games")

    with pytest.raises(PrivacyError, match="of the replay"):
        run_concurrently(proof, games)
    with pytest.raises(ValueError, match="of the games"):
        run_concurrently(lambda ended: None, games)


def test_a_recorded_game_keeps_no_copies_of_its_states():
    """It kept the state after many of its releases: gigabytes, where many decisions may wait."""
    policy = bl.policy("dp-htinf", arms=3, horizon=10**6, epsilon=1.0, outstanding=65_536)
    game = record(policy, plain_scenario(policy, np.full((40, 3), 0.5)), seed=1)
    assert len(game.fingerprints) >= 16
    assert sum(map(len, game.fingerprints.values())) < 10_000


def test_a_fingerprint_tells_states_apart():
    policy = bl.policy("ftpl", arms=3, horizon=100)
    state = policy.kernels.begin(policy.constants())
    other = copy_state(state)
    assert fingerprint(state) == fingerprint(other)
    other.pending.notes[-1, -1] += 2.0**-40
    assert fingerprint(state) != fingerprint(other)
