"""The references of the benchmarks play the very policies that they are compared with."""

from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np
import pytest

import balaclava as bl
import delays
import full_audit
import measuring
import processes
import short_trials
import steps

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


# Of each kind one; `make test-all` takes them all.
QUICK = {"ucb1", "dp-ftpl-gauss", "dp-ucb", "exp3"}
RIVALS = [
    pytest.param(rival, id=rival.name, marks=[] if rival.name in QUICK else [pytest.mark.slow])
    for rival in steps.RIVALS
]


@pytest.mark.parametrize("rival", RIVALS)
def test_a_loop_written_by_hand_makes_the_decisions_of_the_policy(rival: steps.Rival) -> None:
    policy = rival.policy(9)
    # Past the start phase, where there is one.
    rounds = 400 + 9 * getattr(policy, "start_phase", 1)
    regret = steps.simulate(policy, rounds, checkpoints=rounds).regret(rival.name)[0]
    gaps = steps.problem(policy).gaps
    by_hand = [rival.play(9, n) @ gaps for n in range(1, rounds + 1)]
    np.testing.assert_allclose(regret, by_hand, rtol=1e-12, atol=1e-12)


@pytest.mark.slow
def test_the_loop_by_hand_with_delays_makes_the_decisions_of_the_policy() -> None:
    late, policy = bl.Delay(mean=20), steps.RIVALS[0].policy(9)
    for rounds in (50, 300, 2_000):
        results = steps.simulate(policy, rounds, delay=late, patience=late.longest)
        by_hand = delays.by_hand(steps.PROBLEMS[9], rounds, late)
        assert np.array_equal(results.runs["ucb1"][0].pulls, by_hand)


def test_the_quick_harness_measures() -> None:
    lines = [
        steps.against_its_loop(steps.RIVALS[0], 9, rounds=1000, repeats=3),
        *processes.threads(quick=True),
        *processes.start_up(quick=True),
    ]
    for line in lines:
        assert 0.0 < line.lowest <= line.value <= line.highest, line
        assert line.verdict in ("met", "NOT MET")


def test_every_phased_policy_can_be_measured() -> None:
    assert "dp-se" in steps.phased_names()
    for name in steps.phased_names():
        agent = steps.usual(name, 1000).agent(seed=1)
        arms = {agent.ask().arm for _ in range(200)}
        assert len(arms) > 1, name
        assert arms <= set(range(9)), name


def test_ratios_are_taken_within_a_round() -> None:
    assert measuring.ratios([1.0, 4.0, 9.0], [1.0, 2.0, 3.0]) == (2.0, 1.0, 3.0)


@pytest.mark.parametrize(
    ("value", "sign", "target", "verdict"),
    [
        (1.3, "<=", 1.3, "met"),
        (1.31, "<=", 1.3, "NOT MET"),
        (149.0, ">=", 150.0, "NOT MET"),
        (151.0, ">=", 150.0, "met"),
        (9.0, "", 0.0, "-"),
    ],
)
def test_a_line_says_whether_its_target_is_met(
    value: float, sign: str, target: float, verdict: str
) -> None:
    line = measuring.Line("what", "1 ns", "2 ns", value, value, value, sign, target)
    assert line.verdict == verdict
    assert measuring.table([line]).splitlines()[-1].split("|")[-2].strip() == verdict


@pytest.mark.slow
def test_the_advice_for_short_trials_is_no_worse_than_chance() -> None:
    """Two settings in which the advice was once worse than a coin."""
    rows = [short_trials.measure(*setting, rounds=2_000_000) for setting in short_trials.QUICK[:2]]
    assert not any(row.above_random for row in rows)
    assert all(row.ratio < 1.3 for row in rows)
    assert "0 of 2" in short_trials.verdict(rows)


def test_every_private_policy_has_a_setting_for_the_full_audit() -> None:
    """Two of them could not be made: the command failed when it came to them."""
    record = json.loads(full_audit.RECORD.read_text(encoding="utf-8"))
    for name in full_audit.private_names():
        assert full_audit.policy_of(name).arms == 2
    rows = [*record["cpu"].values(), *record["cuda"].values()]
    assert all(re.fullmatch(r"[0-9a-f]{8}", row["commit"]) for row in rows)
    assert (BENCHMARKS.parent / "docs" / "audit.md").read_text() == full_audit.page(record)
