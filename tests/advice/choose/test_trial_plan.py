"""`bl.plan`: participants until the best arm is named, and `balaclava plan`."""

from __future__ import annotations

import json
import math
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

import balaclava as bl
from balaclava.cli import main
from balaclava.errors import ParameterError

PLAN = bl.plan(3, [0.3, 1.0], base_rate=0.3, smallest_difference=0.3, participants=2_000)


@pytest.mark.statistical
def test_the_quantiles_are_those_of_fresh_trials():
    """100 fresh trials: the share named by the planned median and 90 % is within 5 deviations."""
    row = next(row for row in PLAN if row.label == "dp-top-two" and row.epsilon == 1.0)
    world = bl.environment("bernoulli", means=[0.3, 0.3, 0.6])
    policy = bl.policy("dp-top-two", arms=3, epsilon=1.0, confidence=0.95)
    for rounds, share in ((row.median, 0.5), (row.high, 0.9)):
        results = bl.simulate(
            policy, world, horizon=int(rounds), repetitions=100, seed=7, winners=True
        )
        named = 1.0 - results.winners(0.95)[0].none
        error = math.sqrt(share * (1.0 - share) * (1 / 100 + 1 / 200))
        assert abs(named - share) < 5 * error
    assert row.wrong <= 0.05
    assert row.worse < row.high


def test_less_privacy_takes_fewer_participants():
    strict, loose = (row for row in PLAN if row.label == "dp-top-two")
    assert strict.epsilon < loose.epsilon
    assert strict.median > loose.median
    assert PLAN[-1].label == "classic test"
    assert PLAN[-1].high < loose.high
    assert all(math.isnan(row.high) for row in PLAN if row.label == "dp-imed")
    assert "2,000 participants suffice" in PLAN.sentence


def test_the_classic_test_has_the_size_of_the_usual_formula():
    """Two arms, 0.5 and 0.6: n = (z_.95 + z_.9)^2 (p q + p' q') / d^2 = 420 an arm, within 5 %."""
    row = bl.plan(2, 3.0, base_rate=0.5, smallest_difference=0.1)[-1]
    expected = 2 * (1.6449 + 1.2816) ** 2 * (0.25 + 0.24) / 0.01
    assert row.high == pytest.approx(expected, rel=0.05)
    assert row.worse == row.high / 2


def test_lost_rewards_cost_participants():
    late = bl.plan(2, 1.0, base_rate=0.3, smallest_difference=0.4, delay=50, lost=0.5)
    prompt = bl.plan(2, 1.0, base_rate=0.3, smallest_difference=0.4)
    assert late[0].median > 1.5 * prompt[0].median
    assert np.isclose(late[-1].high, 2 * prompt[-1].high, rtol=0.1)
    assert "50 rounds late, 50% lost" in late.title


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"arms": 1}, "nothing to compare"),
        ({"smallest_difference": 0.0}, "smallest_difference"),
        ({"smallest_difference": 0.9}, "add up to more than 1"),
        ({"confidence": 0.5}, "confidence"),
        ({"confidence": 1.0}, "confidence"),
        ({"base_rate": 1.0}, "base_rate"),
        ({"epsilon": []}, "epsilon is empty"),
        ({"epsilon": 0.0}, "epsilon"),
        ({"lost": 1.0}, "lost"),
        ({"delay": "soon"}, "delay"),
        ({"delay": bl.Delay(mean=5), "lost": 0.1}, "twice"),
        ({"participants": 1}, "participants"),
        ({"smallest_difference": 1e-6}, "larger smallest_difference"),
        ({"policy": bl.policy("dp-imed", arms=2, epsilon=1.0)}, "2 arms"),
    ],
)
def test_bad_input(options, words):
    usual = {"arms": 3, "epsilon": 1.0, "base_rate": 0.3, "smallest_difference": 0.1}
    with pytest.raises(ParameterError, match=words):
        bl.plan(**{**usual, **options})


def test_the_command(tmp_path: Path):
    picture = tmp_path / "plan.png"
    asked = ["plan", "--arms", "3", "--rate", "0.3", "--difference", "0.3", "--epsilon", "0.3,1"]
    printed = CliRunner().invoke(main, [*asked, "--participants", "2000", "--plot", str(picture)])
    assert printed.exit_code == 0, printed.output
    assert printed.output.strip() == str(PLAN)
    assert picture.read_bytes()[:4] == b"\x89PNG"
    as_json = CliRunner().invoke(main, [*asked, "--json"])
    assert json.loads(as_json.output)["rows"][0]["label"] == "dp-top-two"
    refused = CliRunner().invoke(main, [*asked[:-1], "one"])
    assert refused.exit_code == 2
    assert "'one' is not a number" in refused.output
