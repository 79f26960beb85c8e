"""The file behind the page for a review board."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import balaclava as bl
from balaclava.errors import ExperimentFileError
from balaclava.reporting.assessment_input import (
    PlanInput,
    assessment_template,
    read_assessment,
)
from balaclava.reporting.nist_levels import nist_levels
from balaclava.simulation.feedback import Feedback

POLICY = bl.policy("dp-imed", arms=2, epsilon=1.0)


def test_the_template_asks_every_question(tmp_path: Path) -> None:
    path = tmp_path / "assessment.toml"
    path.write_text(assessment_template(), encoding="utf-8")
    assessment = read_assessment(path)
    asked = {key for level in nist_levels(POLICY, 1, None) for key in level.questions}
    assert set(assessment.answers) == asked
    assert assessment.policy.name == "dp-imed"
    assert assessment.feedback.prompt
    assert assessment.planned == PlanInput(0.45, 0.1, 0.95)
    assert re.fullmatch("[0-9a-f]{64}", assessment.digest)
    path.write_text(
        assessment_template().replace("epsilon = 1.0", "epsilon = 0.5"), encoding="utf-8"
    )
    assert read_assessment(path).digest != assessment.digest


@pytest.mark.parametrize(
    "feedback",
    [
        Feedback.create({"mean": 20, "law": "uniform", "lost": 0.1}, patience=500),
        Feedback.create({"values": [1, 2, 3]}),
        Feedback.create({"mean": 5}, patience=50, settle="window", missing=0.0),
    ],
)
def test_the_template_takes_delays_and_settling(feedback: Feedback, tmp_path: Path) -> None:
    path = tmp_path / "assessment.toml"
    path.write_text(assessment_template(feedback=feedback), encoding="utf-8")
    assert read_assessment(path).feedback == feedback


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("purpose =", "porpose =", "unknown key 'porpose'; did you mean 'purpose'"),
        (
            "consent =",
            "consents =",
            r"key of \[answers\] 'consents'; did you mean 'consent'",
        ),
        ("dp-imed", "dp-imedd", "no policy is called 'dp-imedd'"),
        ("repetitions = 200", "repetitions = 2", "repetitions = 2 is not allowed"),
        ("rewards_per_person = 1", "rewards_per_person = 0", "rewards_per_person = 0"),
        ("horizon = 2000", "", "give `horizon`"),
        ('settle = "arrival"', 'settle = "window"', "settle = 'window' needs patience"),
        ('settle = "arrival"', "missing = 0.0", "missing = 0.0 needs settle = 'window'"),
        ("lost = 0.0", "lost = 2.0", "lost = 2.0"),
        ("lost = 0.0", "loss = 0.0", "loss"),
        ("confidence = 0.95", "confidence = 0.4", "confidence = 0.4 is not allowed"),
        ("base_rate = 0.45", "base_rate = 0.95", "add up to more than 1"),
        ("smallest_difference = 0.1", "", "has no smallest_difference"),
        ("smallest_difference = 0.1", "difference = 0.1", r"unknown key of \[plan\]"),
        ("[environment]", "[environments]", "unknown key 'environments'"),
        ('owner = ""', "owner = 3", "owner must be a string"),
        ('owner = ""', "owner = ", "not well-formed TOML"),
    ],
)
def test_a_wrong_file_is_refused(tmp_path: Path, old: str, new: str, message: str) -> None:
    path = tmp_path / "assessment.toml"
    path.write_text(assessment_template().replace(old, new), encoding="utf-8")
    with pytest.raises(ExperimentFileError, match=message):
        read_assessment(path)


def test_a_page_has_one_horizon(tmp_path: Path) -> None:
    """dp-even learned from 1,500 participants, and the page had the power of 2,720."""
    path = tmp_path / "assessment.toml"
    policy = {"name": "dp-even", "arms": 2, "epsilon": 1.0, "horizon": 1_500}
    path.write_text(assessment_template(policy=policy, horizon=2_720), encoding="utf-8")
    with pytest.raises(ExperimentFileError, match=r"horizon = 1500, but \[simulation\] .* = 2720"):
        read_assessment(path)
    text = assessment_template(policy=policy).replace("horizon = 2000", "")
    path.write_text(text, encoding="utf-8")
    assert read_assessment(path).horizon == 1_500
    path.write_text(assessment_template(policy=policy, horizon=1_500), encoding="utf-8")
    assert read_assessment(path).policy.parameters["horizon"] == 1_500
