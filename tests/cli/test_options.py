"""Options that commands share."""

from __future__ import annotations

import balaclava as bl
from balaclava.cli import main
from tests.cli.running import invoke


def test_arms_by_number_or_by_name() -> None:
    for arms, code in (("3", "arms=3"), ("plain, map", "arms=['plain', 'map']")):
        answer = invoke("choose", "--no-ask", "--no-simulate", "--arms", arms)
        assert answer.exit_code == 0, answer.output
        assert code in answer.output
    for wrong, words in (("plain", "such as plain,friendly,map"), ("a,a", "twice")):
        answer = invoke("choose", "--no-ask", "--no-simulate", "--arms", wrong)
        assert answer.exit_code == 2
        assert words in answer.output


def test_delays_have_the_same_options_everywhere() -> None:
    """By name and meaning; the delay itself is a slider of `explore`."""
    names = ["--delay", "--law", "--lost", "--patience", "--settle", "--missing"]
    for command in ("simulate", "choose", "plan", "calibrate", "report", "compare", "explore"):
        known = {name for each in main.commands[command].params for name in each.opts}
        assert set(names) - known == ({"--delay"} if command == "explore" else set())


def test_choose_answers_for_the_mode_that_is_played() -> None:
    late = ("--no-ask", "--no-simulate", "--arms", "2", "--delay", "20", "--settle", "window")
    answer = invoke("choose", *late, "--patience", "40", "--missing", "0")
    assert answer.exit_code == 0, answer.output
    assert "agent:    policy.agent(patience=40, settle='window', missing=0.0)" in answer.output
    agent = bl.policy("dp-imed", arms=2, epsilon=1.0).agent(patience=40, settle="window", missing=0)
    told = " ".join(answer.output.split())
    assert agent.guarantee.neighbours in told
    for assumption in agent.guarantee.assumptions[:-1]:  # the last one is on copies of an agent
        assert assumption in told
    for more, words in (
        (("--patience", "40"), "needs missing"),
        (("--missing", "0"), "needs patience"),
        (("--patience", "40", "--missing", "7"), "missing = 7 is not allowed"),
    ):
        answer = invoke("choose", *late, *more)
        assert (answer.exit_code, words in answer.output) == (2, True), answer.output
