"""The report of an audit: its verdict, and what it says."""

from __future__ import annotations

import dataclasses

import pytest

import balaclava as bl
from balaclava.auditing.audit_report import AuditReport
from balaclava.auditing.enumeration.exhaustive_audit import ExhaustiveAudit
from balaclava.auditing.games.statistical_audit import BettingAudit, StatisticalAudit
from balaclava.auditing.laws.exact_audit import ExactAudit, IndexCase
from balaclava.auditing.laws.mechanism_laws import LawAudit
from balaclava.auditing.replay.replay_audit import ReplayAudit
from balaclava.privacy.guarantee import Guarantee

NOTHING = bl.policy("ucb1", arms=2).guarantee
REPLAY = ReplayAudit("consistent", 600, 300, 1.0, 0.0, "", 1.0, ("late rewards",), ("restored",))


def games(epsilon, verdict="consistent"):
    return StatisticalAudit(verdict, epsilon, 0.95, 4_000, "an event", 2)


def report(**parts):
    values = {
        "policy": "dp-x", "parameters": {"arms": 2, "epsilon": 1.0},
        "claimed": Guarantee(epsilon=1.0), "confidence": 0.95, "replay": REPLAY, "exact": None,
        "statistical": games(0.5),
    }  # fmt: skip
    return AuditReport(**(values | parts))


def index_law(verdict):
    return ExactAudit(verdict, 1.0, 0.01, 0.005, 0.004, 10, 1, 10, 10, IndexCase(3, 1))


PARTS = {
    "replay": lambda verdict: dataclasses.replace(REPLAY, verdict=verdict),
    "exact": index_law,
    "exhaustive": lambda verdict: ExhaustiveAudit(verdict, ""),
    "laws": lambda verdict: LawAudit(verdict, 1, 10, ""),
    "statistical": lambda verdict: games(0.5, verdict),
}


@pytest.mark.parametrize("part", PARTS)
@pytest.mark.parametrize("verdict", ["violated", "unproved", "not examined", "consistent"])
def test_the_verdict_is_that_of_the_worst_part(part, verdict):
    assert report(**{part: PARTS[part](verdict)}).verdict == verdict
    other = "laws" if part != "laws" else "exact"
    worse = report(**{part: PARTS[part](verdict), other: PARTS[other]("violated")})
    assert worse.verdict == "violated"


def test_parts_that_do_not_apply_say_nothing():
    assert report(exhaustive=ExhaustiveAudit("does not apply", "why")).verdict == "consistent"
    assert report(statistical=None).epsilon_lower == 0.0
    assert report(replay=None, statistical=None).verdict == "consistent"
    text = str(report(replay=None, statistical=None))
    assert text.count("does not apply") == 5
    assert "reached" not in text


def test_a_claim_of_nothing_is_not_private_however_the_parts_end():
    bare = report(claimed=NOTHING, statistical=games(9.0, "violated"))
    assert bare.verdict == "not private"
    assert not bare.tight
    assert "tightness" not in str(bare)
    assert bare.to_dict()["claimed"]["epsilon"] is None


@pytest.mark.parametrize(
    ("low", "tight", "text"),
    [
        (0.8, True, "tight: the bound reaches 80% of the claim"),
        (1.0, True, "tight: the bound reaches 100% of the claim"),
        (0.799, False, "loose: the bound reaches 79% of the claim; a smaller violation could go"),
        (0.0, False, "loose: the bound reaches 0% of the claim"),
    ],
)
def test_a_bound_is_tight_from_four_fifths_of_the_claim_on(low, tight, text):
    found = report(statistical=games(low))
    assert found.tight is tight
    assert f"tightness:   {text}" in str(found)
    assert found.to_dict()["tight"] is tight
    assert found.to_dict()["epsilon_lower"] == low


def test_a_bound_above_the_claim_is_not_called_consistent():
    above = dataclasses.replace(games(1.2), claimed=1.0)
    words = "above the claim, below the threshold for violated (an error of 1 in 10,000): epsilon"
    assert str(above).startswith(words)
    for low, claimed in ((0.9, 1.0), (0.1, 0.0)):  # 0: nothing is claimed
        inside = dataclasses.replace(games(low), claimed=claimed)
        assert str(inside).startswith("consistent: epsilon is at least")


def test_only_a_consistent_report_speaks_of_tightness():
    unproved = dataclasses.replace(REPLAY, verdict="unproved")
    assert "tightness" not in str(report(replay=unproved, statistical=games(0.9)))


def test_a_refuted_claim_has_no_tightness_and_bets_have_none():
    assert "tightness" not in str(report(statistical=games(1.01, "violated")))
    assert "tightness" in str(report(statistical=games(1.0)))
    assert "tightness" not in str(report(statistical=BettingAudit("", 2.0, 1e-3, 10, "", 1)))
    nothing = report(claimed=Guarantee(epsilon=0.0, delta=0.1), statistical=games(0.0))
    assert not nothing.tight
    assert "loose: the bound reaches 0% of the claim" in str(nothing)


def test_the_report_in_words():
    found = report(laws=LawAudit("consistent", 1, 2_000, ""), notes=("one", "two"))
    lines = str(found).split("\n")
    assert lines[0] == "dp-x(arms=2, epsilon=1.0)"
    assert [line.split(":")[0] for line in lines[1:]] == [
        "claims", "verdict", "replay", "laws", "exact", "exhaustive", "statistical", "reached",
        "not reached", "tightness", "note", "note",
    ]  # fmt: skip
    assert lines[2] == "verdict:     CONSISTENT"
    assert lines[8:10] == ["reached:     late rewards", "not reached: restored"]
    page = found._repr_html_()
    assert "dp-x(arms=2, epsilon=1.0)" in page
    assert page.count("<tr>") == len(lines)


def test_the_replay_in_words():
    assert str(REPLAY) == (
        "consistent: 600 neighbouring pairs; in 300 a mechanism's input moved; decisions agreed; "
        "largest loss epsilon 1 (declared 1)"
    )
    assert "largest loss epsilon 1, delta 0.01 (" in str(dataclasses.replace(REPLAY, delta=0.01))
    hurried = str(dataclasses.replace(REPLAY, untried=40))
    assert "600 neighbouring pairs (40 fewer than planned: time was up); in 300" in hurried
    faulty = dataclasses.replace(REPLAY, verdict="unproved", fault="why", pairs=1_200)
    assert str(faulty) == "unproved (1,200 pairs tried): why"


def test_two_replays_are_merged():
    later = ReplayAudit("consistent", 48, 7, 0.5, 0.0, "", 1.0, ("restored",), ("late rewards",))
    both = REPLAY.joined(later)
    assert (both.pairs, both.moved, both.epsilon, both.verdict) == (648, 307, 1.0, "consistent")
    assert (both.reached, both.missed) == (("late rewards", "restored"), ())
    none = dataclasses.replace(REPLAY, moved=0)
    assert none.joined(dataclasses.replace(none, pairs=1)).verdict == "not examined"
    fault = dataclasses.replace(later, verdict="violated", fault="why")
    assert REPLAY.joined(fault) is fault
    missed = REPLAY.joined(dataclasses.replace(later, reached=(), missed=("b", "a")))
    assert missed.missed == ("a", "b", "restored")


def test_the_exact_audit_in_words():
    assert str(index_law("consistent")) == (
        "consistent: 10 sample sizes from 1 to 10; true delta 0.005 at epsilon 1, claimed 0.01; "
        "worst with 3 rewards of sum 1 or 2"
    )
    partly = dataclasses.replace(index_law("consistent"), last=50)
    assert "from 1 to 50 (all until 10)" in str(partly)


def test_the_exhaustive_audit_in_words():
    found = ExhaustiveAudit("consistent", "", 6, 1_200, 3_400, 0.7, 0.0, {"arms": 2}, ("beta",))
    assert str(found) == (
        "consistent: all 3,400 sequences, 1,200 neighbouring pairs in 6 rounds at arms=2; exact "
        "epsilon 0.7; rng.beta has a few values"
    )
    bare = dataclasses.replace(found, epsilon=None, delta=0.25, changed={}, coarse=())
    assert str(bare).endswith("pairs in 6 rounds; exact delta 0.25")
    assert str(dataclasses.replace(found, verdict="unproved", reason="why")).endswith("2; why")
    assert found.fits
