"""In small worlds every law is computed: correct policies keep their claim, broken ones do not."""

from __future__ import annotations

import dataclasses
import json
import math
from typing import Annotated

import pytest

import balaclava as bl
from balaclava.auditing.enumeration import small_worlds
from balaclava.auditing.enumeration.exhaustive_audit import audit_exhaustively
from balaclava.authoring import Epsilon, PrivateBoundedPolicy, Range, laplace_release
from tests.oracles.violators import PROVED_CONTROLS, UNUSUAL_CONTROLS, VIOLATORS
from tests.oracles.violators.frame import begin, frame

# The largest exact epsilon that these decisions show, and the claim is 1. The noise that is 1.25
# or 2 times too small shows almost whole: an arm's score is compared with another's.
EXACT = {
    "half-noise": 2.0,
    "a-quarter-more": 1.25,
    "root-two": math.sqrt(2),
    "wrong-sensitivity": 2.0,
    "one-release-a-quarter-more": 1.25,
    "mean-of-more": 5 / 3,
    "last-counts-twice": 2.0,
    "talkative": 2.0,
}
SEEN = [
    *("data-reused", "decayed", "redrawn", "stretched", "lost-returns", "averages", "half-steps"),
    *("winner-only-noise", "spends-for-lost", "raw-if-alone", "refuses-large-sums"),
]


@pytest.mark.parametrize("epsilon", [0.1, 1.0, 5.0])
def test_randomized_response_keeps_its_claim_with_equality(epsilon):
    found = audit_exhaustively(bl.policy("ldp-ucb-bernoulli", arms=2, epsilon=epsilon))
    assert found.verdict == "consistent"
    assert found.epsilon == pytest.approx(epsilon, rel=1e-9)
    assert found.rounds >= 6
    assert found.pairs == 6 * 32 + 5 * 16 + 1 + 1


@pytest.mark.parametrize("name", ["dp-imed", "adap-ucb", "lazy-dp-ucb", "dp-se", "ldpr-se"])
def test_a_tight_policy_reaches_its_claim_and_does_not_exceed_it(name):
    assumed = {"moment_order": 2, "moment_bound": 1.0} if name == "ldpr-se" else {}
    policy = bl.policy(name, arms=3, epsilon=0.7, horizon=1000, **assumed)
    found = audit_exhaustively(policy)
    assert (found.verdict, found.reason) == ("consistent", "")
    assert found.epsilon == pytest.approx(0.7, rel=1e-5)
    assert found.changed["arms"] == 2


def noise_of_a_mean(params, state, rng):
    """The sum of an arm with the noise of a mean: right for a batch of one."""
    state.scores[0] = laplace_release(rng, state.sums[0], 1.0 / state.length[0], params.epsilon)


@bl.kernel
def begin_with_batch(params):
    state = begin(params)
    state.length[0] = params.first_batch
    return state


class NoiseOfAMean(PrivateBoundedPolicy):
    """Releases sums with too little noise where a batch has more than one reward."""

    name = "noise-of-a-mean"
    kernels = frame(score=noise_of_a_mean)._replace(begin=begin_with_batch)
    epsilon: Epsilon
    first_batch: Annotated[int, Range(1, meaning="decisions in a batch")] = 10


def test_batches_of_two_show_what_a_single_reward_hides():
    found = audit_exhaustively(NoiseOfAMean(arms=2, epsilon=1.0), games=False)
    assert found.verdict == "unproved", str(found)
    assert found.epsilon == pytest.approx(2.0, rel=0.005)
    assert found.changed == {"first_batch": 2}


def test_worlds_that_are_too_large_are_counted(monkeypatch):
    """The verdict is on fewer neighbours than planned, and says so."""
    policy = bl.policy("dp-imed", arms=2, epsilon=1.0)
    whole = audit_exhaustively(policy)
    assert (whole.left_out, "fewer than planned" in str(whole)) == (0, False)
    monkeypatch.setattr(small_worlds, "_MOST_RUNS", 70)
    part = audit_exhaustively(policy)
    assert part.pairs < whole.pairs
    assert f"(fewer than planned: {part.left_out} worlds could not be" in str(part)


def test_a_claim_on_single_decisions_has_its_exact_delta():
    policy = bl.policy("dp-ftpl-new", arms=2, epsilon=1.0, delta=0.01, horizon=100)
    found = audit_exhaustively(policy)
    assert found.verdict == "consistent"
    assert 0.009 < found.delta <= 0.01
    assert found.epsilon is None


@pytest.mark.parametrize("name", EXACT)
def test_a_violator_has_its_exact_epsilon(name):
    found = audit_exhaustively(VIOLATORS[name].policy, games=False)
    assert found.verdict in ("unproved", "violated")
    assert found.epsilon == pytest.approx(EXACT[name], rel=0.005)
    assert "claimed 1: the decisions " in found.reason
    assert "(arms in order) reveal the reward of round" in found.reason


@pytest.mark.parametrize("name", SEEN)
def test_a_violator_exceeds_its_claim(name):
    found = audit_exhaustively(VIOLATORS[name].policy, games=False)
    assert found.verdict in ("unproved", "violated"), str(found)


@pytest.mark.parametrize("name", ["no-noise", "talkative", "raw-by-luck", "exponential-too-much"])
def test_without_rounded_answers_a_violation_is_certain(name):
    assert audit_exhaustively(VIOLATORS[name].policy, games=False).verdict == "violated"


@pytest.mark.slow
def test_games_confirm_a_violation_with_the_real_noise():
    found = audit_exhaustively(VIOLATORS["half-noise"].policy)
    assert found.verdict == "violated"
    assert "games on this pair refute the claim" in found.reason


@pytest.mark.parametrize("name", PROVED_CONTROLS)
def test_a_control_keeps_its_claim(name):
    found = audit_exhaustively(PROVED_CONTROLS[name].policy)
    assert found.verdict == "consistent"
    assert found.epsilon <= 1.0 + 1e-9


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=[] if number % 7 == 0 else [pytest.mark.slow])
        for number, name in enumerate(UNUSUAL_CONTROLS)
    ],
)
def test_an_unusual_control_is_never_called_violated(name):
    """Sparse vectors and exponential mechanisms: proofs of another kind than composition."""
    found = audit_exhaustively(UNUSUAL_CONTROLS[name].policy, games=False)
    assert found.verdict in ("consistent", "unproved", "does not apply")
    assert found.verdict != "unproved" or name == "noise-apart"  # its noise alone is rounded


@pytest.mark.parametrize(
    ("policy", "reason"),
    [
        (bl.policy("ucb1", arms=2), "it claims nothing"),
        (bl.policy("random", arms=2), "nothing depends on a reward"),
        (bl.policy("dpr-adaptive-ucb", arms=2, epsilon=1.0), "too many outcomes"),
        (VIOLATORS["thompson"].policy, "privacy rests on rng.beta"),
        (VIOLATORS["third-nan"].policy, "a kernel raises IndexError"),
    ],
    ids=lambda each: each.name if isinstance(each, bl.Policy) else None,
)
def test_what_does_not_fit_says_why_and_proves_nothing(policy, reason):
    found = audit_exhaustively(policy)
    assert not found.fits
    assert found.verdict == "does not apply"
    assert reason in str(found)


def test_a_huge_epsilon_is_lowered_so_that_no_probability_vanishes():
    found = audit_exhaustively(bl.policy("ldp-ucb-bernoulli", arms=2, epsilon=1000.0))
    assert found.verdict == "consistent"
    assert found.changed == {"epsilon": 8.0}


def test_a_draw_outside_the_mechanisms_is_named():
    found = audit_exhaustively(bl.policy("lazy-dp-ts", arms=2, epsilon=1.0))
    assert found.verdict == "consistent"
    assert "rng.beta has a few values" in str(found)


def test_it_is_part_of_every_audit():
    policy = bl.policy("ldp-ucb-bernoulli", arms=2, epsilon=1.0)
    report = bl.audit(policy, trials=2_000, pairs=20, seed=1)
    assert report.exhaustive.epsilon == pytest.approx(1.0)
    assert "exhaustive:  consistent: all" in str(report)
    assert json.loads(json.dumps(report.to_dict()))["exhaustive"]["verdict"] == "consistent"
    assert report.verdict == "consistent"
    broken = audit_exhaustively(VIOLATORS["talkative"].policy)
    assert dataclasses.replace(report, exhaustive=broken).verdict == "violated"
    nothing = audit_exhaustively(bl.policy("ucb1", arms=2))
    assert dataclasses.replace(report, exhaustive=nothing).verdict == "consistent"
