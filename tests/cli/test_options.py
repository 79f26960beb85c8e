"""Options that commands share."""

from __future__ import annotations

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
