"""`balaclava choose`: questions, options, and what it prints."""

from __future__ import annotations

import json

from click.testing import CliRunner

import balaclava as bl
from balaclava.cli import main


def test_a_long_horizon_is_simulated_as_it_is_or_it_is_said() -> None:
    advice = bl.recommend(arms=2, horizon=10**7, epsilon=1.0, simulate=False)
    assert advice.expect(repetitions=1).rounds == 10**6
    output = invoke("--no-ask", "--arms", "2", "--horizon", "10000000")
    assert "simulated only 1,000,000 of 10,000,000 rounds" in " ".join(output.split())


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
    output = invoke("--ask", "--no-simulate", text="1\n5\n1\n1\n4\n3000\n2\n")
    assert "policy:   dp-htinf, ε=2 per trajectory" in output
    assert "arms=4" in output
    assert "horizon=3000" in output
    output = invoke("--ask", "--no-simulate", text="1\n1\n2\n-1\n4\n2\n\n\n")
    assert "policy:   ldp-ucb-bernoulli, ε=1 per report" in output
    assert "reward_range=(-1.0, 4.0)" in output
    assert "What does an observer see?" not in output  # a report covers both


def test_command_refuses_in_one_line() -> None:
    answer = CliRunner().invoke(main, ["choose", "--no-ask", "--epsilon", "-1"])
    assert answer.exit_code == 2
    assert "epsilon = -1.0 is not allowed" in answer.output


def test_wrong_answers_are_asked_again() -> None:
    """Nonsense, a number that is no option, a range the wrong way round, no arm, no privacy."""
    text = "1\nabc\n9\n1\n1\n1\n3\n2\n5\n0\n2.5\n2\n1\n100\n-1\n0.5\n"
    output = invoke("--ask", "--no-simulate", text=text)
    for said in (
        "'abc' is not a whole number",
        "9 is not allowed; give a whole number in [1, 6]",
        "2.0 is not allowed; give a number above 3",
        "0 is not allowed; give a whole number at least 2",
        "'2.5' is not a whole number",
        "1 is not allowed; give a whole number in [2, 1e+12]",
        "-1.0 is not allowed; give a number above 0",
    ):
        assert said in output
    known = "arms=2, reward_range=(3.0, 5.0), epsilon=0.5, horizon=100"
    assert f"use:      bl.policy('dp-imed', {known})" in output


def test_answers_that_end_early_are_no_answer() -> None:
    answer = CliRunner().invoke(main, ["choose", "--ask", "--no-simulate"], input="1\n2\n")
    assert answer.exit_code == 1
    assert "policy:" not in answer.output


def test_what_is_assumed_and_what_is_unused_is_said() -> None:
    output = invoke("--no-ask", "--no-simulate", "--arms", "3", "--contamination", "0.1")
    assumed, _, _ = " ".join(output.split()).partition("; give options")
    usual = "rewards=bounded, trust=central, scope=trajectory, horizon=10000, epsilon=1.0"
    assert assumed.endswith(f"assumed: {usual}")
    assert "unused:   contamination: dp-imed does not take it" in output
    assert "assumed:" not in invoke("--ask", "--no-simulate", text="\n" * 9)


def test_one_arm_leaves_nothing_to_choose() -> None:
    answer = CliRunner().invoke(main, ["choose", "--no-ask", "--arms", "1"])
    assert answer.exit_code == 2
    assert "arms = 1 leaves nothing to choose; give at least 2" in answer.output


def test_a_scope_that_does_not_matter_is_answered() -> None:
    given = ("--no-ask", "--no-simulate", "--arms", "3", "--trust", "local")
    output = " ".join(invoke(*given, "--scope", "decision").split())
    assert "with local trust the scope does not matter" in output
    assert "the scope" not in " ".join(invoke(*given).split())


def test_the_answer_as_json() -> None:
    answer = CliRunner().invoke(main, ["choose", "--json", "--no-simulate", "--arms", "3"])
    advice = json.loads(answer.output)
    assert advice["policy"] == "dp-imed"
    assert bl.policy(advice["policy"], **advice["parameters"]).arms == 3
    assert advice["guarantee"]["scope"] == "trajectory"
    assert any(line.startswith("dp-ftpl-new, if an observer") for line in advice["instead"])


def test_figures_are_those_of_the_users_rate() -> None:
    """At a conversion of 3 %, one point ahead, learning gains far less than at means of 0.3 to 0.7.

    What is assumed is said in the sentence of the figures.
    """
    sized = ("--no-ask", "--arms", "3", "--horizon", "3000")
    text = " ".join(invoke(*sized).split())
    _, _, sentence = text.partition("regret: ")
    assert "against 600 at random" in sentence
    said = "arms with means from 0.3 to 0.7, which are assumed: give yours with --average and"
    assert said in sentence
    text = " ".join(invoke(*sized, "--average", "0.03", "--difference", "0.01").split())
    _, _, sentence = text.partition("regret: ")
    assert "against 20.0 at random" in sentence
    assert "3 arms with averages of 0.03, one 0.01 ahead" in sentence
    assert "which are assumed" not in sentence


def test_the_rate_is_asked_for() -> None:
    questions = "\n" * 4 + "\n\n" + "3\n1000\n1\n0.3\n0.2\n"
    output = invoke("--ask", text=questions)
    assert "What does a usual arm earn on average?" in output
    assert "By how much must the best arm be better" in output
    assert "3 arms with averages of 0.3, one 0.2 ahead" in " ".join(output.split())
    output = invoke("--no-ask", "--no-simulate", "--arms", "3", "--average", "0.1")
    assert "difference=" in output  # assumed, and said


def test_a_rate_out_of_range_is_refused() -> None:
    sized = ["choose", "--no-ask", "--arms", "3", "--no-simulate"]
    for more, message in (
        (["--average", "0.9", "--difference", "0.2"], "leaves [0, 1]"),
        (["--rewards", "adversarial", "--average", "0.1"], "are for bounded rewards"),
    ):
        answer = CliRunner().invoke(main, [*sized, *more])
        assert answer.exit_code == 2
        assert message in answer.output


def test_the_goal_is_asked_first_and_changes_the_answer() -> None:
    output = invoke("--ask", "--no-simulate", text="2\n" + "\n" * 8)
    assert output.startswith("What do you want?")
    assert "policy:   dp-top-two, ε=1 per trajectory" in output
    assert "instead:  dp-imed, if as few as possible shall get a worse arm" in output
    assert "instead:  dp-top-two, if you want to know" in invoke("--no-ask", "--no-simulate")


def test_few_participants_get_a_test_of_fixed_size_and_a_plan() -> None:
    sized = ("--no-ask", "--goal", "best", "--arms", "3", "--horizon", "200")
    text = " ".join(invoke(*sized, "--average", "0.3", "--difference", "0.3").split())
    assert text.startswith("policy: dp-even, ε=1 per trajectory")
    assert "plan: A classic test of fixed size without privacy takes 204 participants." in text
    assert "rates of 0.3, and 0.6 of the best" in text
    assert "price:" not in text
    assert "warning:" not in text


def test_epsilons_side_by_side() -> None:
    asked = ("--arms", "2", "--horizon", "600", "--epsilon", "0.3,3", "--average", "0.3")
    text = invoke("--no-ask", *asked, "--difference", "0.4")
    assert "to name the best" in text
    assert [line.split()[0] for line in text.splitlines()[1:3]] == ["0.3", "3"]
    found = json.loads(invoke("--json", *asked, "--difference", "0.4"))["epsilons"]
    assert found[0]["participants"] > found[1]["participants"]
    assert found[0]["regret"] > found[1]["regret"]
    refused = CliRunner().invoke(main, ["choose", "--no-ask", "--no-simulate", *asked])
    assert refused.exit_code == 2
    assert "compared by simulation" in refused.output
