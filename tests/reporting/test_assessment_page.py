"""The page for a review board."""

from __future__ import annotations

import dataclasses
import html
import re
from pathlib import Path

import pytest
from click.testing import CliRunner

import balaclava as bl
from balaclava.cli import main
from balaclava.errors import ParameterError
from balaclava.reporting.assessment_input import (
    AssessmentInput,
    PlanInput,
    assessment_template,
    read_assessment,
)
from balaclava.reporting.assessment_page import assessment_page, conclusion
from balaclava.reporting.quick_audits import AuditSummary
from balaclava.simulation.feedback import Feedback
from tests.browser import chromium, needs_browser

WORLD = bl.environment("bernoulli", means=[0.3, 0.7])

POLICY = bl.policy("dp-imed", arms=2, epsilon=1.0)

EXPLORING = bl.policy("dp-imed", arms=2, epsilon=1.0, explore=0.5)

GIVEN = AssessmentInput(POLICY, WORLD, horizon=500, title="Pages & <prices>", repetitions=20)

FINE = AuditSummary(
    "ε=1 per trajectory",
    "consistent",
    "agreed",
    "as said",
    "does not apply",
    "at least 0.6",
    "consistent: all 24 sequences",
)


def test_what_the_board_reads() -> None:
    assessment = dataclasses.replace(
        GIVEN, rewards_per_person=3, answers={"consent": "by <letter>"}, owner="The clinic"
    )
    page = assessment_page(assessment, audit=FINE)
    assert page.count('class="level"') == 8
    assert "Pages &amp; &lt;prices&gt;" in page
    assert "<prices>" not in page
    assert "ε=3 per trajectory for 3 rewards" in page  # per person
    assert "at most twice this" not in page
    assert "1 is usual" not in page
    assert "stop the trial for harm" in page
    assert "by &lt;letter&gt;" in page
    assert page.count('class="blank"') == 3 + 20  # purpose, population, date; answers
    assert "Not simulated for this page" in page
    for word in ("http://", "https://", "<script", "src="):
        assert word not in page


def test_copies_of_a_save_are_said_to_be_refused_where_they_are() -> None:
    """tests/agents/test_save_files.py tests what the page says; dicts are not tracked."""
    page = " ".join(assessment_page(GIVEN).split())
    assert "a save file names the agent that continues from it, once" in page
    assert "does not notice a copy of the file in another place, or a save that was never" in page
    saved = POLICY.agent().save()
    assert bl.restore(saved).ask().id != bl.restore(saved).ask().id


def test_a_trial_of_fixed_size_is_not_judged_before_its_last_rewards() -> None:
    """A simulation ends with the last decision; an agent would wait and finish."""
    even = bl.policy("dp-even", arms=2, epsilon=1.0, horizon=500)
    prompt = dataclasses.replace(GIVEN, policy=even)
    words, good = conclusion(prompt, prompt.simulate(), FINE)
    assert good
    assert "gives all arms even shares, by design, and names the best arm in 100% of" in words
    late = dataclasses.replace(prompt, feedback=Feedback(bl.Delay(mean=100)))
    words, good = conclusion(late, late.simulate(), FINE)
    assert good
    assert words.endswith("gives all arms even shares, by design.")
    planned = dataclasses.replace(late, planned=PlanInput(0.3, 0.4))
    words, good = conclusion(planned, planned.simulate(), FINE, planned.plan())
    assert words.endswith("by design; planned trials of this size name the best arm in 100 %.")


def test_the_conclusion_is_honest() -> None:
    words, good = conclusion(GIVEN, None, FINE)
    assert words.startswith("dp-imed gives each person ε=1 per trajectory; an audit found nothing")
    assert good
    assert conclusion(GIVEN, None, None)[1] is False  # not audited
    for verdict in ("violated", "unproved", "not examined"):
        words, good = conclusion(GIVEN, None, FINE._replace(verdict=verdict))
        assert "do not run it" in words
        assert not good
    bare = dataclasses.replace(GIVEN, policy=bl.policy("ucb1", arms=2))
    assert conclusion(bare, None, None)[0].startswith("ucb1 guarantees a person nothing")
    results = GIVEN.simulate()
    words, good = conclusion(GIVEN, results, FINE)
    assert "of what playing at random loses" in words
    page = assessment_page(GIVEN, results=results, audit=FINE)
    assert "worst of 20" in page
    assert "By the end the policy names the best arm in" in page
    weak = dataclasses.replace(GIVEN, policy=bl.policy("dp-imed", arms=2, epsilon=0.001))
    assert "it hardly learns: " in conclusion(weak, weak.simulate(), FINE)[0]


def test_the_headline_says_how_often_a_winner_is_named() -> None:
    short = dataclasses.replace(GIVEN, horizon=60)
    words, _ = conclusion(short, short.simulate(), FINE)
    assert words.endswith("names the best arm in 0% of the runs, at 95% confidence.")
    long = dataclasses.replace(GIVEN, horizon=5_000, policy=EXPLORING)
    words, _ = conclusion(long, long.simulate(), FINE)
    assert words.endswith("names the best arm in 100% of the runs, at 95% confidence.")
    single = bl.policy("dp-ftpl-gauss", arms=2, epsilon=1.0, delta=1e-3)
    mute = dataclasses.replace(GIVEN, policy=single)
    assert "cannot name a winner" in conclusion(mute, mute.simulate(), FINE)[0]


def test_the_page_describes_the_trial_with_its_delays() -> None:
    """300 decisions late of 1,000: a share of the regret at random that a prompt trial hides."""
    prompt = dataclasses.replace(GIVEN, horizon=1_000)
    late = prompt.with_feedback(delay={"mean": 300, "lost": 0.1})
    shares = []
    for each in (prompt, late):
        results = each.simulate()
        assert results.feedback == each.feedback
        page = assessment_page(each, results=results, audit=FINE)
        shares.append(_share(conclusion(each, results, FINE)[0]))
        assert "does not cover when a reward arrived" in page
        assert "does not depend on the value of any reward; if it does, set settle" in page
    assert "Rewards: geometric delay of mean 300, 10 % lost." in page
    assert shares[0] + 20 < shares[1]
    window = late.with_feedback(settle="window", patience=400, missing=0.0)
    page = assessment_page(window, results=window.simulate(), audit=FINE)
    assert "The guarantee covers when a reward arrived and whether it arrived" in page
    assert "settled after a window of 400, missing counts 0." in page
    with pytest.raises(ParameterError, match="missing = 2"):
        late.with_feedback(settle="window", patience=400, missing=2.0)


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("dp-top-two", "Ville's inequality it ever reaches (K - 1)/δ"),
        ("dp-even", "in the exact law of the released means"),
        ("private-ucb", "an arm whose interval lies above all others"),
        ("dp-ftpl-gauss", "This policy names no arm"),
    ],
)
def test_the_page_has_the_plan(name: str, why: str) -> None:
    """Size, stopping rule, chance of error, and why."""
    more = {"dp-even": {"horizon": 500}, "dp-ftpl-gauss": {"delta": 1e-3}}
    more["private-ucb"] = {"horizon": 500}
    policy = bl.policy(name, arms=2, epsilon=1.0, **more.get(name, {}))
    planned = PlanInput(0.3, 0.4, 0.9) if name in ("dp-top-two", "dp-even") else None
    trial = dataclasses.replace(GIVEN, policy=policy, planned=planned)
    page = " ".join(assessment_page(trial, audit=FINE, plan=trial.plan()).split())
    assert why in html.unescape(page)
    if planned is None:
        assert "No number of participants was planned" in page or name == "dp-ftpl-gauss"
        return
    assert "δ = 10 %" in page
    assert "<strong>Stopping rule.</strong>" in page
    assert '<th scope="row">classic test</th>' in page
    assert f"{name} 100 % at epsilon 1" in page or f"{name} 99 % at epsilon 1" in page
    assert ("however often one looks" in page) == (name == "dp-top-two")
    words, _ = conclusion(trial, trial.simulate(), FINE)
    assert "at 90% confidence" in words


def _share(words: str) -> int:
    match = re.search(r"(\d+)% of (?:what playing|the regret)", words)
    assert match is not None, words
    return int(match[1])


def test_commands(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    run = CliRunner()
    assert run.invoke(main, ["assessment"]).output == assessment_template()
    assert run.invoke(main, ["assessment", "--init"]).exit_code == 0
    again = run.invoke(main, ["assessment", "--init"])
    assert again.exit_code == 2
    assert "exists already" in again.output
    short = assessment_template().replace("2000", "300").replace("= 200", "= 20")
    Path("assessment.toml").write_text(short, encoding="utf-8")
    answer = run.invoke(main, ["report", "--assessment", "assessment.toml", "--no-audit"])
    assert answer.exit_code == 0, answer.output
    assert "Not audited for this page" in Path("assessment.html").read_text(encoding="utf-8")
    late = ["--delay", "40", "--settle", "window", "--patience", "99", "--missing", "0"]
    answer = run.invoke(main, ["report", "--assessment", "assessment.toml", "--no-audit", *late])
    assert answer.exit_code == 0, answer.output
    page = Path("assessment.html").read_text(encoding="utf-8")
    assert "geometric delay of mean 40, settled after a window of 99, missing counts 0." in page
    other = run.invoke(main, ["report", "somewhere", "--lost", "0.1"])
    assert "--delay is for --assessment" in other.output
    assert "give either SOURCE or" in run.invoke(main, ["report"]).output
    missing = run.invoke(main, ["report", "--assessment", "none.toml"])
    assert "none.toml cannot be read: No such file" in missing.output


@needs_browser
def test_it_prints(tmp_path: Path) -> None:
    """Every level whole, the plan and the glossary on a few sheets; the last one is not empty."""
    page = tmp_path / "page.html"
    page.write_text(assessment_page(GIVEN, results=GIVEN.simulate(), audit=FINE), encoding="utf-8")
    file = tmp_path / "page.pdf"
    chromium(f"--print-to-pdf={file}", page.as_uri(), profile=tmp_path / "profile")
    assert 4 <= len(re.findall(rb"/Type\s*/Page\b", file.read_bytes())) <= 8


EVEN = bl.policy("dp-even", arms=4, epsilon=1.0, horizon=2_500)


def test_the_row_of_a_plan_is_of_the_planned_participants() -> None:
    """2,571 of 3,428 participants stood beside the power of 2,500."""
    table = bl.plan(4, 1.0, base_rate=0.6, smallest_difference=0.1, policy=EVEN, participants=2_500)
    row = table.of("dp-even")
    assert row.high > 2_500
    assert row.worse == 1_875
    more = bl.plan(4, 1.0, base_rate=0.6, smallest_difference=0.1, policy=EVEN, participants=9_000)
    assert more.of("dp-even").worse == 6_750  # all are tested
    found = bl.plan(2, 1.0, base_rate=0.4, smallest_difference=0.3, participants=60)
    assert all(row.worse <= 60 for row in found)


def test_a_page_of_even_shares_has_no_chart_of_regret_and_knows_its_participants() -> None:
    given = dataclasses.replace(GIVEN, policy=EVEN, horizon=2_500)
    page = " ".join(assessment_page(given).split())
    assert "Planned for 2,500 participants" in page
    assert "Of the 2,500 participants planned, 1,875 get an arm that is not the best" in page
    assert "No number of participants was planned" not in page
    assert "the problem below" not in page
    assert "No decision before the end of the trial depends on any" in page
    assert "know 25 % of the next arms for sure, and guess 52 % right" in page
    assert "Who sees which arm a participant gets, or its propensity" in page
    long = bl.policy("dp-even", arms=4, epsilon=1.0, horizon=2_500, longest_block=3)
    assert "each arm 1 to 3 times" in assessment_page(dataclasses.replace(given, policy=long))
    few = bl.policy("dp-even", arms=2, epsilon=1.0, horizon=500)
    small = dataclasses.replace(GIVEN, policy=few, horizon=500)
    page = assessment_page(small, results=small.simulate())
    assert "Mean regret" not in page
    assert "names the best arm" in page


def test_the_audit_is_in_plain_words() -> None:
    page = assessment_page(GIVEN, audit=FINE)
    assert f"verdict: {FINE.verdict}" in page
    assert FINE.statistical not in page


def test_the_horizon_of_the_simulation_is_that_of_the_policy(tmp_path: Path) -> None:
    text = assessment_template(policy={"name": "dp-even", "arms": 2, "epsilon": 1.0}, horizon=400)
    path = tmp_path / "board.toml"
    path.write_text(text, encoding="utf-8")
    assert read_assessment(path).policy.parameters["horizon"] == 400


def test_the_page_of_a_trial_with_looks_says_what_they_do() -> None:
    """It had the power of one look, and said that no decision depends on answers."""
    shown = {}
    for looks in (1, 5):
        policy = bl.policy("dp-even", arms=2, epsilon=1.0, horizon=100, looks=looks)
        planned = PlanInput(0.3, 0.3)
        late = Feedback(bl.Delay(mean=10))
        given = dataclasses.replace(
            GIVEN, policy=policy, horizon=100, planned=planned, feedback=late
        )
        plan = given.plan()
        assert plan is not None
        words, _ = conclusion(given, given.simulate(), FINE, plan)
        page = html.unescape(" ".join(assessment_page(given, plan=plan).split()))
        continues = "Whether the trial continues after an earlier look depends on the answers"
        assert (continues in page) == (looks == 5)
        assert ("at one of 5 looks." in words) == (looks == 5)
        assert ("one exact one-sided test at the end" in page) == (looks == 1)
        costs = re.search(r"What epsilon costs.*?</table>", page)
        assert costs is not None
        assert re.findall(r'scope="row">([\d.]+)<', costs[0]) == ["0.1", "0.3", "1", "3"]
        shown[looks] = plan.of("dp-even").named
    assert shown[5] < shown[1] - 0.1
