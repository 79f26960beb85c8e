"""The policies that fit are played; "random" is advised if none pays."""

from __future__ import annotations

from typing import Any

import pytest
from click.testing import CliRunner

import balaclava as bl
from balaclava.cli import main

MORE: dict[str, dict[str, Any]] = {
    "heavy-tailed": {"moment_order": 1.5, "moment_bound": 2.0},
    "outliers": {"moment_order": 2.0, "moment_bound": 1.0, "contamination": 0.05},
    "experts": {"experts": 4},
}


def test_short_trials_are_played_at_random() -> None:
    """Where too little can be learned, "random" is advised, and from when on more would be."""
    advice = bl.recommend(arms=4, horizon=500, epsilon=0.05)
    assert advice.policy.name == "random"
    assert eval(advice.code, {"bl": bl}) == advice.policy
    assert str(advice.guarantee) == "ε=0 per trajectory"
    assert advice.contest is not None
    assert not advice.contest.pays
    (note,) = advice.notes
    assert "of the regret of playing at random; dp-imed would pay from a horizon of about" in note
    output = invoke("--no-ask", "--arms", "4", "--horizon", "500", "--epsilon", "0.05")
    assert output.startswith("policy:   random, ε=0 per trajectory\n")
    assert "nothing that fits beats playing at random" in " ".join(output.split())


@pytest.mark.slow
def test_what_is_said_to_pay_is_advised() -> None:
    (note,) = bl.recommend(arms=4, horizon=500, epsilon=0.05).notes
    longer = int(note.split("horizon of about ")[1].split(" ")[0].replace(",", ""))
    epsilon = float(note.split("epsilon of about ")[1].split(" ")[0])
    assert bl.recommend(arms=4, horizon=longer, epsilon=0.05).policy.name != "random"
    assert bl.recommend(arms=4, horizon=500, epsilon=1.2 * epsilon).policy.name != "random"


def test_what_did_best_is_advised() -> None:
    advice = bl.recommend(arms=2, horizon=2_000, epsilon=1.0)
    assert advice.contest is not None
    shares = [standing.share for standing in advice.contest.standings]
    assert shares[0] == min(shares) < 0.9
    assert advice.policy == advice.contest.best.policy
    assert advice.contest.rounds == 2_000
    assert bl.recommend(arms=2, horizon=2_000, epsilon=1.0).contest == advice.contest


@pytest.mark.slow
@pytest.mark.parametrize("rewards", ["adversarial", "experts"])
def test_playing_at_random_takes_losses_and_advice(rewards: Any) -> None:
    given = MORE.get(rewards, {})
    advice = bl.recommend(arms=3, horizon=100, epsilon=0.02, rewards=rewards, **given)
    assert advice.policy.name == "random"
    assert advice.expect(repetitions=2).rounds == 100


def invoke(*arguments: str, text: str = "") -> str:
    answer = CliRunner().invoke(main, ["choose", *arguments], input=text)
    assert answer.exit_code == 0, answer.output
    return answer.output
