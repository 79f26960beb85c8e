"""The advice, and the command that gives it."""

from __future__ import annotations

import json
from typing import Any, get_args

import numpy as np
import pytest
from click.testing import CliRunner

import balaclava as bl
from balaclava.advice.choose.questions import derive_moment
from balaclava.advice.choose.rules import RECOMMENDATION_RULES, Rewards, Trust, find_rule
from balaclava.cli import main
from balaclava.errors import ParameterError

MORE: dict[str, dict[str, Any]] = {
    "heavy-tailed": {"moment_order": 1.5, "moment_bound": 2.0},
    "outliers": {"moment_order": 2.0, "moment_bound": 1.0, "contamination": 0.05},
    "experts": {"experts": 4},
}


def test_the_table_names_registered_policies() -> None:
    known = {entry.name: entry.policy for entry in bl.list_policies()}
    for rule in RECOMMENDATION_RULES:
        assert known[rule.policy].model == rule.trust, rule
        assert known[rule.baseline].model == "none", rule
        scopes = ("report",) if rule.trust == "local" else (rule.scope,)
        assert known[rule.policy].scope in scopes, rule


def test_the_table_answers_each_question_once() -> None:
    questions = [(rule.rewards, rule.trust, rule.scope) for rule in RECOMMENDATION_RULES]
    assert len(set(questions)) == len(questions)
    for rewards in get_args(Rewards):
        assert find_rule(rewards, "central", "trajectory").rewards == rewards


@pytest.mark.parametrize("rewards", get_args(Rewards))
@pytest.mark.parametrize("trust", get_args(Trust))
def test_the_policy_keeps_what_was_asked_for(rewards: Any, trust: Any) -> None:
    if not any((rule.rewards, rule.trust) == (rewards, trust) for rule in RECOMMENDATION_RULES):
        with pytest.raises(ParameterError, match=r"no policy fits .*; with trust = 'local'"):
            bl.recommend(arms=3, horizon=5000, rewards=rewards, trust=trust, simulate=False)
        return
    advice = bl.recommend(
        arms=3,
        horizon=5000,
        epsilon=0.5,
        rewards=rewards,
        trust=trust,
        simulate=False,
        **MORE.get(rewards, {}),
    )
    assert advice.guarantee.private
    assert advice.guarantee.epsilon == 0.5
    assert advice.guarantee.delta == 0.0
    if trust == "local":
        assert advice.guarantee.model == "local"
    assert not advice.baseline.guarantee.private
    assert (advice.policy.arms, advice.baseline.arms) == (3, 3)
    assert eval(advice.code, {"bl": bl}) == advice.policy


@pytest.mark.slow
def test_arms_by_name() -> None:
    advice = bl.recommend(arms=["plain", "map"], horizon=1_000)
    assert advice.policy.arm_labels == ("plain", "map")
    assert "arms=['plain', 'map']" in advice.code
    with pytest.raises(ParameterError, match="twice"):
        bl.recommend(arms=["plain", "plain"], horizon=1_000)


def test_single_decisions() -> None:
    advice = bl.recommend(arms=3, horizon=1000, scope="decision", simulate=False)
    assert advice.guarantee.scope == "decision"
    assert advice.notes == ()
    heavy = bl.recommend(
        arms=3,
        horizon=1000,
        scope="decision",
        rewards="heavy-tailed",
        simulate=False,
        **MORE["heavy-tailed"],
    )
    assert heavy.guarantee.scope == "trajectory"
    assert "no policy here is made for single decisions" in heavy.notes[0]
    assert "radius_scale, such as 0.2" in heavy.notes[1]


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"rewards": "clicks"}, "rewards = 'clicks' is not allowed; give one of 'bounded'"),
        ({"epsilon": 0.0}, "epsilon = 0.0 is not allowed; give a number in"),
        ({"horizon": 1}, "horizon = 1 is not allowed"),
        ({"rewards": "heavy-tailed"}, "'moment_order' is missing"),
        ({"rewards": "experts"}, "'experts' is missing"),
        ({"rewards": "outliers", "moment_order": 2.0, "moment_bound": 1.0}, "contamination is"),
        ({"reward_range": (1.0, 0.0)}, "reward_range"),
    ],
)
def test_refusals(given: dict[str, Any], message: str) -> None:
    with pytest.raises(ParameterError, match=message):
        bl.recommend(**{"arms": 2, "horizon": 100, **given})


def test_expectation() -> None:
    advice = bl.recommend(arms=2, horizon=2_000, epsilon=1.0)
    found = advice.expect(repetitions=8)
    world = bl.environment("bernoulli", means=[0.3, 0.7])
    again = bl.simulate(
        {"policy": advice.policy}, world, horizon=2_000, repetitions=8, seed=1, checkpoints=1
    )
    assert found.regret == again.final_regret("policy").mean()
    assert found.price == found.regret / found.baseline_regret
    assert found.random_regret == pytest.approx(2_000 * 0.2)
    assert not found.in_vain
    strict = bl.recommend(arms=2, horizon=100, epsilon=1e-4, simulate=False)
    assert strict.expect(repetitions=4).in_vain


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


def test_a_long_horizon_is_simulated_as_it_is_or_it_is_said() -> None:
    advice = bl.recommend(arms=2, horizon=10**7, epsilon=1.0, simulate=False)
    assert advice.expect(repetitions=1).rounds == 10**6
    output = invoke("--no-ask", "--arms", "2", "--horizon", "10000000")
    assert "1,000,000 of the 10,000,000 rounds were simulated" in " ".join(output.split())


def invoke(*arguments: str, text: str = "") -> str:
    answer = CliRunner().invoke(main, ["choose", *arguments], input=text)
    assert answer.exit_code == 0, answer.output
    return answer.output


def test_command_with_options() -> None:
    output = invoke(
        *("--no-ask", "--arms", "2", "--horizon", "2000", "--epsilon", "0.5", "--range", "0", "1")
    )
    advice = bl.recommend(arms=2, horizon=2000, epsilon=0.5)
    assert output.startswith(f"policy:   {advice.policy.name}, ε=0.5 per trajectory\n")
    told = " ".join(output.split())
    assert " ".join(advice.guarantee.explain().split()) in told
    assert f"use: {advice.code} regret:" in told
    assert "rewards 0 and 1, 2 arms with means from 0.3 to 0.7" in told
    assert "of imed, which is not private" in told


def test_command_with_questions() -> None:
    """Losses that someone chooses, a trusted operator, all decisions, then three numbers."""
    output = invoke("--ask", "--no-simulate", text="5\n1\n1\n4\n3000\n2\n")
    assert "policy:   dp-htinf, ε=2 per trajectory" in output
    assert "arms=4" in output
    assert "horizon=3000" in output
    output = invoke("--ask", "--no-simulate", text="1\n2\n-1\n4\n2\n\n\n")
    assert "policy:   ldp-ucb-bernoulli, ε=1 per report" in output
    assert "reward_range=(-1.0, 4.0)" in output
    assert "What does an observer see?" not in output  # a report covers both


def test_command_refuses_in_one_line() -> None:
    answer = CliRunner().invoke(main, ["choose", "--no-ask", "--epsilon", "-1"])
    assert answer.exit_code == 2
    assert "epsilon = -1.0 is not allowed" in answer.output


def test_wrong_answers_are_asked_again() -> None:
    """Nonsense, a number that is no option, a range the wrong way round, no arm, no privacy."""
    text = "abc\n9\n1\n1\n1\n3\n2\n5\n0\n2.5\n2\n1\n100\n-1\n0.5\n"
    output = invoke("--ask", "--no-simulate", text=text)
    for said in (
        "'abc' is not a whole number",
        "9 is not allowed; give a whole number in [1, 6]",
        "2.0 is not allowed; give a number above 3",
        "0 is not allowed; give a whole number at least 1",
        "'2.5' is not a whole number",
        "1 is not allowed; give a whole number in [2, 1e+12]",
        "-1.0 is not allowed; give a number above 0",
    ):
        assert said in output
    assert "use:      bl.policy('dp-imed', arms=2, reward_range=(3.0, 5.0), epsilon=0.5)" in output


def test_answers_that_end_early_are_no_answer() -> None:
    answer = CliRunner().invoke(main, ["choose", "--ask", "--no-simulate"], input="2\n")
    assert answer.exit_code == 1
    assert "policy:" not in answer.output


def test_what_is_assumed_and_what_is_unused_is_said() -> None:
    output = invoke("--no-ask", "--no-simulate", "--arms", "3", "--contamination", "0.1")
    assumed, _, _ = " ".join(output.split()).partition("; give options")
    usual = "rewards=bounded, trust=central, scope=trajectory, horizon=10000, epsilon=1.0"
    assert assumed.endswith(f"assumed: {usual}")
    assert "unused:   contamination: dp-imed does not take it" in output
    assert "assumed:" not in invoke("--ask", "--no-simulate", text="\n" * 8)


@pytest.mark.parametrize(
    ("rewards", "name"), [("adversarial", "ldp-exp3"), ("outliers", "ldpr-batch-ucb")]
)
def test_local_policies_are_found(rewards: Any, name: str) -> None:
    advice = bl.recommend(
        arms=3,
        horizon=5000,
        rewards=rewards,
        trust="local",
        simulate=False,
        **MORE.get(rewards, {}),
    )
    assert advice.policy.name == name
    assert advice.policy.contamination == MORE.get(rewards, {}).get("contamination")


def test_one_arm_has_no_price() -> None:
    output = invoke("--no-ask", "--arms", "1", "--horizon", "50")
    assert "price:    no difference from the 0 of imed" in output
    assert "nan" not in output


def test_a_moment_from_questions_that_people_can_answer() -> None:
    """The power law with that moment has half of its rewards above m and one in n above L."""
    moments = derive_moment(typical=3.0, largest=60.0, one_in=500.0)
    index = np.log(250) / np.log(20)
    assert moments.order == pytest.approx(0.95 * index, rel=0.01)
    scale = 3.0 / 2 ** (1 / index)
    exact = index * scale**moments.order / (index - moments.order)
    assert exact <= moments.bound <= 1.1 * exact
    assert f"= {index:.3g}" in moments.derivation
    for wrong in ((3.0, 2.0, 500.0), (3.0, 60.0, 2.0), (1.0, 1e9, 3.0), (0.0, 1.0, 9.0)):
        with pytest.raises(ParameterError):
            derive_moment(*wrong)
    answer = CliRunner().invoke(
        main,
        [
            *("choose", "--rewards", "heavy-tailed", "--no-simulate", "--no-ask"),
            *("--typical", "3", "--largest", "60", "--one-in", "500"),
        ],
    )
    assert f"moment_bound={moments.bound!r}" in answer.output
    assert "power law of index" in answer.output
    assert "instead:  ldpr-batch-ucb, if the operator is not trusted" in answer.output
    for options, message in (
        (["--typical", "3"], "heavy-tailed rewards, instead of"),
        (["--rewards", "outliers", "--typical", "3"], "together"),
    ):
        answer = CliRunner().invoke(main, ["choose", "--no-ask", "--no-simulate", *options])
        assert answer.exit_code == 2
        assert message in answer.output


def test_the_answer_as_json() -> None:
    answer = CliRunner().invoke(main, ["choose", "--json", "--no-simulate", "--arms", "3"])
    advice = json.loads(answer.output)
    assert advice["policy"] == "dp-imed"
    assert bl.policy(advice["policy"], **advice["parameters"]).arms == 3
    assert advice["guarantee"]["scope"] == "trajectory"
    assert any(line.startswith("dp-ftpl-new, if an observer") for line in advice["instead"])
