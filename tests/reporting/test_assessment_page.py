"""The page for a review board."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path

import pytest
from click.testing import CliRunner

import balaclava as bl
from balaclava.cli import main
from balaclava.reporting.assessment_input import (
    AssessmentInput,
    assessment_template,
)
from balaclava.reporting.assessment_page import assessment_page, conclusion
from balaclava.reporting.quick_audits import AuditSummary
from tests.browser import chromium, needs_browser

WORLD = bl.environment("bernoulli", means=[0.3, 0.7])

POLICY = bl.policy("dp-imed", arms=2, epsilon=1.0)

GIVEN = AssessmentInput(POLICY, WORLD, horizon=500, title="Pages & <prices>", repetitions=20)

FINE = AuditSummary(
    "ε=1 per trajectory",
    "consistent",
    "agreed",
    "as said",
    "does not apply",
    "at least 0.6",
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
    assert "twice this<sup>*</sup>" in page
    assert "This is not a second loss" in page
    assert "by &lt;letter&gt;" in page
    assert page.count('class="blank"') == 3 + 16  # purpose, population, date; answers
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
    assert "The winner: at 95% confidence" in page
    weak = dataclasses.replace(GIVEN, policy=bl.policy("dp-imed", arms=2, epsilon=0.001))
    assert "it hardly learns here" in conclusion(weak, weak.simulate(), FINE)[0]


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
    assert "give either SOURCE or" in run.invoke(main, ["report"]).output
    missing = run.invoke(main, ["report", "--assessment", "none.toml"])
    assert "none.toml cannot be read: No such file" in missing.output


@needs_browser
def test_it_prints(tmp_path: Path) -> None:
    """Every level and the glossary on a few sheets; the last one is not empty."""
    page = tmp_path / "page.html"
    page.write_text(assessment_page(GIVEN, results=GIVEN.simulate(), audit=FINE), encoding="utf-8")
    file = tmp_path / "page.pdf"
    chromium(f"--print-to-pdf={file}", page.as_uri(), profile=tmp_path / "profile")
    assert 4 <= len(re.findall(rb"/Type\s*/Page\b", file.read_bytes())) <= 6
